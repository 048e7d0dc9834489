package daemon

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/headway-go/headway/egress"
)

// Stop ends the daemon and stores use and learned rates. New and waiting calls are refused
// with status 503. Calls under way may end within the configured drain time and the
// context; then they are cut, and charged by what was seen of them. The error says what
// could not be stored; calls that were cut are only logged. Stop may be called several
// times: all calls return when the first one does.
func (d *Daemon) Stop(ctx context.Context) error {
	d.mu.Lock()
	switch phase(d.phase.Load()) {
	case fresh:
		d.phase.Store(int32(stopped))
		close(d.ended)
		d.mu.Unlock()
		return nil
	case stopping, stopped:
		d.mu.Unlock()
		return d.Wait()
	case running:
	}
	d.phase.Store(int32(stopping))
	drain, s := d.config.Drain, d.server
	d.mu.Unlock()

	began := time.Now()
	d.log.Info("stopping", slog.Duration("drain", drain))
	ctx, done := context.WithTimeout(ctx, drain)
	defer done()
	var forwarded sync.WaitGroup
	forwarded.Go(func() { d.forward.drain(ctx) })
	defer forwarded.Wait()
	if err := d.proxy.Drain(ctx); err != nil {
		d.log.Warn("calls were cut at the end of the drain time", slog.Any("error", err))
	}
	d.sampler.stop() // before the runs that end lose their last figures
	stored := d.stopCollecting(ctx)
	d.hub.Close() // ends the streams of events
	d.console.Close()

	d.mu.Lock()
	defer d.mu.Unlock()
	errs := []error{stored}
	for _, st := range d.providers {
		if st.quota != nil {
			errs = append(errs, st.quota.Close()) // answers requests that wait at the API
		}
	}
	s.shutdown(ctx)
	d.saver.stop()
	d.unreport()
	d.stopHooks()
	errs = append(errs, d.saveRates(time.Now()), d.usage.Close(context.WithoutCancel(ctx)), d.release(), d.archive.Close())
	d.outcome = errors.Join(errs...)
	d.phase.Store(int32(stopped))
	d.log.Info("stopped", slog.Duration("after", time.Since(began).Round(time.Millisecond)))
	close(d.ended)
	return d.outcome
}

// shutdownTime is how long API requests may take after the drain time.
const shutdownTime = time.Second

// shutdown closes the server and returns when no handler is running.
func (s *server) shutdown(ctx context.Context) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer done()
	if s.http.Shutdown(ctx) != nil {
		s.cut()
		_ = s.http.Close() // closes connections; the listener is closed already
	}
	s.cut()
	<-s.ended
	s.busy.Wait()
}

func (d *Daemon) ratesPath() string { return filepath.Join(d.config.State, "rates.json") }

// The learned rates are stored saveFirst after the start, then at intervals that double up
// to saveEvery, so that a daemon that is killed soon and often still keeps what it learned.
// [Daemon.saveSoon] stores them earlier, but no sooner than saveFirst after the last time.
const (
	saveFirst = 250 * time.Millisecond
	saveEvery = time.Minute
)

// saver stores the learned rates from time to time.
type saver struct {
	end  context.CancelFunc
	done sync.WaitGroup
}

func (d *Daemon) keepSaving() *saver {
	ctx, end := context.WithCancel(context.Background())
	s := &saver{end: end}
	s.done.Go(func() {
		for wait := saveFirst; ; wait = min(2*wait, saveEvery) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			case <-d.saveRequests:
			}
			if d.mu.TryLock() {
				err := errors.Join(d.saveRates(time.Now()), d.forward.save(ctx))
				d.mu.Unlock()
				if err != nil {
					d.log.Error("learned rates were not stored", slog.Any("error", err))
				}
			} else {
				d.saveSoon() // never wait for the lock: Stop holds it while it waits for this goroutine
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(saveFirst):
			}
		}
	})
	return s
}

// saveSoon asks the saver to store the learned rates within about saveFirst.
func (d *Daemon) saveSoon() {
	select {
	case d.saveRequests <- struct{}{}:
	default: // already asked for
	}
}

func (s *saver) stop() {
	s.end()
	s.done.Wait()
}

// saveRates stores the learned rates. The caller holds the lock. A rate is dated by the
// last attempt that it was learned from. Stored rates of providers that are no longer
// configured are kept.
func (d *Daemon) saveRates(now time.Time) error {
	next := ratesContent{
		Rates:     merged(d.stored.Rates, nil),
		Unasked:   merged(d.stored.Unasked, d.proxy.Unasked()),
		Estimates: merged(d.stored.Estimates, d.proxy.Estimates()),
	}
	attempts := map[*providerState]int64{}
	for _, s := range d.proxy.Status() {
		st := d.providers[s.Name]
		if st == nil || st.pacing == nil || s.Attempts == st.savedAttempts {
			continue
		}
		if r, ok := st.learned(now); ok {
			next.Rates[s.Name] = r
			attempts[st] = s.Attempts
		}
	}
	if len(attempts) == 0 && maps.EqualFunc(next.Unasked, d.stored.Unasked, maps.Equal[map[string]time.Time]) &&
		maps.EqualFunc(next.Estimates, d.stored.Estimates, maps.Equal[map[string]egress.Estimates]) {
		return nil
	}
	if err := writeRates(d.ratesPath(), next); err != nil {
		return err
	}
	for st, n := range attempts {
		st.savedAttempts = n
	}
	d.stored = next
	return nil
}

// merged returns a new map with the entries of both maps; current ones win.
func merged[V any](stored, current map[string]V) map[string]V {
	all := make(map[string]V, len(stored)+len(current))
	maps.Copy(all, stored)
	maps.Copy(all, current)
	return all
}
