package sqlite_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/store/storetest"
)

func TestMain(m *testing.M) {
	child()
	goleak.VerifyTestMain(m)
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) collect.Store { return open(t, filepath.Join(t.TempDir(), "state.db")) })
}
