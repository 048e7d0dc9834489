package collect

import (
	"context"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/transport"
)

// PhaseRecovery is the phase in which the details of gaps are fetched.
const PhaseRecovery Phase = "recovery"

// The maximum size of a page of gaps. Pages only bound memory: budget, circuit and
// pacing carry over from one to the next.
const (
	gapPageBytes = 1 << 20
	gapPageRows  = 500
)

// recover tries each pending gap that is due once, in fair order. It returns a stop if
// the run must end, or if the provider's pressure ended recovery; in the second case
// the gaps stay pending and the caller continues with other work.
func (r *execution) recover(ctx context.Context) *stop {
	parents := map[string]connector.Stream{}
	for _, s := range r.o.Connector.Streams() {
		if s.DetailStream != "" {
			parents[s.Name] = s
		}
	}
	if r.cooldown.holds(time.Now()) {
		// Recovery may slow the pacing down meanwhile, never speed it up.
		ctx = transport.WithSteady(ctx)
	}
	var details []string // nil means all
	if r.o.Streams != nil {
		details = []string{}
		for _, s := range r.chosen() {
			details = append(details, s.DetailStream)
		}
	}
	began := time.Now()
	owed, _, _, err := r.owed(ctx)
	if err != nil {
		return r.broken(ctx, err)
	}
	r.live.stock(owed)
	for {
		if stop := r.halted(ctx); stop != nil {
			return stop
		}
		now := time.Now()
		gaps, err := r.o.Store.Serve(ctx, r.lease, ServeRequest{
			Now: now, Before: began, NoPressure: r.cooldown.holds(now), Streams: details, MaxBytes: gapPageBytes, MaxRows: gapPageRows,
		})
		if err != nil {
			return r.broken(ctx, err)
		}
		if len(gaps) == 0 {
			return nil
		}
		fault.Point(fault.GapsServed)
		if stop := r.recoverPage(ctx, parents, gaps, began); stop != nil {
			return stop
		}
	}
}

// recoverWhileItPays calls recover, and calls it again when the provider's pressure may
// have ended, until the run's time is over or maxCircuitWaits passes in a row recovered
// nothing. again reports that pressure stopped the fetching of details earlier in the
// run; a few refused details alone are no reason to wait.
func (r *execution) recoverWhileItPays(ctx context.Context, again bool) *stop {
	for idle := 0; ; idle++ {
		before := r.live.counted().GapsRecovered
		end := r.recover(ctx)
		if r.live.counted().GapsRecovered > before {
			idle = 0
		}
		if end == nil {
			if idle >= maxCircuitWaits || !again {
				return nil
			}
			_, next, _, err := r.owed(ctx)
			if err != nil {
				return r.broken(ctx, err)
			}
			if next.Reason.Kind() != reason.KindPressure {
				return nil
			}
			end = &stop{why: next.Reason, retryAt: next.RetryAt}
			if r.outlast(ctx, end) != nil {
				return nil // the gaps hold the reason
			}
			continue
		}
		if end = r.outlast(ctx, end); end != nil {
			return end
		}
	}
}

// recoverPage tries the gaps of one page, stream by stream. A gap without a
// request, such as an unreadable list entry that an operator released, is quarantined
// again.
func (r *execution) recoverPage(ctx context.Context, parents map[string]connector.Stream, gaps []Gap, began time.Time) *stop {
	by := map[string][]Gap{}
	var unasked Commit
	for _, g := range gaps {
		if parents[g.Parent].DetailStream != g.Stream {
			g.Attempts, g.LastSeen, g.Status = 0, began, GapTerminal
			unasked.Opened = append(unasked.Opened, g)
			continue
		}
		by[g.Parent] = append(by[g.Parent], g)
	}
	if len(unasked.Opened) > 0 {
		if err := r.commit(ctx, unasked); err != nil {
			return r.broken(ctx, err)
		}
	}
	for i, s := range r.o.Connector.Streams() {
		page := by[s.Name]
		if len(page) == 0 {
			continue
		}
		r.enter(stage{Phase: PhaseRecovery, Stream: s.DetailStream})
		stop := r.recoverGaps(ctx, s, page)
		if stop != nil {
			return r.giveBack(ctx, r.o.Connector.Streams()[i+1:], by, stop)
		}
	}
	return nil
}

// giveBack makes served gaps that were not tried pending again.
func (r *execution) giveBack(ctx context.Context, rest []connector.Stream, by map[string][]Gap, why *stop) *stop {
	var c Commit
	for _, s := range rest {
		for _, g := range by[s.Name] {
			c.Returned = append(c.Returned, g.GapKey)
		}
	}
	if len(c.Returned) > 0 && ctx.Err() == nil {
		if err := r.commit(ctx, c); err != nil {
			return r.broken(ctx, err)
		}
	}
	return why
}

// recoverGaps fetches the details of one stream's gaps and commits the outcomes. A gap
// is recovered only once its detail is written. One for which no request was sent is
// given back unchanged.
func (r *execution) recoverGaps(ctx context.Context, s connector.Stream, gaps []Gap) *stop {
	keys := make([]string, len(gaps))
	for i, g := range gaps {
		keys[i] = g.Key
	}
	known, err := r.o.Store.Known(ctx, r.o.Connection, s.Name, keys)
	if err != nil {
		return r.broken(ctx, err)
	}
	b := r.newBatch(s.Name)
	var todo []task
	var backlog *Gap
	before := map[GapKey]Gap{}
	for _, g := range gaps {
		if g.Backlog {
			backlog = &g
			continue
		}
		before[g.GapKey] = g
		it, seen := known[g.Key]
		if seen { // otherwise the item stays unknown
			b.items[g.Key] = it
		}
		todo = append(todo, task{
			item: connector.Item{Key: g.Key, Data: g.Locator},
			from: s.Name, to: s.DetailStream, children: readChildren(it.Children), known: true,
		})
	}
	b.settle = func() { b.settleGaps(before) }
	end := r.details(ctx, b, todo, true, nil)
	if end != nil && end.abort {
		return end.stop
	}
	fault.Point(fault.GapsSettled)
	if err := b.commit(ctx); err != nil {
		return r.broken(ctx, err)
	}
	fault.Point(fault.GapsRecovered)
	if end != nil {
		if backlog != nil {
			return r.giveBack(ctx, []connector.Stream{s}, map[string][]Gap{s.Name: {*backlog}}, end.stop)
		}
		return end.stop
	}
	if backlog != nil {
		return r.recoverBacklog(ctx, s, *backlog)
	}
	return nil
}

// settleGaps decides what becomes of gaps that were not recovered. Those for which no
// request was sent are given back. Those that failed too often for too long are
// quarantined.
func (b *batch) settleGaps(before map[GapKey]Gap) {
	b.Progress.GapsRecovered = int64(len(b.Recovered))
	missed := b.Opened
	b.Opened, b.Progress.GapsOpened = nil, 0
	for _, g := range missed {
		if g.Attempts == 0 {
			b.Returned = append(b.Returned, g.GapKey)
			continue
		}
		old := before[g.GapKey]
		if old.Attempts > 0 && !old.LastSeen.Before(b.run.started.Round(0)) && g.Reason.Kind() == reason.KindFailure {
			g.Attempts = 0 // this run was counted before, and RetryAt keeps the gap from being served again
		}
		tries := old.Attempts + g.Attempts
		g.waitFor(tries, g.LastSeen)
		if givenUp(g.Reason, tries, g.LastSeen.Sub(old.FirstSeen)) {
			g.Status = GapTerminal
		}
		b.Opened = append(b.Opened, g)
	}
}
