package dispatch_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
)

// execution is one batch that a server worked on.
type execution struct {
	begin, end, busy time.Duration
}

// work runs a core through a load. The server takes perRow for each row, and each batch
// travels for a while before and after that.
func work(t testing.TB, c *dispatch.Core, rows int64, perRow, way time.Duration, tell dispatch.Outcome) (done []execution) {
	t.Helper()
	type flight struct {
		batch dispatch.Batch
		e     execution
	}
	var flying []flight
	offer(c, 0, 0, rows)
	c.End()
	for now := time.Duration(0); ; {
		sent, d := send(c, now)
		for _, b := range sent {
			busy := perRow * time.Duration(len(b.Rows))
			flying = append(flying, flight{b, execution{now + way, now + way + busy, busy}})
		}
		if d.Action == dispatch.Finish {
			return done
		}
		first := -1
		for i, f := range flying {
			if first < 0 || f.e.end < flying[first].e.end {
				first = i
			}
		}
		switch {
		case first >= 0 && flying[first].e.end+way <= d.At:
			f := flying[first]
			flying = append(flying[:first], flying[first+1:]...)
			now = max(now, f.e.end+way)
			settle(t, c, now, f.batch, tell)
			done = append(done, f.e)
		case d.At == dispatch.Never || d.At <= now:
			t.Fatalf("at %v nothing is under way and the core waits until %v", now, d.At)
		default:
			now = d.At
		}
	}
}

// most returns the maximum execution time in any period as long as window. Each batch
// counts at the instant that at returns.
func most(done []execution, window time.Duration, at func(execution) time.Duration) (sum time.Duration) {
	for _, last := range done {
		in := time.Duration(0)
		for _, e := range done {
			if d := at(last) - at(e); d >= 0 && d < window {
				in += e.busy
			}
		}
		sum = max(sum, in)
	}
	return sum
}

// Three are sent before the duration of a batch is known. Once the first is back, the other
// two are no longer assumed to take no time.
func TestTheFirstWaveIsCountedOnceItIsKnownWhatABatchTakes(t *testing.T) {
	const window, budget = 225 * ms, 758 * ms
	p := dispatch.Params{Law: control.ParallelismParams{BusyBudget: budget, BusyWindow: window, Max: 6}, FirstRows: 10, TargetTime: -1}
	tell := okay
	tell.Busy = 160 * ms
	done := work(t, newCore(t, p, 1), 400, 16*ms, 7*ms, tell)
	if got := most(done, window, func(e execution) time.Duration { return e.begin }); len(done) != 40 || got > budget || got <= budget/2 {
		t.Errorf("%d batches with %v of execution in %v, want 40 with at most %v", len(done), got, window, budget)
	}
}

func TestExecutionTimeNeverExceedsItsBudget(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		window := time.Duration(rapid.IntRange(100, 5000).Draw(rt, "window_ms")) * ms
		budget := window * time.Duration(rapid.IntRange(50, 800).Draw(rt, "percent")) / 100
		perRow := time.Duration(rapid.IntRange(1, 30).Draw(rt, "row_ms")) * ms
		size := rapid.IntRange(1, 20).Draw(rt, "rows")
		way := time.Duration(rapid.IntRange(0, 50).Draw(rt, "way_ms")) * ms
		reported := rapid.Bool().Draw(rt, "reported")
		p := dispatch.Params{
			Law:       control.ParallelismParams{BusyBudget: budget, BusyWindow: window, Max: rapid.IntRange(1, 12).Draw(rt, "max")},
			FirstRows: size, TargetTime: -1,
		}
		tell := okay
		if reported {
			tell.Busy = perRow * time.Duration(size)
		}
		done := work(t, newCore(t, p, 1), int64(size)*40, perRow, way, tell)
		if len(done) != 40 {
			rt.Fatalf("%d batches, want 40", len(done))
		}
		// The first batches are sent before the duration of a batch is known, and one batch
		// is always allowed.
		batch := perRow * time.Duration(size)
		allowed := max(budget, batch*time.Duration(max(1, int(budget/window))))
		if !reported {
			batch += 2 * way
			allowed = max(budget, batch*time.Duration(max(1, int(budget/window))))
		}
		for name, at := range map[string]func(execution) time.Duration{
			"start": func(e execution) time.Duration { return e.begin },
			"end":   func(e execution) time.Duration { return e.end },
		} {
			if got := most(done, window, at); got > allowed {
				rt.Fatalf("%v of execution in %v counted from the %s, want at most %v", got, window, name, allowed)
			}
		}
	})
}

