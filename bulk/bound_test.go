package bulk_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
)

// slowly gives a row now and then.
type slowly struct {
	counter
	every time.Duration
}

func (s *slowly) Next() (bulk.Row, error) {
	time.Sleep(s.every)
	return s.counter.Next()
}

func TestALoadSaysWhatBoundIt(t *testing.T) {
	level := func(most int) dispatch.Params {
		return dispatch.Params{BatchRows: 10, Law: control.ParallelismParams{Max: most, Ceiling: most, Min: 1}}
	}
	hint := func(n int) *bulk.Outcome {
		return &bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.OK, Parallelism: n}}
	}
	for _, tt := range []struct {
		name   string
		source bulk.Source
		server *server
		params dispatch.Params
		want   reason.Bound
	}{
		{"the owner's ceiling", &counter{rows: 2000}, &server{took: time.Second}, level(1), reason.BoundCeiling},
		{"what the server recommends", &counter{rows: 2000}, &server{took: time.Second, answer: func(int64, int, bulk.Batch) *bulk.Outcome { return hint(2) }},
			level(50), reason.BoundLimit},
		{"what the provider has borne", &counter{rows: 2000}, &server{took: time.Second, answer: func(n int64, _ int, _ bulk.Batch) *bulk.Outcome {
			if n%20 == 19 {
				return throttle(0)
			}
			return nil
		}}, level(50), reason.BoundParallelism},
		{"Retry-After", &counter{rows: 50}, &server{took: time.Second, answer: func(n int64, _ int, _ bulk.Batch) *bulk.Outcome {
			if n == 1 {
				return throttle(time.Minute)
			}
			return nil
		}}, level(1), reason.BoundCooldown},
		{"an input that is slow", &slowly{counter{rows: 200}, time.Second}, &server{took: time.Second}, level(50), reason.BoundInput},
		{"the last answers", &counter{rows: 20}, &server{took: time.Minute}, level(50), reason.BoundLatency},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sum, err := run(t, t.Context(), tt.source, tt.server, bulk.Options{Dir: t.TempDir(), Params: tt.params})
				if err != nil || sum.State != bulk.Drained {
					t.Fatalf("%+v, %v", sum, err)
				}
				if shares := sum.BoundBy.Shares(); len(shares) == 0 || shares[0].Bound != tt.want || shares[0].Of < 0.7 {
					t.Errorf("the load was bound by %v, want %v", sum.BoundBy, tt.want)
				}
				if total := sum.BoundBy.Total(); total != sum.Elapsed {
					t.Errorf("%v of %v is accounted for", total, sum.Elapsed)
				}
			})
		})
	}
}
