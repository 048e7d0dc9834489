package collect

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
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
// the commit may wait for it.
func (r *run) slice(ctx context.Context, s connector.Stream, page connector.Page, next *Lane, since string, more bool) *stop {
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
	if r.suspended != nil {
		if err := r.deferRest(ctx, b, todo, r.suspended, backlogSince(s, since, todo), time.Now()); err != nil {
			return r.broken(ctx, err)
		}
	} else if end = r.details(ctx, b, todo, !next.Walking); end != nil && end.abort {
		return end.stop
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
	if _, pressed := reason.AsPressure(end.why); pressed && end.err == nil {
		// Pressure is not a cap: the walk goes on, and the details of what it
		// finds are owed. Its requests may wait for the circuit anew.
		r.suspended = end.stop
		r.caller.begin()
		return nil
	}
	return end.stop
}

// batch gathers what one commit makes durable.
type batch struct {
	Commit
	run   *run
	items map[string]KnownItem
	order []string // keys of those in items that the commit writes
	dirty bool     // records were written to the sink
	// pending counts the outcomes of details that the next commit makes durable.
	pending int
	// settle turns what was missed into what the commit says of it; nil leaves it.
	settle func()
	// owing counts the items that joined a backlog.
	owing int64
	// keys are those of the items of pages that wait for their commit, which are
	// so many; size is the bytes of their records.
	keys    keySet
	waiting int
	size    int
}

func (r *run) newBatch(stream string) *batch {
	return &batch{run: r, Commit: Commit{Stream: stream}, items: map[string]KnownItem{}}
}

func (b *batch) write(ctx context.Context, stream string, records []Record) error {
	if len(records) == 0 {
		return nil
	}
	b.dirty = true
	b.Progress.Records += int64(len(records))
	err := b.run.o.Sink.Write(ctx, stream, records)
	fault.Point(fault.SinkWritten)
	return err
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

// commit makes the batch durable: the sink first, then everything else in one
// transaction of the store.
func (b *batch) commit(ctx context.Context) error {
	defer b.run.live.committing()()
	began := time.Now()
	if b.settle != nil {
		b.settle()
	}
	for _, key := range b.order {
		b.Items = append(b.Items, b.items[key])
	}
	b.Items = lastOfEach(b.Items)
	if b.dirty {
		position, err := b.run.o.Sink.Sync(ctx)
		if err != nil {
			return err
		}
		fault.Point(fault.SinkSynced)
		b.Sink = position
		if t, ok := b.run.o.Sink.(Transactional); ok {
			b.Within = t.Pending()
		}
	}
	for why, n := range b.deferred() {
		b.run.emit(event.Event{Type: event.Deferral, Stream: b.Stream, Reason: why, Count: n})
	}
	if err := b.run.commit(ctx, b.Commit); err != nil {
		return err
	}
	b.run.saves.cost = b.run.saves.last.Sub(began)
	b.Commit = Commit{Stream: b.Stream}
	b.order, b.dirty, b.pending, b.owing = nil, false, 0, 0
	return nil
}

// lastOfEach sorts items by key; of those with one key the last stays.
func lastOfEach(items []KnownItem) []KnownItem {
	byKey := func(a, b KnownItem) int { return strings.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(items, byKey) {
		slices.SortStableFunc(items, byKey)
	}
	kept := items[:0]
	for i, it := range items {
		if i+1 == len(items) || items[i+1].Key != it.Key {
			kept = append(kept, it)
		}
	}
	return kept
}

func (b *batch) deferred() map[reason.Reason]int64 {
	n := map[reason.Reason]int64{}
	for _, g := range b.Opened {
		switch {
		case !g.Backlog:
			n[g.Reason]++
		case b.owing > 0: // otherwise it stands as it was
			n[g.Reason] += b.owing
		}
	}
	return n
}
