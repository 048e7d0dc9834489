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

// leave is a batch's permit, or why there is none.
type leave struct {
	batch  dispatch.Batch
	permit headway.Permit
	err    error
}

// ask waits for a batch's permit, for as long as a load may stand still.
func (s *session) ask(ctx context.Context, b dispatch.Batch) {
	s.asking++
	go func() {
		ctx, done := context.WithTimeout(ctx, s.o.Params.StallTimeout)
		defer done()
		p, err := s.gates[b.Identity].Acquire(ctx)
		s.leaves <- leave{b, p, err}
	}()
}

// left sends a batch that has its permit. One that got none was not sent, and the load stops.
func (s *session) left(l leave) {
	s.asking--
	if l.err == nil {
		s.core.Delayed(s.now(), l.batch.ID)
		s.record(l.batch, l.permit)
		return
	}
	why := reason.Internal
	if s.asks.Err() != nil {
		why = reason.Interrupted
		s.core.Halt(dispatch.Stop{Reason: why})
	} else if r, ok := errors.AsType[*headway.Refusal](l.err); ok {
		why = r.Reason
		stop := dispatch.Stop{Reason: why}
		if !r.RetryAt.IsZero() {
			stop.RetryAt = r.RetryAt.Sub(s.origin)
		}
		s.core.Halt(stop)
	}
	s.settle(result{l.batch.ID, Outcome{Outcome: dispatch.Outcome{Class: reason.Unknown, Reason: why}}})
}
