package sim

import (
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/sim/scenario"
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

func TestMoreBatchesThanTheBoundAreAnError(t *testing.T) {
	s, err := scenario.Parse("test.yaml", []byte("name: test\nworkload: {kind: bulk, rows: 5000}\nprovider: {batch: {per_row: 1ms, max_rows: 10}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, sees, err := bulkParams(s, Options{Law: BulkParallel})
	if err != nil {
		t.Fatal(err)
	}
	e, err := newBulkEngine(s, 1, &p, sees)
	if err != nil {
		t.Fatal(err)
	}
	e.most = 499 // of 500
	const want = "the load takes more than 2000000 batches: lower workload.rows of 5000"
	if err := e.run(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