func TestABudgetThatARefusalNamesIsKept(t *testing.T) {
	// Four places, 1 s a batch, and a budget of 12 s of execution in 300 s, which is
	// unknown before the refusal. What was spent before that counts too.
	c := newCore(t, dispatch.Params{Law: control.ParallelismParams{Max: 4, InitialFactor: 1}, FirstRows: 10, TargetTime: -1}, 1)
	offer(c, 0, 0, 1000)
	for at := range 3 {
		sent, _ := send(c, time.Duration(at)*sec)
		if len(sent) != 4 {
			t.Fatalf("at %d s %d batches are sent, want 4", at, len(sent))
		}
		for i, b := range sent {
			o := okay
			if at == 2 && i == 3 {
				o = dispatch.Outcome{
					Class: reason.Throttled, Reason: reason.RateLimited.Reason(), HasRetryAfter: true,
					Budget: 12 * sec, Window: 300 * sec,
				}
			}
			settle(t, c, time.Duration(at+1)*sec, b, o)
		}
	}
	// 11 s are spent: one batch more fits.
	sent, _ := send(c, 3*sec)
	if len(sent) != 1 {
		t.Fatalf("%d batches are sent, want the one that fits", len(sent))
	}
	settle(t, c, 4*sec, sent[0], okay)
	sent, d := send(c, 4*sec)
	if len(sent) != 0 || d.Reason != reason.Pacing {
		t.Fatalf("sent %d, then %+v, want to wait for the window", len(sent), d)
	}
	// The four batches of the first second leave the window once it no longer covers their
	// slot.
	if d.At < 301*sec || d.At > 304*sec {
		t.Errorf("waits until %v, want just after 301s", d.At)
	}
	if sent, _ = send(c, d.At); len(sent) == 0 {
		t.Error("nothing is sent when the window has room again")
	}
}

func TestServersRecommendationAloneKnowsNoBudget(t *testing.T) {
	law := control.ParallelismParams{Disabled: true, Max: 4, BusyBudget: sec, BusyWindow: 300 * sec}
	c := newCore(t, dispatch.Params{Law: law, FirstRows: 10, TargetTime: -1}, 1)
	if done := work(t, c, 400, 100*ms, 0, okay); done[len(done)-1].end != 10*sec {
		t.Errorf("the last of 40 batches ends at %v, want 10s", done[len(done)-1].end)
	}
}

// seconds sends batches of one second, one at a time, until the next one would have to
// wait. It returns their number.
func seconds(t *testing.T, c *dispatch.Core, now time.Duration) (n int, end time.Duration) {
	t.Helper()
	for {
		sent, _ := send(c, now)
		if len(sent) == 0 {
			return n, now
		}
		if len(sent) > 1 {
			t.Fatalf("%d batches are sent at once, want one", len(sent))
		}
		now += sec
		settle(t, c, now, sent[0], okay)
		n++
	}
}

func TestARefusalTellsWhatOthersSpend(t *testing.T) {
	refusal := throttled(sec)
	refusal.Budget, refusal.Window = 100*sec, 300*sec
	begin := func() *dispatch.Core {
		c := newCore(t, dispatch.Params{
			Law:       control.ParallelismParams{Max: 1, BusyBudget: 100 * sec, BusyWindow: 300 * sec},
			FirstRows: 10, TargetTime: -1,
		}, 1)
		offer(c, 0, 0, 100_000)
		return c
	}
	refuse := func(c *dispatch.Core, now time.Duration) time.Duration {
		t.Helper()
		sent, _ := send(c, now)
		if len(sent) != 1 {
			t.Fatalf("%d batches are sent at %v, want one", len(sent), now)
		}
		settle(t, c, now, sent[0], refusal)
		return now + sec
	}

	// In the first window an earlier load may have spent the budget, so the refusal does
	// not reduce it.
	c := begin()
	if n, _ := seconds(t, c, refuse(c, 0)); n != 100 {
		t.Errorf("%d batches after an early refusal, want the whole budget of 100", n)
	}

	// Later the refusal shows that others spend it. At most half of the budget is left to
	// them.
	c = begin()
	if n, _ := seconds(t, c, 0); n != 100 {
		t.Fatalf("%d batches, want the budget of 100", n)
	}
	n, _ := seconds(t, c, refuse(c, 1000*sec))
	if n < 49 || n > 52 {
		t.Errorf("%d batches after a refusal, want about half of 100", n)
	}
	// Half of that is forgotten after half an hour, and all of it after a day.
	if n, _ := seconds(t, c, 1000*sec+30*time.Minute); n < 73 || n > 78 {
		t.Errorf("%d batches half an hour later, want about 75", n)
	}
	if n, _ := seconds(t, c, 24*time.Hour); n != 100 {
		t.Errorf("%d batches a day later, want 100", n)
	}
}
