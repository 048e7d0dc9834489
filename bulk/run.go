// Package bulk loads rows into an API as fast as the provider allows, and records the
// outcome of every row.
//
// [Run] reads a [Source], groups rows into batches and sends them to a [Target], with a
// parallelism that follows the provider's recommendations and refusals. Each row ends as
// one of: acknowledged; rejected, with the server's error, in a file that can be corrected
// and loaded again; uncertain, if it may have been written and must not be sent twice; or
// owed, in the journal. A load that was stopped or killed can be resumed with the same
// folder.
//
// Package source reads formats, and package target sends to providers. [Controller] is the
// parallelism law alone, for programs that send batches themselves.
//
// To collect data from an API use package collect. Bulk is not for requests whose
// responses matter: it records only whether a row was accepted.
//
// One goroutine owns the state of a load, another reads the source, and each batch is sent
// by its own goroutine. Memory depends on the rows in flight, not on the size of the
// input. Times are monotonic.
//
// Stability: settling.
package bulk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/reason"
)

// Run loads a source into a target until every row has its outcome, the provider or a limit
// ends the load, or ctx ends. Then no further batch is sent, and those in flight have
// Options.Drain to end. Everything that the summary counts is durable.
//
// Run returns an error for invalid options, for a folder that is in use or holds another
// load (then nothing was sent), for a journal that cannot be written, and for an input that
// cannot be read to its end. A refusal by the provider or the end of ctx is not an error:
// see Summary.State and Reason.
func Run(ctx context.Context, src Source, target Target, o Options) (Summary, error) {
	traits := target.Traits()
	o, err := o.resolve(traits)
	if err != nil {
		return Summary{State: Failed, Reason: reason.Internal}, err
	}
	paced, err := openGates(&o, traits.Identities)
	if err != nil {
		return Summary{State: Failed, Reason: reason.Internal}, err
	}
	defer paced.close()
	j, state, err := begin(src, traits, o)
	if err != nil {
		why := reason.Internal
		if r, ok := errors.AsType[*reason.Refusal](err); ok {
			why = r.Reason
		}
		return Summary{State: Failed, Reason: why}, err
	}
	s := newSession(src, target, traits, o, j, state)
	s.gates = paced
	if !state.Complete() {
		s.run(ctx)
	}
	return s.finish()
}

// begin opens the load's folder as Options.Start requires.
func begin(src Source, t Traits, o Options) (*journal.Journal, journal.State, error) {
	if o.Start != StartOrResume {
		_, err := journal.Read(o.Dir)
		switch none := errors.Is(err, journal.ErrNone); {
		case o.Start == ResumeOnly && err != nil:
			return nil, journal.State{}, fmt.Errorf("bulk: resume: %w", err)
		case o.Start == StartOnly && !none:
			return nil, journal.State{}, fmt.Errorf("bulk: %s holds a load already: resume it, or use another folder", o.Dir)
		}
	}
	for tries := 1; ; tries++ {
		j, state, err := journal.Open(o.Dir, journal.Options{
			Header:          journal.Header{Load: rand.Text(), Input: src.Identity(), Target: t.Name},
			RejectsPreamble: RejectsPreamble, UncertainPreamble: UncertainPreamble,
		})
		if err == nil {
			return j, state, nil
		}
		// ReadStatus takes the lock for a moment to check it, so try again.
		if held, ok := errors.AsType[*reason.Refusal](err); !ok || held.Reason != reason.LeaseHeld || tries == lockTries {
			return nil, state, fmt.Errorf("bulk: %w", err)
		}
		time.Sleep(lockPause)
	}
}

// How often the lock of a folder is tried, and the pause in between.
const (
	lockTries = 5
	lockPause = 20 * time.Millisecond
)

// run is the goroutine that owns the core.
func (s *session) run(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	permits, endWaits := context.WithCancel(ctx)
	defer endWaits()
	s.sending, s.permits = sending, permits
	go s.read()
	defer close(s.quit)
	s.commits = newCommitter(s.journal)
	defer func() {
		if err := s.commits.close(); err != nil {
			s.fail(reason.Internal, err)
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	tick := time.NewTicker(s.o.ProgressEvery)
	defer tick.Stop()
	done, failed, abort := ctx.Done(), s.commits.failed, s.o.Abort
	var drained <-chan time.Time
	s.progress()
	for {
		d := s.drive()
		s.account.to(s.now(), reason.BoundProcessing)
		if d.Action == dispatch.Finish {
			return
		}
		if _, stopped := s.core.Stopped(); stopped {
			endWaits() // no further batch is sent
		}
		s.decision = d
		timer.Reset(min(max(d.At-s.now(), 0), time.Hour))
		rows := s.items
		if s.ended || s.core.Full() {
			rows = nil
		}
		select {
		case it := <-rows:
			s.woke()
			s.take(it)
		case g := <-s.grants:
			s.woke()
			s.admit(g)
		case r := <-s.results:
			s.woke()
			s.settle(r)
		case err := <-failed:
			s.woke()
			failed = nil
			s.fail(reason.Internal, err)
		case <-timer.C:
			s.woke()
		case <-tick.C:
			s.woke()
			s.progress()
		case <-done:
			s.woke()
			done = nil
			s.core.Halt(dispatch.Stop{Reason: reason.Interrupted})
			drained = time.After(max(s.o.Drain, 0))
		case <-drained:
			s.woke()
			drained = nil
			cancel()
		case <-abort:
			s.woke()
			abort = nil
			s.core.Halt(dispatch.Stop{Reason: reason.Interrupted})
			cancel()
		}
	}
}

// drive does what the core decides until it has to wait, and returns that decision.
func (s *session) drive() dispatch.Decision {
	for {
		d := s.core.Next(s.now())
		s.waiting = d.Reason
		if d.Action != dispatch.Send {
			return d
		}
		s.send(d.Batch)
	}
}

// finish returns the summary of the load and releases its folder.
func (s *session) finish() (Summary, error) {
	s.account.to(s.now(), reason.BoundDisk) // the last entries of the journal
	state := s.journal.State()
	sum := Summary{Progress: s.standing(state), Load: state.Header.Load, State: Drained, Reason: reason.Drained}
	sum.RejectsFile, sum.UncertainFile = sideFiles(s.o.Dir, state.Counts)
	sum.Waiting = reason.None
	err := errors.Join(s.err, s.journal.Close())
	stop, stopped := s.core.Stopped()
	switch {
	case err != nil:
		sum.State, sum.Reason, sum.Cause = Failed, reason.Internal, err.Error()
		if stopped {
			sum.Reason = stop.Reason
		}
	case stopped && stop.Reason == reason.Interrupted && state.Complete():
		// The context ended after the last row was settled.
	case stopped:
		sum.State, sum.Reason = Deferred, stop.Reason
		if stop.RetryAt > 0 {
			sum.RetryAt = s.origin.Add(stop.RetryAt).Round(0)
		}
	case sum.Owed > 0:
		sum.State, sum.Reason = Deferred, reason.RetryBudget.Reason()
	}
	if sum.State == Deferred && s.cause != nil && sum.Reason != reason.Interrupted {
		sum.Cause = s.cause.Error()
	}
	if s.o.OnProgress != nil {
		s.o.OnProgress(sum.Progress)
	}
	return sum, err
}
