package collect

import (
	"context"
	"sync"
	"time"
)

// recordEvery is how long a run commits nothing at most: counters, events and
// rate on record are no older.
const recordEvery = 10 * time.Second

// keepRecord makes durable what the run has done, where no slice was committed
// for a while: it waits for the provider, or for one long answer. It ends with
// the context.
func (r *run) keepRecord(ctx context.Context) *sync.WaitGroup {
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
func (r *run) record(ctx context.Context, now time.Time) error {
	r.committing.Lock()
	defer r.committing.Unlock()
	if now.Sub(r.committed) < recordEvery {
		return nil
	}
	r.live.mu.Lock()
	total := r.live.with(Progress{})
	r.live.mu.Unlock()
	now = now.Round(0)
	return r.put(ctx, Commit{At: now, Progress: total, Events: r.drain(), Pacing: r.learned(now)})
}

// put hands a commit to the store, with committing held. Where that fails its
// events are kept for the next one.
func (r *run) put(ctx context.Context, c Commit) error {
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
