package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/reason"
)

// slice writes one page and the details of its items, and commits them with
// the lane's new position. Before is the highest watermark of the pages before.
// What could not be fetched becomes gaps, and the slice is committed all the
// same; only then does the run stop.
func (r *run) slice(ctx context.Context, s connector.Stream, page connector.Page, next *Lane, before string) *stop {
	fault.Point(fault.PageListed)
	keys := make([]string, len(page.Items))
	for i, it := range page.Items {
		keys[i] = it.Key
	}
	known, err := r.o.Store.Known(ctx, r.o.Connection, s.Name, keys)
	if err != nil {
		return r.broken(ctx, err)
	}
	b := r.newBatch(s.Name)
	var todo []task
	var records []Record
	for _, it := range page.Items {
		b.Progress.Items++
		fp := fingerprint(it)
		old, seen := known[it.Key]
		same := seen && old.Fingerprint == fp
		if same && !old.Owed {
			b.Progress.Unchanged++
			continue
		}
		if !same {
			records = append(records, Record{Key: it.Key, Data: it.Data})
		}
		b.items[it.Key] = KnownItem{Key: it.Key, Fingerprint: fp, Children: old.Children}
		b.order = append(b.order, it.Key)
		if s.DetailStream != "" {
			todo = append(todo, task{item: it, from: s.Name, to: s.DetailStream, children: readChildren(old.Children), known: seen})
		}
	}
	if err := b.write(ctx, s.Name, records); err != nil {
		return r.broken(ctx, err)
	}
	var end *ending
	if r.suspended != nil {
		r.deferRest(b, todo, r.suspended, before, time.Now())
	} else if end = r.details(ctx, b, todo, !next.Walking); end != nil && end.abort {
		return end.stop
	}
	b.unread(page, s.Name, next.Pages, time.Now())
	b.Progress.Pages++
	b.Lane = next
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
		// Pressure is no cap: the walk goes on, and the details of what it
		// finds are owed.
		r.suspended = end.stop
		return nil
	}
	return end.stop
}

// batch gathers what one commit makes durable.
type batch struct {
	Commit
	run   *run
	items map[string]KnownItem
	order []string // keys of the items that the commit writes
	dirty bool     // records were written to the sink
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

// hydrated takes a detail that was fetched.
func (b *batch) hydrated(ctx context.Context, o outcome) error {
	if err := b.writeChildren(ctx, &o); err != nil {
		return err
	}
	if it, ok := b.items[o.item.Key]; ok {
		it.Children = o.children.encode()
		if it.Owed {
			it.Owed = false
			b.order = append(b.order, o.item.Key)
		}
		b.items[o.item.Key] = it
	}
	if o.known {
		b.Recovered = append(b.Recovered, GapKey{Stream: o.to, Key: o.item.Key})
	}
	b.Progress.Details++
	return nil
}

// missed takes a detail that could not be fetched: from now on it is owed.
func (b *batch) missed(o outcome, now time.Time) {
	g := Gap{
		GapKey: GapKey{Stream: o.to, Key: o.item.Key}, Connection: b.run.o.Connection,
		Parent: o.from, Locator: o.item.Data, Status: GapPending, FirstSeen: now, LastSeen: now,
	}
	if f, ok := errors.AsType[*connector.Failure](o.err); ok {
		g.Reason, g.Attempts, g.RetryAt = f.Reason, int64(f.Attempts), f.RetryAt
		if f.Stopped != reason.None {
			g.Reason = f.Stopped
		} else if f.Attempts == 0 {
			// Nothing forbade it, and still nothing was sent: that counts as an
			// attempt, or recovery would serve the gap again and again. A request
			// that cannot be made will not be possible later either.
			g.Attempts = 1
			if f.Reason == reason.InvalidResponse {
				g.Status = GapTerminal
			}
		}
		g.LastError = f.Reason.String()
		if f.Status != 0 {
			g.LastError = fmt.Sprintf("%d %s", f.Status, f.Reason)
		}
	} else if r, ok := errors.AsType[*reason.Refusal](o.err); ok {
		g.Reason, g.RetryAt = r.Reason, r.RetryAt
	} else {
		g.Reason = reason.Internal
	}
	b.Opened = append(b.Opened, g)
	b.Progress.GapsOpened++
}

// commit makes the batch durable: the sink first, then everything else in one
// transaction of the store.
func (b *batch) commit(ctx context.Context) error {
	slices.Sort(b.order)
	for _, key := range slices.Compact(b.order) {
		b.Items = append(b.Items, b.items[key])
	}
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
	return b.run.commit(ctx, b.Commit)
}

func (b *batch) deferred() map[reason.Reason]int64 {
	n := map[reason.Reason]int64{}
	for _, g := range b.Opened {
		n[g.Reason]++
	}
	return n
}
