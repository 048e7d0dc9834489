package collect

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/reason"
)

// batch gathers what one commit makes durable.
type batch struct {
	Commit
	run   *execution
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

func (r *execution) newBatch(stream string) *batch {
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

// The bounds of what waits for its commit where pages come faster than they can be
// committed one by one.
const (
	// maxGather is how long after the last commit the next one begins, at most.
	maxGather = 50 * time.Millisecond
	// maxGathered and maxGatheredBytes are how many items, and bytes of their
	// records, wait at most.
	maxGathered      = 10_000
	maxGatheredBytes = 4 << 20
)

// pages is the instant until which whole pages may wait for their commit: a page
// that takes longer to come has a commit of its own.
func (s saves) pages() time.Time { return s.last.Add(min(commitShare*s.cost, maxGather)) }

// gather gives the batch for a page with those keys: the one that waits, or a new
// one where none does, or where that one may have an item of the page, which the
// store does not know yet.
func (r *execution) gather(ctx context.Context, stream string, keys []string) (*batch, error) {
	if b := r.gathered; b != nil && slices.ContainsFunc(keys, b.keys.has) {
		if err := r.commitGathered(ctx); err != nil {
			return nil, err
		}
	}
	b := r.gathered
	// What fails from here on leaves half a page in the batch, which is not a slice.
	r.gathered = nil
	if b == nil {
		b = r.newBatch(stream)
	}
	return b, nil
}

// mayWait reports whether the batch may wait for another page after the one that was
// put into it with those records.
func (b *batch) mayWait(now time.Time, records []Record) bool {
	for i := range records {
		b.size += len(records[i].Data)
	}
	if !now.Before(b.run.saves.pages()) || len(b.Items) >= maxGathered || b.size >= maxGatheredBytes {
		return false
	}
	for i := range b.Items[b.waiting:] {
		b.keys.add(b.Items[b.waiting+i].Key)
	}
	b.waiting = len(b.Items)
	return true
}

// commitGathered commits the pages that wait, if any do.
func (r *execution) commitGathered(ctx context.Context) error {
	b := r.gathered
	r.gathered = nil
	if b == nil {
		return nil
	}
	return b.commit(ctx)
}

// settle commits the pages that wait, unless the next one comes before they are due.
func (r *execution) settle(ctx context.Context, coming *ahead) error {
	if r.gathered == nil {
		return nil
	}
	coming.wanted()
	due := time.NewTimer(time.Until(r.saves.pages()))
	defer due.Stop()
	select {
	case <-coming.done:
		return nil
	case <-due.C:
		return r.commitGathered(ctx)
	}
}

// recordEvery is how long a run commits nothing at most: counters, events and
// rate on record are no older.
const recordEvery = 10 * time.Second

// keepRecord makes durable what the run has done, where no slice was committed
// for a while: it waits for the provider, or for one long answer. It ends with
// the context.
func (r *execution) keepRecord(ctx context.Context) *sync.WaitGroup {
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(recordEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				// One that fails is made up for by the next, or by the run's end.
				_ = r.record(ctx, now)
			}
		}
	})
	return &wg
}

// record commits what the run has done so far, without a slice.
func (r *execution) record(ctx context.Context, now time.Time) error {
	r.committing.Lock()
	defer r.committing.Unlock()
	if now.Sub(r.committed) < recordEvery {
		return nil
	}
	r.live.mu.Lock()
	total := r.live.with(Progress{})
	r.live.mu.Unlock()
	now = now.Round(0)
	return r.put(ctx, Commit{At: now, Progress: total, Events: r.drain(), Pacing: r.learned(now, false)})
}

// put hands a commit to the store, with committing held. Where that fails its
// events are kept for the next one.
func (r *execution) put(ctx context.Context, c Commit) error {
	err := r.o.Store.Commit(ctx, r.lease, c)
	if err != nil {
		r.mu.Lock()
		r.pending = append(c.Events, r.pending...)
		r.mu.Unlock()
		return err
	}
	r.committed = time.Now()
	return nil
}

