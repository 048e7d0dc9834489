package collect

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/reason"
)

// backlogAfter is how many details of one stream get gaps of their own in a run. Further
// ones share one backlog gap: their items are marked as owed, and the gap holds the
// watermark from which on the list shows them.
const backlogAfter = 1000

// backlogSince returns the watermark from which on the list shows the items of a page
// again. That is the watermark with which the page was requested or, if the list is
// ascending and inclusive, the lowest watermark of the items.
func backlogSince(s connector.Stream, asked string, todo []task) string {
	if !s.Ascending || !s.Inclusive || len(todo) == 0 {
		return asked
	}
	low := todo[0].item.Watermark
	for _, t := range todo {
		low = lower(low, t.item.Watermark)
	}
	return higher(asked, low)
}

// deferRest records the details of a whole page as owed, without requesting them. A list
// since the given watermark shows every item of the page.
func (r *execution) deferRest(ctx context.Context, b *batch, todo []task, why *stop, since string, now time.Time) error {
	for _, t := range todo {
		if r.gapsOf[t.to] < r.o.backlogAfter {
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
		b.Progress.GapsOpened++
		if b.owing++; b.owing > 1 {
			continue // the batch has the backlog gap already
		}
		g := Gap{
			GapKey: GapKey{Stream: t.to}, Connection: r.o.Connection, Parent: t.from,
			Backlog: true, Since: since, Reason: why.why, RetryAt: why.retryAt, Status: GapPending,
			FirstSeen: now, LastSeen: now,
		}
		old, err := r.o.Store.Gaps(ctx, GapFilter{Connection: r.o.Connection, Stream: t.to, Backlog: true, Limit: 1})
		if err != nil {
			return err
		}
		if len(old) > 0 {
			g.Since = joined(old[0], g)
		}
		b.Opened = append(b.Opened, g)
	}
	return nil
}

// joined returns the watermark of a backlog gap to which g is added: the earlier of the
// two. The walk starts again at the first page, since the added items may come before the
// page it had reached.
func joined(old, g Gap) string {
	switch {
	case old.Status == GapRecovered:
		return g.Since
	case old.Parent != g.Parent:
		return "" // the watermarks belong to different lists
	}
	return lower(old.Since, g.Since)
}

// recoverBacklog lists the changes since the gap's watermark and fetches the details that
// are owed. If it has to stop, the gap keeps its page. Items that the list since the
// watermark does not show are looked for in the whole list, and items that this does not
// show either become gaps of their own.
func (r *execution) recoverBacklog(ctx context.Context, s connector.Stream, g Gap) *stop {
	keep := func(why *stop) *stop {
		return r.giveBack(ctx, []connector.Stream{s}, map[string][]Gap{s.Name: {g}}, why)
	}
	trail, restarted := connector.Trail{}, false
	narrow, wrong := "", false // a list since narrow should have shown more
	for walked := false; ; {
		if stop := r.halted(ctx); stop != nil {
			return keep(stop)
		}
		left, err := r.o.Store.Owed(ctx, r.o.Connection, s.Name, 1)
		if err != nil {
			return r.broken(ctx, err)
		}
		if len(left) == 0 || walked {
			if err := r.closeBacklog(ctx, s, g); err != nil {
				return r.broken(ctx, err)
			}
			if wrong {
				return r.contradicted(errNotInclusive)
			}
			return nil
		}
		page, err := r.list(ctx, connector.ListRequest{Stream: s.Name, Cursor: g.Cursor, Since: g.Since})
		if g.Cursor != "" && !restarted && cursorRefused(err) {
			g.Cursor, trail, restarted = "", connector.Trail{}, true
			continue
		}
		if err != nil {
			return keep(r.unlisted(ctx, &Lane{Kind: Steady}, err))
		}
		fault.Point(fault.BacklogListed)
		done := page.Next == ""
		if !done && (page.Next == g.Cursor || trail.Step(page.Next)) {
			// The cursors repeat, so the end of the list is never reached.
			return keep(r.cursorRepeats())
		}
		b, todo, err := r.owedOf(ctx, s, page)
		if err != nil {
			return r.broken(ctx, err)
		}
		wrong = wrong || narrow != "" && b.hidden(todo, narrow)
		b.settle = b.settleBacklog
		end := r.details(ctx, b, todo, done, nil)
		if end != nil && end.abort {
			return end.stop
		}
		g.Attempts, g.Status = 0, GapLeased
		switch {
		case end != nil: // a later run continues at this page
			g.LastSeen, g.Status = time.Now(), GapPending
		case !done:
			g.Cursor = page.Next
		case g.Since != "":
			narrow, g.Since, g.Cursor, trail = g.Since, "", "", connector.Trail{}
			if !s.Ascending || !s.Inclusive {
				narrow = ""
			}
		default:
			g.Cursor, walked = "", true
		}
		b.Opened = append(b.Opened, g)
		if err := b.commit(ctx); err != nil {
			return r.broken(ctx, err)
		}
		fault.Point(fault.BacklogCommitted)
		if end != nil {
			return end.stop
		}
	}
}

// closeBacklog closes a backlog gap. Items that are still owed were in no list: they were
// deleted, or the list is incomplete. Each gets a gap of its own, and recovery requests
// its detail by key.
func (r *execution) closeBacklog(ctx context.Context, s connector.Stream, g Gap) error {
	for {
		keys, err := r.o.Store.Owed(ctx, r.o.Connection, s.Name, gapPageRows)
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			return r.commit(ctx, Commit{Recovered: []GapKey{g.GapKey}})
		}
		known, err := r.o.Store.Known(ctx, r.o.Connection, s.Name, keys)
		if err != nil {
			return err
		}
		now, c := time.Now(), Commit{Stream: s.Name}
		for _, key := range keys {
			it := known[key]
			it.Owed = false
			c.Items = append(c.Items, it)
			c.Opened = append(c.Opened, Gap{
				GapKey: GapKey{Stream: g.Stream, Key: key}, Connection: r.o.Connection, Parent: s.Name,
				Reason: reason.NotFound, LastError: "not_listed", Status: GapPending, FirstSeen: now, LastSeen: now,
			})
		}
		if err := r.commit(ctx, c); err != nil {
			return err
		}
	}
}

// unlisted returns the error of a detail. If the connector failed because it has no list
// record of the item, which is no longer listed, the error is a not_found for that item.
func unlisted(o outcome) error {
	_, refused := errors.AsType[*reason.Refusal](o.err)
	_, failed := errors.AsType[*connector.Failure](o.err)
	if len(o.item.Data) > 0 || refused || failed {
		return o.err
	}
	return &connector.Failure{Reason: reason.NotFound, Class: reason.Unknown, Method: http.MethodGet, Attempts: 1, Err: o.err}
}

// owedOf returns a batch and the tasks for the items of a page that are marked as owed.
func (r *execution) owedOf(ctx context.Context, s connector.Stream, page connector.Page) (*batch, []task, error) {
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

// settleBacklog decides what becomes of the details of a backlog that were not fetched.
// One that failed by itself gets its own gap and leaves the backlog. One for which no
// request was sent stays in the backlog.
func (b *batch) settleBacklog() {
	var opened []Gap
	for _, m := range b.Opened {
		if !m.Backlog && m.Attempts == 0 {
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

// hidden reports whether a list since the given watermark left out an item that has exactly
// this watermark and has not changed since.
func (b *batch) hidden(todo []task, since string) bool {
	for _, t := range todo {
		if t.item.Watermark == since && b.items[t.item.Key].Fingerprint == fingerprint(t.item) {
			return true
		}
	}
	return false
}
