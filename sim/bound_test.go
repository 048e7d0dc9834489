package sim

import (
	"strings"
	"testing"

	"github.com/headway-go/headway/sim/scenario"
)

func TestMoreAttemptsThanTheBoundAreAnError(t *testing.T) {
	s, err := scenario.Parse("test.yaml", []byte("name: test\nhorizon: 30d\nowner: {ceiling: 1us, initial: 1us}\n"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "sim: scenario test takes more than 20000000 attempts: shorten its horizon of 720h0m0s"
	p, err := newProphet(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	p.most = 1000 // so that the test is quick
	if err := p.play(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the oracle: got %v, want %s", err, want)
	}
	e, err := newEngine(s, "aimd", 1, NewLedger(s, "aimd", 1))
	if err != nil {
		t.Fatal(err)
	}
	e.most = 1000
	if err := e.run(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the run: got %v, want %s", err, want)
	}
}
