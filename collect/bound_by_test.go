package collect_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
)

// slow answers every request of a bench after a time; details are empty.
func slow(b *bench, latency time.Duration, answer func(n int, r *http.Request) int) answers {
	var asked atomic.Int64
	return func(r *http.Request) *http.Response {
		time.Sleep(latency)
		n := int(asked.Add(1))
		body := []byte("[]")
		if !isDetail(r) {
			body, _ = json.Marshal(map[string]any{"items": b.docs})
		}
		res := &http.Response{StatusCode: answer(n, r), Header: http.Header{}, Request: r}
		if res.StatusCode == http.StatusTooManyRequests {
			res.Header.Set("Retry-After", "60")
		}
		res.Body = io.NopCloser(strings.NewReader(string(body)))
		return res
	}
}

func TestARunSaysWhatBoundIt(t *testing.T) {
	fine := func(int, *http.Request) int { return http.StatusOK }
	for _, tt := range []struct {
		name    string
		pacing  headway.Config
		latency time.Duration
		answer  func(int, *http.Request) int
		want    reason.Bound
		least   float64
	}{
		{"the default ceiling", headway.Config{Law: "aimd", Initial: 250 * time.Millisecond}, 100 * time.Millisecond, fine, reason.BoundCeiling, 0.95},
		{"latency", headway.Config{Law: "aimd", Ceiling: time.Millisecond, Initial: time.Millisecond}, 100 * time.Millisecond, fine, reason.BoundLatency, 0.9},
		{"Retry-After", headway.Config{Law: "aimd", Ceiling: time.Millisecond, Initial: time.Millisecond}, time.Millisecond,
			func(n int, _ *http.Request) int {
				if n == 5 {
					return http.StatusTooManyRequests
				}
				return http.StatusOK
			}, reason.BoundCooldown, 0.9},
		{"an open circuit", headway.Config{Law: "aimd", Ceiling: time.Millisecond, Initial: time.Millisecond}, time.Millisecond,
			func(n int, r *http.Request) int {
				if isDetail(r) && n < 8 {
					return http.StatusInternalServerError
				}
				return http.StatusOK
			}, reason.BoundCircuit, 0.9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, 40)
			synctest.Test(t, func(t *testing.T) {
				b.o.Connector = client{base: "http://api.test"}
				b.o.Pacing = tt.pacing
				b.o.Pacing.JitterMax = -1
				b.o.Base = slow(b, tt.latency, tt.answer)
				var last event.Event
				b.o.OnEvent = func(e event.Event) { last = e }
				s := b.drained(t)
				shares := s.BoundBy.Shares()
				if len(shares) == 0 || shares[0].Bound != tt.want || shares[0].Of < tt.least {
					t.Errorf("the run was bound by %v, want %v", s.BoundBy, tt.want)
				}
				if total := s.BoundBy.Total(); total != s.Ended.Sub(s.Started) {
					t.Errorf("%v of %v is accounted for", total, s.Ended.Sub(s.Started))
				}
				if last.Type != event.RunEnd || last.Bound == nil || last.Bound.Shares[tt.want.String()] != shares[0].Of {
					t.Errorf("the last event is %+v, %+v", last, last.Bound)
				}
				runs, err := b.store.Runs(t.Context(), "bench", 1)
				if err != nil || len(runs) != 1 || runs[0].BoundBy != s.BoundBy {
					t.Errorf("on record is %v, %v; want %v", runs[0].BoundBy, err, s.BoundBy)
				}
			})
		})
	}
}

// TestAWaitThatIsCutShortCountsForWhatWasWaitedFor stops runs in the middle of
// their waits.
func TestAWaitThatIsCutShortCountsForWhatWasWaitedFor(t *testing.T) {
	quick := headway.Config{Law: "aimd", Ceiling: time.Millisecond, Initial: time.Millisecond}
	slowly := headway.Config{Law: "aimd", Ceiling: time.Hour, Initial: time.Hour, MaxWait: 2 * time.Hour}
	answering := func(status int) func(int, *http.Request) int {
		return func(_ int, r *http.Request) int {
			if isDetail(r) {
				return status
			}
			return http.StatusOK
		}
	}
	for _, tt := range []struct {
		name        string
		pacing      headway.Config
		concurrency int
		answer      func(int, *http.Request) int
		retry       retry.Backoff
		want        reason.Bound
	}{
		{"Retry-After", quick, 1, answering(http.StatusTooManyRequests), retry.Backoff{}, reason.BoundCooldown},
		{"Retry-After, for many", quick, 8, answering(http.StatusTooManyRequests), retry.Backoff{}, reason.BoundCooldown},
		{"the ceiling", slowly, 1, answering(http.StatusOK), retry.Backoff{}, reason.BoundCeiling},
		{"the ceiling, for many", slowly, 8, answering(http.StatusOK), retry.Backoff{}, reason.BoundCeiling},
		{"the wait before a retry", quick, 1, answering(http.StatusInternalServerError),
			retry.Backoff{Base: 40 * time.Minute, Cap: time.Hour}, reason.BoundBackoff},
		{"an open circuit", quick, 1, answering(http.StatusInternalServerError), retry.Backoff{Attempts: 1}, reason.BoundCircuit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, 40)
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				b.o.Connector = client{base: "http://api.test"}
				b.o.Pacing, b.o.Retry, b.o.Concurrency = tt.pacing, tt.retry, tt.concurrency
				b.o.Pacing.JitterMax = -1
				b.o.Base = slow(b, time.Millisecond, tt.answer)
				b.o.Stop = stop
				time.AfterFunc(30*time.Second, func() { close(stop) })
				s, err := b.run(t)
				if err != nil {
					t.Fatal(err)
				}
				shares := s.BoundBy.Shares()
				if s.State != collect.RunDeferred || len(shares) == 0 || shares[0].Bound != tt.want || shares[0].Of < 0.9 {
					t.Errorf("the run was %s (%s) after %v, bound by %v, want %v", s.State, s.Reason, s.Ended.Sub(s.Started), s.BoundBy, tt.want)
				}
			})
		})
	}
}
