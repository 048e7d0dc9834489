package collect

import (
	"context"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/reason"
)

// backlogAfter is how many details of one stream a run may owe as gaps of their
// own. What comes after is one backlog gap: the items are marked as owed, and
// the gap says from which watermark on to look for them.
const backlogAfter = 1000

// deferRest puts the details of a whole page off, unsent, while pressure keeps
// details from being fetched at all. High is the watermark before the page:
// listing what changed at it or later finds every item of the page.
func (r *run) deferRest(ctx context.Context, b *batch, todo []task, why *stop, high string, now time.Time) error {
	for _, t := range todo {
		if r.gapsOf[t.to] < backlogAfter {
			r.gapsOf[t.to]++
			if err := b.missed(ctx, outcome{task: t, err: &reason.Refusal{Reason: why.why, RetryAt: why.retryAt}}, now); err != nil {
				return err
			}
			continue
		}
		if err := b.listed(ctx, t); err != nil {
			return err
		}
		b.order = append(b.order, t.item.Key)
		it := b.items[t.item.Key]
		it.Owed = true
		b.items[t.item.Key] = it
		b.owe(t, why, high, now)
	}
	return nil
}

// owe adds one item to the stream's backlog gap.
func (b *batch) owe(t task, why *stop, high string, now time.Time) {
	b.Progress.GapsOpened++
	for _, g := range b.Opened {
		if g.Backlog && g.Stream == t.to {
			return
		}
	}
	b.Opened = append(b.Opened, Gap{
		GapKey: GapKey{Stream: t.to}, Connection: b.run.o.Connection, Parent: t.from,
		Backlog: true, Since: high, Reason: why.why, RetryAt: why.retryAt, Status: GapPending,
		FirstSeen: now, LastSeen: now,
	})
}

// recoverBacklog lists what changed from the gap's watermark on and fetches the
// details that are owed. Where it stops, the gap remembers its page.
func (r *run) recoverBacklog(ctx context.Context, s connector.Stream, g Gap) *stop {
	keep := func(why *stop) *stop {
		return r.giveBack(ctx, []connector.Stream{s}, map[string][]Gap{s.Name: {g}}, why)
	}
	trail, restarted := Trail{}, false
	for {
		if stop := r.halted(ctx); stop != nil {
			return keep(stop)
		}
		page, err := r.o.Connector.List(ctx, r.caller, connector.ListRequest{Stream: s.Name, Cursor: g.Cursor, Since: g.Since})
		if err != nil && g.Cursor != "" && !restarted && cursorRefused(err) {
			g.Cursor, trail, restarted = "", Trail{}, true
			continue
		}
		if err != nil {
			return keep(r.refusedFor(ctx, err))
		}
		fault.Point(fault.BacklogListed)
		done := page.Next == ""
		if !done && (page.Next == g.Cursor || trail.Step(page.Next)) {
			// The list runs in a circle: its end, and so what is owed there, was
			// never seen.
			return keep(r.cursorRepeats())
		}
		b, todo, err := r.owedOf(ctx, s, page)
		if err != nil {
			return r.broken(ctx, err)
		}
		b.settle = b.settleBacklog
		end := r.details(ctx, b, todo, done)
		if end != nil && end.abort {
			return end.stop
		}
		switch {
		case end != nil:
			g.LastSeen, g.Attempts = time.Now(), 0
			b.Opened = append(b.Opened, g) // from this page on, another time
			b.Opened[len(b.Opened)-1].Status = GapPending
		case done:
			b.Recovered = append(b.Recovered, g.GapKey)
		default:
			g.Cursor = page.Next
			g.Attempts, g.Status = 0, GapLeased
			b.Opened = append(b.Opened, g)
		}
		if err := b.commit(ctx); err != nil {
			return r.broken(ctx, err)
		}
		fault.Point(fault.BacklogCommitted)
		if end != nil {
			return end.stop
		}
		if done {
			return nil
		}
	}
}

// owedOf picks the items of a page whose details a backlog owes.
func (r *run) owedOf(ctx context.Context, s connector.Stream, page connector.Page) (*batch, []task, error) {
	keys := make([]string, len(page.Items))
	for i, it := range page.Items {
		keys[i] = it.Key
	}
	known, err := r.o.Store.Known(ctx, r.o.Connection, s.Name, keys)
	if err != nil {
		return nil, nil, err
	}
	b := r.newBatch(s.Name)
	var todo []task
	for _, it := range page.Items {
		if old, seen := known[it.Key]; seen && old.Owed {
			b.items[it.Key] = old
			todo = append(todo, task{item: it, from: s.Name, to: s.DetailStream, children: readChildren(old.Children)})
		}
	}
	return b, todo, nil
}

// settleBacklog sorts what was missed: what failed by itself has a gap of its own
// now and is no longer part of the backlog; what was not sent for still is.
func (b *batch) settleBacklog() {
	var opened []Gap
	for _, m := range b.Opened {
		if !m.Backlog && m.Attempts == 0 && m.Status != GapTerminal {
			continue
		}
		opened = append(opened, m)
		if it, ok := b.items[m.Key]; ok && !m.Backlog {
			it.Owed = false
			b.items[m.Key] = it
		}
	}
	b.Opened, b.Progress.GapsOpened = opened, 0
	b.Progress.GapsRecovered = b.Progress.Details
}
