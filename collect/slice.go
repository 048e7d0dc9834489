package collect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/reason"
)

// slice writes one page and the details of its items, and commits them. An item
// becomes known with its detail, or with the gap that says that it is owed: on a
// page of many details that is long before the page is complete. Only the last
// commit moves the lane, so that a run that was killed asks for the page again
// and finds the rest. Since is the watermark that the page was asked for with. What
// could not be fetched becomes gaps, and the slice is completed all the same;
// only then does the run stop. More says that the next page is on its way: then
// the commit may wait for it. AskAhead asks for it while the last details are under way,
// and says when it is there.
func (r *execution) slice(ctx context.Context, s connector.Stream, page connector.Page, next *Lane, since string, more bool, askAhead func() <-chan struct{}) *stop {
	fault.Point(fault.PageListed)
	keys := make([]string, len(page.Items))
	for i, it := range page.Items {
		keys[i] = it.Key
	}
	b, err := r.gather(ctx, s.Name, keys)
	if err != nil {
		return r.broken(ctx, err)
	}
	known, err := r.known(ctx, s.Name, keys)
	if err != nil {
		return r.broken(ctx, err)
	}
	var todo []task
	var records []Record
	if s.DetailStream == "" {
		b.Items, records = slices.Grow(b.Items, len(page.Items)), make([]Record, 0, len(page.Items))
	}
	for _, it := range page.Items {
		b.Progress.Items++
		fp := fingerprint(it)
		old, seen := known[it.Key]
		same := seen && old.Fingerprint == fp
		if same && !old.Owed {
			b.Progress.Unchanged++
			continue
		}
		item := KnownItem{Key: it.Key, Fingerprint: fp, Children: old.Children}
		if s.DetailStream != "" {
			b.items[it.Key] = item
			todo = append(todo, task{item: it, from: s.Name, to: s.DetailStream, children: readChildren(old.Children), known: seen, changed: !same})
			continue
		}
		b.Items = append(b.Items, item)
		if !same {
			records = append(records, Record{Key: it.Key, Data: it.Data})
		}
	}
	if err := b.write(ctx, s.Name, records); err != nil {
		return r.broken(ctx, err)
	}
	var end *ending
	listLeft := next.Walking || r.listsLeft > 0
	if why := r.putOff(s.DetailStream, listLeft); why != nil {
		if err := r.deferRest(ctx, b, todo, why, backlogSince(s, since, todo), time.Now()); err != nil {
			return r.broken(ctx, err)
		}
	} else {
		details := ctx
		if listLeft {
			var over func()
			details, over = r.mayStandBack(ctx)
			defer over()
		}
		if end = r.details(details, b, todo, !next.Walking, askAhead); end != nil && end.abort {
			return end.stop
		}
		if end != nil && end.pressed() && r.standingBack(details) {
			r.goesFirst(s.DetailStream)
			end = nil
		}
	}
	b.unread(page, s.Name, next.Pages, time.Now())
	b.Progress.Pages++
	b.Lane = next
	if more && b.mayWait(time.Now(), records) {
		r.gathered = b
		return nil
	}
	if err := b.commit(ctx); err != nil {
		return r.broken(ctx, err)
	}
	if !next.Walking {
		fault.Point(fault.WalkCompleted)
	}
	if end == nil {
		return nil
	}
	if end.pressed() {
		// Pressure is not a cap: the walk goes on, and the details of what it
		// finds are owed. Its requests may wait for the circuit again.
		r.suspended = end.stop
		r.caller.begin()
		return nil
	}
	return end.stop
}

// listed writes the list record of an item whose detail is settled one way or
// the other: from now on the item is known.
func (b *batch) listed(ctx context.Context, t task) error {
	b.pending++
	if !t.changed {
		return nil
	}
	return b.write(ctx, t.from, []Record{{Key: t.item.Key, Data: t.item.Data}})
}

// hydrated takes a detail that was fetched.
func (b *batch) hydrated(ctx context.Context, o outcome) error {
	if err := b.listed(ctx, o.task); err != nil {
		return err
	}
	if err := b.writeChildren(ctx, &o); err != nil {
		return err
	}
	if it, ok := b.items[o.item.Key]; ok {
		it.Children = o.children.encode()
		it.Owed = false
		b.items[o.item.Key] = it
		b.order = append(b.order, o.item.Key)
	}
	if o.known {
		b.Recovered = append(b.Recovered, GapKey{Stream: o.to, Key: o.item.Key})
	}
	b.Progress.Details++
	return nil
}

// missed takes a detail that could not be fetched: from now on it is owed.
func (b *batch) missed(ctx context.Context, o outcome, now time.Time) error {
	if err := b.listed(ctx, o.task); err != nil {
		return err
	}
	if _, ok := b.items[o.item.Key]; ok {
		b.order = append(b.order, o.item.Key)
	}
	b.Opened = append(b.Opened, gapOf(b.run.o.Connection, o, now))
	b.Progress.GapsOpened++
	return nil
}

// unread makes a gap of each entry of a page that is not an item. It is quarantined
// from the start: what the list holds of it is all there is, and asking again
// gives the same. Its stream is the list's own, so that it is never the gap of
// an item's detail, and its key does not depend on the page: the next walk finds
// the same entry under the same key, wherever it stands by then.
func (b *batch) unread(page connector.Page, stream string, number int64, now time.Time) {
	for _, u := range page.Unread {
		place := fmt.Sprintf("page %d, record %d", number, u.Position)
		key := place
		if u.ID != "" {
			key = "record " + u.ID
		}
		b.Opened = append(b.Opened, Gap{
			GapKey: GapKey{Stream: stream, Key: key}, Connection: b.run.o.Connection, Parent: stream,
			Reason: reason.InvalidResponse, Status: GapTerminal, Attempts: 1,
			FirstSeen: now, LastSeen: now, LastError: place + ": " + u.Problem,
		})
	}
}

// bad reports whether the gap is an entry of a list that is not an item.
func (g Gap) bad() bool { return g.Stream == g.Parent && !g.Backlog }

// mended closes the gaps of entries that a walk over the whole list, begun at
// the instant given, did not meet any more.
func (r *execution) mended(ctx context.Context, stream string, began time.Time) error {
	c := Commit{}
	f := GapFilter{Connection: r.o.Connection, Stream: stream, Limit: gapPageRows}
	for {
		gaps, err := r.o.Store.Gaps(ctx, f)
		if err != nil {
			return err
		}
		for _, g := range gaps {
			if g.bad() && g.Status != GapRecovered && g.LastSeen.Before(began) {
				c.Recovered = append(c.Recovered, g.GapKey)
			}
			f.AfterID = g.ID
		}
		if len(gaps) < gapPageRows {
			break
		}
	}
	if len(c.Recovered) == 0 {
		return nil
	}
	return r.commit(ctx, c)
}
