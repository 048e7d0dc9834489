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

// backlogAfter is how many details of one stream a run may owe as gaps of their
// own. What comes after is one backlog gap: the items are marked as owed, and
// the gap says from which watermark on to look for them.
const backlogAfter = 1000

// backlogSince is the watermark from which on a list shows the items of a page
// again: the one that the page itself was asked for with. Where the list is
// known to hold the items of a watermark that it is asked for, it is the lowest
// of theirs.
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

// deferRest puts the details of a whole page off, unsent, while pressure keeps
// details from being fetched at all. A list since the given watermark shows
// every item of the page.
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
			continue // the gap stands already
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

// joined is where the walk of a backlog begins to which more is added: at the
// earlier of the two watermarks, and at its first page, since what is added may
// stand before the page that was reached.
func joined(old, g Gap) string {
	switch {
	case old.Status == GapRecovered:
		return g.Since
	case old.Parent != g.Parent:
		return "" // the watermarks are not of one list
	}
	return lower(old.Since, g.Since)
}

// recoverBacklog lists what changed from the gap's watermark on and fetches the
// details that are owed. Where it stops, the gap remembers its page. It is done
// when nothing is owed: what a list since the watermark did not show is looked
// for in the whole list, and what that does not show becomes gaps by key.
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
			// The list runs in a circle: its end, and so what is owed there, was
			// never seen.
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
		case end != nil: // from this page on, another time
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

// closeBacklog ends a backlog. What is owed still was in no list: it is gone, or
// the list does not show all there is. Each becomes a gap by its key, which
// recovery asks for and which says what came of it.
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

// unlisted is the error of a detail. A connector that needs the list's record,
// which an item that is listed no longer does not have, fails for that item
// only.
func unlisted(o outcome) error {
	_, refused := errors.AsType[*reason.Refusal](o.err)
	_, failed := errors.AsType[*connector.Failure](o.err)
	if len(o.item.Data) > 0 || refused || failed {
		return o.err
	}
	return &connector.Failure{Reason: reason.NotFound, Class: reason.Unknown, Method: http.MethodGet, Attempts: 1, Err: o.err}
}

// owedOf picks the items of a page whose details a backlog owes.
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

// settleBacklog sorts what was missed: what failed by itself has a gap of its own
// now and is no longer part of the backlog; what was not sent for still is.
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

// hidden reports whether a list since the watermark left out an item of that
// very watermark, which has not changed meanwhile.
func (b *batch) hidden(todo []task, since string) bool {
	for _, t := range todo {
		if t.item.Watermark == since && b.items[t.item.Key].Fingerprint == fingerprint(t.item) {
			return true
		}
	}
	return false
}
