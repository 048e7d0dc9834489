package collect

import (
	"context"
	"errors"
	"sync"
	"time"
)

// heartbeat renews the lease until the context ends. Once another holder has
// the connection the run is canceled with that as its cause. A renewal that
// fails for another reason is tried again: the fencing token protects the
// state meanwhile, not the clock.
func heartbeat(ctx context.Context, store Store, lease Lease, ttl time.Duration, lost context.CancelCauseFunc) *sync.WaitGroup {
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				err := store.Renew(ctx, lease, now, ttl)
				if errors.Is(err, ErrLeaseLost) {
					lost(ErrLeaseLost)
					return
				}
			}
		}
	})
	return &wg
}
