package collect

import (
	"context"
	"slices"
	"time"
)

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
func (r *run) gather(ctx context.Context, stream string, keys []string) (*batch, error) {
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
func (r *run) commitGathered(ctx context.Context) error {
	b := r.gathered
	r.gathered = nil
	if b == nil {
		return nil
	}
	return b.commit(ctx)
}

// settle commits the pages that wait, unless the next one comes before they are due.
func (r *run) settle(ctx context.Context, coming *ahead) error {
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
