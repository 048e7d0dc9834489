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

// batch collects the contents of one commit.
type batch struct {
	Commit
	run   *execution
	items map[string]KnownItem
	order []string // keys of the items that the commit writes
	dirty bool     // records were written to the sink
	// pending counts the details whose outcomes the next commit makes durable.
	pending int
	// settle, if not nil, adjusts the gaps in Opened before the commit.
	settle func()
	// owing counts the items that joined a backlog.
	owing int64
	// keys, waiting and size are the keys, the number and the bytes of the items of
	// whole pages that wait for their commit.
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

// commit makes the batch durable: first its records in the sink, then the rest in one
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

// lastOfEach sorts items by key and keeps only the last item of each key.
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
		case b.owing > 0: // otherwise the backlog did not grow
			n[g.Reason] += b.owing
		}
	}
	return n
}

// The bounds of pages that wait to be committed together, when pages arrive faster than
// they can be committed one by one.
const (
	// maxGather is the maximum time from one commit to the begin of the next.
	maxGather = 50 * time.Millisecond
	// maxGathered and maxGatheredBytes are the maximum number of waiting items, and of
	// bytes of their records.
	maxGathered      = 10_000
	maxGatheredBytes = 4 << 20
)

// pages returns the instant until which whole pages may wait for their commit.
func (s saves) pages() time.Time { return s.last.Add(min(commitShare*s.cost, maxGather)) }

// gather returns the batch for a page with those keys: the waiting batch, or a new one.
// If the waiting batch may hold an item of the page it is committed first, so that the
// store knows the item.
func (r *execution) gather(ctx context.Context, stream string, keys []string) (*batch, error) {
	if b := r.gathered; b != nil && slices.ContainsFunc(keys, b.keys.has) {
		if err := r.commitGathered(ctx); err != nil {
			return nil, err
		}
	}
	b := r.gathered
	// After an error the batch holds half a page, which must not be committed.
	r.gathered = nil
	if b == nil {
		b = r.newBatch(stream)
	}
	return b, nil
}

// mayWait adds the records of a page to the size of the batch, and reports whether the
// batch may wait for another page.
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

// commitGathered commits the waiting pages, if there are any.
func (r *execution) commitGathered(ctx context.Context) error {
	b := r.gathered
	r.gathered = nil
	if b == nil {
		return nil
	}
	return b.commit(ctx)
}

// settle waits for the next page or until the waiting pages are due, and commits them
// in the second case.
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

// recordEvery is the maximum time between two commits of a run, and so the maximum age
// of the stored counters, events and rate.
const recordEvery = 10 * time.Second

// keepRecord stores the run's counters, events and rate when no slice was committed for
// recordEvery, for example during a long wait for the provider. It ends with the context.
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
				// After an error the next commit stores the same.
				_ = r.record(ctx, now)
			}
		}
	})
	return &wg
}

// record commits the run's counters, events and rate, without a slice.
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

// put passes a commit to the store. If that fails, its events are kept for the next
// commit. The caller holds committing.
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

// commit makes a slice durable and adds its counters to the run's.
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
		for _, it := range c.Items { // before the commit, which may take effect and still return an error
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

// saves decides when the outcomes of an unfinished page are committed: at once if they
// arrive slowly, otherwise as often as costs little, and at least once a second. The
// zero value is due at once.
type saves struct {
	last time.Time     // when the newest commit ended
	cost time.Duration // how long it took
	age  time.Duration // how old the run was then
}

// keySet is an approximate set of keys, in four bytes a key: it has false positives, for
// about one key in 100,000, and no false negatives. The zero value is empty. It is not
// safe for concurrent use.
type keySet struct {
	layers []layer
	seed   maphash.Seed
}

// layer is a Bloom filter.
type layer struct {
	bits []uint64 // its length is a power of two
	free int      // how many more keys it is sized for
}

const (
	// firstLayer is the number of keys of the first layer; each further layer has four
	// times as many as the one before.
	firstLayer = 4096
	// maxLayers limits the memory to 6 MB. Above 1.5 million keys the rate of false
	// positives rises.
	maxLayers = 5
	// bitsPerKey is the size of a layer, and probes the number of bits set for a key.
	bitsPerKey = 32
	probes     = 8
)

func (s *keySet) add(key string) {
	if s.layers == nil {
		s.seed = maphash.MakeSeed()
	}
	if n := len(s.layers); n == 0 || s.layers[n-1].free <= 0 && n < maxLayers {
		keys := firstLayer << (2 * n)
		s.layers = append(s.layers, layer{bits: make([]uint64, keys*bitsPerKey/64), free: keys})
	}
	l := &s.layers[len(s.layers)-1]
	l.free--
	hash := maphash.String(s.seed, key)
	for n := range uint64(probes) {
		i, bit := l.probe(hash, n)
		l.bits[i] |= bit
	}
}

// probe returns the word and the bit of the n-th probe of a key.
func (l *layer) probe(hash, n uint64) (i int, bit uint64) {
	at := hash + n*(hash>>32|1)
	return int(at >> 6 & uint64(len(l.bits)-1)), 1 << (at & 63)
}

// has reports whether key may have been added. False is certain.
func (s *keySet) has(key string) bool {
	if s.layers == nil {
		return false
	}
	hash := maphash.String(s.seed, key)
	return slices.ContainsFunc(s.layers, func(l layer) bool {
		for n := range uint64(probes) {
			if i, bit := l.probe(hash, n); l.bits[i]&bit == 0 {
				return false
			}
		}
		return true
	})
}

// known reads the known items from the store. If the stream had none when the run
// began, it reads only the keys that this run committed.
func (r *execution) known(ctx context.Context, stream string, items []string) (map[string]KnownItem, error) {
	if stored, ok := r.stored[stream]; ok {
		items = slices.DeleteFunc(items, func(key string) bool { return !stored.has(key) })
	}
	if len(items) == 0 {
		return nil, nil
	}
	return r.o.Store.Known(ctx, r.o.Connection, stream, items)
}