// commit makes a slice durable and counts it.
func (r *execution) commit(ctx context.Context, c Commit) error {
	defer r.live.committing()()
	r.committing.Lock()
	defer r.committing.Unlock()
	r.live.mu.Lock()
	total := r.live.with(c.Progress)
	r.live.mu.Unlock()
	c.At = time.Now().Round(0)
	c.Progress = total
	c.Events = r.drain()
	c.Pacing = r.learned(c.At, false)
	if stored, ok := r.stored[c.Stream]; ok {
		for _, it := range c.Items { // before: a commit that failed may have happened
			stored.add(it.Key)
		}
	}
	fault.Point(fault.SliceCommitting)
	began := time.Now()
	if err := r.put(ctx, c); err != nil {
		return err
	}
	fault.Point(fault.SliceCommitted)
	now := time.Now()
	r.saves = saves{last: now, cost: now.Sub(began), age: now.Sub(r.started)}
	r.live.mu.Lock()
	r.live.committed = total
	r.live.mu.Unlock()
	if sink, ok := r.o.Sink.(Informed); ok && c.Sink != nil {
		return sink.Committed(ctx, c.Sink)
	}
	return nil
}

// saves says when the outcomes of an unfinished page are committed: at once
// when they come slowly, otherwise as often as costs little, and at least once
// a second. The zero value is due.
type saves struct {
	last time.Time     // when the newest commit ended
	cost time.Duration // how long it took
	age  time.Duration // how old the run was then
}

// keySet remembers keys approximately, in four bytes a key: it may take a key for
// one that it was given, about once in 100,000 times, and never misses one. The zero
// value is empty. Not safe for concurrent use.
type keySet struct {
	layers []layer
	seed   maphash.Seed
}

// layer is a Bloom filter.
type layer struct {
	bits []uint64 // a power of two
	room int      // how many keys more it is meant for
}

const (
	// firstLayer is how many keys the first layer is for; each has room for four
	// times as many as the one before.
	firstLayer = 4096
	// maxLayers bounds the memory to 6 MB. Beyond a million keys and a half the set
	// says "perhaps" more and more often.
	maxLayers = 5
	// bitsPerKey and probes are the size of a layer and how often it is looked into.
	bitsPerKey = 32
	probes     = 8
)

func (s *keySet) add(key string) {
	if s.layers == nil {
		s.seed = maphash.MakeSeed()
	}
	if n := len(s.layers); n == 0 || s.layers[n-1].room <= 0 && n < maxLayers {
		keys := firstLayer << (2 * n)
		s.layers = append(s.layers, layer{bits: make([]uint64, keys*bitsPerKey/64), room: keys})
	}
	l := &s.layers[len(s.layers)-1]
	l.room--
	hash := maphash.String(s.seed, key)
	for n := range uint64(probes) {
		i, bit := l.place(hash, n)
		l.bits[i] |= bit
	}
}

// place is where the n-th probe of a key looks.
func (l *layer) place(hash, n uint64) (i int, bit uint64) {
	at := hash + n*(hash>>32|1)
	return int(at >> 6 & uint64(len(l.bits)-1)), 1 << (at & 63)
}

// has is false for a key that was never added, and true for one that was.
func (s *keySet) has(key string) bool {
	if s.layers == nil {
		return false
	}
	hash := maphash.String(s.seed, key)
	return slices.ContainsFunc(s.layers, func(l layer) bool {
		for n := range uint64(probes) {
			if i, bit := l.place(hash, n); l.bits[i]&bit == 0 {
				return false
			}
		}
		return true
	})
}

// known reads what the store knows of items. Of a stream that had none when the
// run began it knows what this run committed, so it is asked for nothing else.
func (r *execution) known(ctx context.Context, stream string, items []string) (map[string]KnownItem, error) {
	if stored, ok := r.stored[stream]; ok {
		items = slices.DeleteFunc(items, func(key string) bool { return !stored.has(key) })
	}
	if len(items) == 0 {
		return nil, nil
	}
	return r.o.Store.Known(ctx, r.o.Connection, stream, items)
}
