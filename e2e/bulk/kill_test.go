//go:build unix

package bulk_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/longtest"
)

// TestKilledAtRandomInstants kills loads wherever they are and goes on
// with them until each is done, with "run" or with "resume".
func TestKilledAtRandomInstants(t *testing.T) {
	t.Parallel()
	const rows = 3000
	kills := longtest.Size(15, 200) // over all kinds of operation
	for i, kind := range []string{create, keyed, upsert} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			chance := rand.New(rand.NewPCG(seed, 0))
			died, loads, uncertain := 0, 0, int64(0)
			for died < kills/3+i%2 && !t.Failed() {
				o := newOffice(t)
				o.took, o.keyed = 15*time.Millisecond, kind == keyed
				o.refuses = func(row map[string]any) bool { return int(row["id"].(float64))%211 == 210 }
				p := newPlace(t, o, kind, "rows.jsonl", lines(rows, func(n int) bool { return n%701 == 700 }))
				died += p.live(o, chance)
				loads++
				s := p.accounted(o, rows, kind)
				uncertain += s.Uncertain
				if s.Rejected != rejected(rows) && kind != create || s.Rejected > rejected(rows) {
					t.Errorf("%d rows are rejected, of %d that are at fault", s.Rejected, rejected(rows))
				}
				o.Close()
			}
			t.Logf("%d kills in %d loads, %d rows uncertain", died, loads, uncertain)
		})
	}
}

// rejected is how many rows of that test's input are at fault.
func rejected(rows int) (n int64) {
	for i := range rows {
		if i%211 == 210 || i%701 == 700 {
			n++
		}
	}
	return n
}

// live kills a load now and then until it is done. After twenty deaths it is
// left alone: a machine can be so slow that every process dies before it has
// loaded anything.
func (p *place) live(o *office, chance *rand.Rand) (died int) {
	p.t.Helper()
	for {
		args := []string{"run", p.input, "--target", "target.yaml", "--dir", load, "--quiet"}
		if _, err := os.Stat(filepath.Join(p.dir, load, "load.json")); err == nil && chance.IntN(2) == 0 {
			args = []string{"resume", load}
		}
		process := p.start(args...)
		if died < 20 {
			timer := time.NewTimer(time.Duration(chance.Int64N(int64(150 * time.Millisecond))))
			select {
			case <-timer.C:
				process.Signal(p.t, os.Kill)
			case <-process.Ended():
			}
			timer.Stop()
		}
		switch out := process.Wait(p.t); {
		case out.Killed:
			died++
		case out.Code == harness.ExitDrained:
			return died
		default:
			p.t.Fatalf("after %d kills: %s", died, out)
		}
		if _, err := os.Stat(filepath.Join(p.dir, load, "journal")); err != nil {
			continue // killed before there was any
		}
		if died%4 == 0 {
			s := p.status()
			if held, _ := o.count(); s.Acknowledged > int64(held) {
				p.t.Errorf("after %d kills %d rows are acknowledged, and the office holds %d", died, s.Acknowledged, held)
			}
			if s.Running == nil || *s.Running {
				p.t.Errorf("after a kill, the load is said to run: %v", fmt.Sprint(s.Running))
			}
		}
	}
}
