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

// Stop ends the daemon: new calls and those that wait for their turn are refused
// with 503, those under way may end within the configuration's drain time and the
// context, then they are cut and settled by what was seen. What was used and
// learned is stored. It is safe to call again: all calls return when the first
// does. The error is about what could not be stored; that calls had to be cut is
// only logged.
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
	if err := d.proxy.Drain(ctx); err != nil {
		d.log.Warn("calls were cut at the end of the drain time", slog.Any("error", err))
	}
	d.sampler.stop() // while runs that end still have their last figures
	stored := d.stopCollecting(ctx)
	d.hub.Close() // which ends the streams of events
	d.console.Close()

	d.mu.Lock()
	defer d.mu.Unlock()
	errs := []error{stored}
	for _, l := range d.lines {
		if l.quota != nil {
			errs = append(errs, l.quota.Close()) // which answers who waits at the API
		}
	}
	s.shutdown(ctx)
	d.saver.stop()
	d.unreport()
	errs = append(errs, d.saveRates(time.Now()), d.usage.Close(context.WithoutCancel(ctx)), d.release(), d.archive.Close())
	d.outcome = errors.Join(errs...)
	d.phase.Store(int32(stopped))
	d.log.Info("stopped", slog.Duration("after", time.Since(began).Round(time.Millisecond)))
	close(d.ended)
	return d.outcome
}

// shutdownTime is what requests to the API get beyond the drain time.
const shutdownTime = time.Second

// shutdown returns when no handler runs.
func (s *server) shutdown(ctx context.Context) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer done()
	if s.http.Shutdown(ctx) != nil {
		s.cut()
		_ = s.http.Close() // of connections only: the listener is closed already
	}
	s.cut()
	<-s.ended
	s.busy.Wait()
}

func (d *Daemon) ratesPath() string { return filepath.Join(d.config.State, "rates.json") }

// What was learned is stored saveFirst after the start, then after twice as long
// each time, and at last each saveEvery: a daemon that is killed soon and often
// would otherwise never learn. What [Daemon.saveSoon] asks for is stored at once, but
// never sooner than saveFirst after the time before, however much is asked for.
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
			case <-d.unsaved:
			}
			if d.mu.TryLock() {
				err := d.saveRates(time.Now())
				d.mu.Unlock()
				if err != nil {
					d.log.Error("learned rates were not stored", slog.Any("error", err))
				}
			} else {
				d.saveSoon() // nothing waits for the lock here: the stop has it while it waits for this goroutine
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

// saveSoon has what was learned stored within saveFirst rather than at the next time.
func (d *Daemon) saveSoon() {
	select {
	case d.unsaved <- struct{}{}:
	default: // it is asked for already
	}
}

func (s *saver) stop() {
	s.end()
	s.done.Wait()
}

// saveRates stores what was learned, with the lock held. A rate is as old as the
// last attempt that it was learned from. Of providers that are no longer there, what
// is stored stays.
func (d *Daemon) saveRates(now time.Time) error {
	next := ratesContent{
		Rates:     upon(d.stored.Rates, nil),
		Unasked:   upon(d.stored.Unasked, d.proxy.Unasked()),
		Estimates: upon(d.stored.Estimates, d.proxy.Estimates()),
	}
	attempts := map[*line]int64{}
	for _, s := range d.proxy.Status() {
		l := d.lines[s.Name]
		if l == nil || l.pacing == nil || s.Attempts == l.saved {
			continue
		}
		if r, ok := l.learned(now); ok {
			next.Rates[s.Name] = r
			attempts[l] = s.Attempts
		}
	}
	if len(attempts) == 0 && maps.EqualFunc(next.Unasked, d.stored.Unasked, maps.Equal[map[string]time.Time]) &&
		maps.EqualFunc(next.Estimates, d.stored.Estimates, maps.Equal[map[string]egress.Estimates]) {
		return nil
	}
	if err := writeRates(d.ratesPath(), next); err != nil {
		return err
	}
	for l, n := range attempts {
		l.saved = n
	}
	d.stored = next
	return nil
}

// upon is a new map of what was stored and, over it, what is known now.
func upon[V any](stored, known map[string]V) map[string]V {
	all := make(map[string]V, len(stored)+len(known))
	maps.Copy(all, stored)
	maps.Copy(all, known)
	return all
}
