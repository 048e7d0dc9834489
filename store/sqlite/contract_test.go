package sqlite_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/powercut"
	"github.com/headway-go/headway/store/storetest"
)

func TestMain(m *testing.M) {
	child()
	goleak.VerifyTestMain(m)
}

func TestContract(t *testing.T) {
	longtest.Draws(t, 20, 100) // store/memory draws as often as rapid does
	storetest.Run(t, func(t *testing.T) collect.Store { return open(t, filepath.Join(powercut.Scratch(t), "state.db")) })
}
