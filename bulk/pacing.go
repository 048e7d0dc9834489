package bulk

import (
	"context"
	"errors"
	"fmt"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
)

// gates are the governors of a load's identities; nil without pacing.
type gates []*headway.Governor

func openGates(o *Options, identities []string) (all gates, err error) {
	if o.Pacing == nil {
		return nil, nil
	}
	for _, name := range identities {
		g, err := o.Pacing(name)
		if err != nil {
			all.close()
			return nil, fmt.Errorf("bulk: pacing of %s: %w", name, err)
		}
		all = append(all, g)
	}
	return all, nil
}

func (all gates) close() {
	for _, g := range all {
		g.Close()
	}
}

// grant is the permit of a batch that waited for one. If err is set, the batch got no permit.
type grant struct {
	batch  dispatch.Batch
	permit headway.Permit
	err    error
}

// await waits for a batch's permit, at most for StallTimeout, and sends the result to
// s.grants.
func (s *session) await(b dispatch.Batch) {
	s.awaiting++
	go func() {
		ctx, done := context.WithTimeout(s.permits, s.o.Params.StallTimeout)
		defer done()
		p, err := s.gates[b.Identity].Acquire(ctx)
		s.grants <- grant{b, p, err}
	}()
}

// admit sends a batch that has its permit. A batch without a permit is not sent and stops the
// load. After the load has stopped, no batch is sent.
func (s *session) admit(g grant) {
	s.awaiting--
	stop, stopped := s.core.Stopped()
	if g.err == nil && !stopped {
		s.core.Delayed(s.now(), g.batch.ID)
		s.record(g.batch, g.permit)
		return
	}
	o := Outcome{Outcome: dispatch.Outcome{Class: reason.Unknown, Reason: stop.Reason}}
	switch {
	case g.err == nil:
		g.permit.Cancel()
	case !stopped:
		stop = s.refused(g.err)
		s.core.Halt(stop)
		o.Reason, o.Err = stop.Reason, g.err
	}
	s.settle(result{g.batch.ID, o})
}

// refused returns the stop of a load whose batch got no permit.
func (s *session) refused(err error) dispatch.Stop {
	if s.permits.Err() != nil {
		return dispatch.Stop{Reason: reason.Interrupted}
	}
	r, ok := errors.AsType[*headway.Refusal](err)
	if !ok {
		return dispatch.Stop{Reason: reason.Internal}
	}
	stop := dispatch.Stop{Reason: r.Reason}
	if !r.RetryAt.IsZero() {
		stop.RetryAt = r.RetryAt.Sub(s.origin)
	}
	return stop
}
