package collect

import (
	"context"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/transport"
)

// PhaseRecovery is the phase in which gaps are worked off.
const PhaseRecovery Phase = "recovery"

// The size of a page of gaps. A page is transport and never a stop: budget,
// circuit and pacing live on between pages.
const (
	gapPageBytes = 1 << 20
	gapPageRows  = 500
)

// recover tries each gap that is pending and due once, in fair order. It stops
// when the run must stop; when the provider's pressure stops it, the gaps stay
// and the stop says so, and the caller continues with other work.
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
	var details []string // nil is all
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

// recoverWhileItPays recovers, and where the provider's pressure stops that or
// refuses details, again once it may have passed: until the run's time is over,
// or so many passes have brought nothing. Again says that pressure has kept
// details from being fetched at all; a few that are refused are no reason to stay.
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
				return nil // the gaps say why they are owed
			}
			continue
		}
		if end = r.outlast(ctx, end); end != nil {
			return end
		}
	}
}

// recoverPage works one page of gaps off, stream by stream. What nothing can be
// asked for, such as a bad entry of a list that an operator released, goes back
// into quarantine as it was.
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

// giveBack returns gaps that were served and that nobody got to.
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

// recoverGaps fetches the details of one stream's gaps and commits what came of
// it. A gap is recovered only when its detail was written; one that was not
// sent for is given back as it was.
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
		if seen { // otherwise there are no facts to keep, and none are made up
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

// settleGaps turns what was missed again into what the store is to know: what
// was not sent for is given back; what failed too often and for too long by
// itself is quarantined.
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
			g.Attempts = 0 // this run is counted already, and the wait keeps it from being served again
		}
		tries := old.Attempts + g.Attempts
		g.waitFor(tries, g.LastSeen)
		if givenUp(g.Reason, tries, g.LastSeen.Sub(old.FirstSeen)) {
			g.Status = GapTerminal
		}
		b.Opened = append(b.Opened, g)
	}
}
