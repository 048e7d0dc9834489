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

// slice writes one page and the details of its items, and commits them. A page with
// many details is committed in parts: an item becomes known with its detail, or with
// the gap that records that the detail is owed. Only the last commit moves the lane,
// so a run that was killed requests the page again and continues with the rest.
// Details that fail become gaps, and the run stops, if it has to, only after the slice
// is complete.
//
// since is the watermark with which the page was requested. more reports that the next
// page has been requested, so that the commit may wait for it. askAhead requests the
// next page while the last details are in flight, and returns a channel that is closed
// when it has arrived.
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
		// Pressure does not end the walk: it continues, and the details of the items
		// that it finds are owed. Its requests may wait for the circuit again.
		r.suspended = end.stop
		r.caller.begin()
		return nil
	}
	return end.stop
}

// listed writes the list record of an item once its detail was fetched or became a
// gap. With the next commit the item is known.
func (b *batch) listed(ctx context.Context, t task) error {
	b.pending++
	if !t.changed {
		return nil
	}
	return b.write(ctx, t.from, []Record{{Key: t.item.Key, Data: t.item.Data}})
}

// hydrated adds a fetched detail to the batch.
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

// missed adds a gap for a detail that could not be fetched.
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

// unread adds a gap for each entry of a page that could not be read as an item. The
// gap is quarantined at once, since another request would return the same entry. Its
// stream is the list's own, which no gap of a detail has. If the entry has an id, its
// key does not depend on the page, so that the next walk finds the same gap.
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

// bad reports whether the gap stands for an entry of a list that could not be read.
func (g Gap) bad() bool { return g.Stream == g.Parent && !g.Backlog }

// mended closes the gaps of unreadable entries that the walk over the whole list that
// began at the given time no longer found.
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
