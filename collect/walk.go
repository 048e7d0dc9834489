package collect

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// stream walks what is to be walked of one stream: everything there was, once
// (catch-up, as far as it has not been and the run's bound allows), then what
// changed since (steady state). The two keep cursors of their own, and the
// catch-up never moves the steady one.
func (r *execution) stream(ctx context.Context, s connector.Stream, lanes []Lane) *stop {
	catchup, steady := lane(lanes, s.Name, Catchup), lane(lanes, s.Name, Steady)
	if !catchup.Done {
		begun, maxPages := false, r.o.CatchupPages
		if r.o.Lane == Steady {
			if !s.Incremental {
				return nil // only a walk over everything sees what changes, and that is the past's
			}
			begun, maxPages = steady.Walking || steady.Watermark != "" || catchup.Pages > 0, 1
		}
		if !begun {
			if stop := r.walk(ctx, s, &catchup, maxPages); stop != nil {
				return stop
			}
		}
		if !s.Incremental {
			return nil // the walk that ended now has seen all there is
		}
	}
	if r.o.Lane == Catchup {
		return nil
	}
	if steady.Walking {
		// It shows nothing from after it began, in an earlier run.
		if stop := r.walk(ctx, s, &steady, 0); stop != nil || !s.Incremental {
			return stop
		}
	}
	if s.Incremental {
		// Until it has a watermark of its own the steady lane starts where the
		// catch-up ended, or, while that is not done, when it began.
		switch {
		case steady.Watermark != "":
			steady.Since = steady.Watermark
		case catchup.Done:
			steady.Since = catchup.Watermark
		default:
			steady.Since = like(catchup.High, before(catchup.Start))
		}
		if s.Lookback > 0 {
			steady.Since, _ = earlier(steady.Since, s.Lookback) // from the beginning, where nobody knows
		}
	}
	if !catchup.Done && steady.Since == "" {
		return nil // nothing says when now is: first the past, all of it
	}
	return r.walk(ctx, s, &steady, 0)
}

func lane(lanes []Lane, stream string, kind LaneKind) Lane {
	for _, l := range lanes {
		if l.Stream == stream && l.Kind == kind {
			return l
		}
	}
	return Lane{Stream: stream, Kind: kind}
}

// walk goes from the lane's cursor to the last page, slice by slice; at most
// maxPages, when that is not 0.
func (r *execution) walk(ctx context.Context, s connector.Stream, l *Lane, maxPages int64) *stop {
	r.enter(stage{Phase: Phase(l.Kind), Stream: s.Name})
	began, whole := time.Now(), !l.Walking && l.Since == ""
	if !l.Walking {
		l.begin()
	}
	walked := connector.Walked{Later: l.Pages > 0}
	marked := l.Since != "" || l.High != "" // records before had a watermark
	defer func() { r.warn(l.Kind, marked, walked.Warnings(s)) }()
	restarted := false
	var coming *ahead
	for n := int64(0); l.Walking; n++ {
		if maxPages > 0 && n >= maxPages {
			r.bounded = r.o.Lane != Steady
			return nil
		}
		if coming == nil { // one that was asked for is not cut, like any attempt under way
			if stop := r.halted(ctx); stop != nil {
				return stop
			}
		} else if err := r.settle(ctx, coming); err != nil {
			coming.drop()
			return r.broken(ctx, err)
		}
		page, err := r.page(ctx, l, coming)
		coming = nil
		wrong := contradiction(s, l.High, page.Items)
		if err != nil || wrong != nil {
			if err := r.commitGathered(ctx); err != nil {
				return r.broken(ctx, err)
			}
		}
		if l.Cursor != "" && !restarted && cursorRefused(err) {
			// Cursors expire. Walking from the start again costs list requests
			// only: items that did not change are known and skipped.
			r.emit(event.Event{Type: event.Phase, Stream: s.Name, Phase: string(l.Kind), Note: "cursor_refused_walk_restarted"})
			l.begin()
			walked, marked, restarted = connector.Walked{}, l.Since != "", true
			continue
		}
		if err != nil {
			stop := r.unlisted(ctx, l, err)
			if _, unsent := errors.AsType[*reason.Refusal](err); unsent {
				stop = r.outlast(ctx, stop)
			}
			if stop != nil {
				return stop
			}
			continue
		}
		if wrong != nil {
			return r.contradicted(wrong)
		}
		next := *l
		repeats := next.advance(page)
		askAhead := func() <-chan struct{} {
			if last := maxPages > 0 && n+1 >= maxPages; !repeats && !last && r.mayAskAhead(ctx, page, &next) {
				coming = r.askAhead(ctx, &next, s.DetailStream == "")
				return coming.done
			}
			return nil
		}
		if s.DetailStream == "" {
			askAhead()
		}
		if stop := r.slice(ctx, s, page, &next, l.Since, coming != nil, askAhead); stop != nil {
			if coming != nil {
				coming.drop()
			}
			return stop
		}
		if repeats {
			return r.cursorRepeats()
		}
		*l = next
		walked.Add(page)
	}
	if whole {
		if err := r.mended(ctx, s.Name, began.Round(0)); err != nil {
			return r.broken(ctx, err)
		}
	}
	return nil
}

// page is the one at l, which may have been asked for already.
func (r *execution) page(ctx context.Context, l *Lane, coming *ahead) (connector.Page, error) {
	if coming != nil {
		// One that waited behind details may come in time now.
		if page, err := coming.take(); !tooLate(err) {
			return page, err
		}
	}
	return r.list(ctx, l.ask())
}

// warn puts warnings of a walk into the trace and the summary, each once. That
// the paging expression found nothing is normal for a short list of a provider
// that leaves the field out at the end: only the first walk says so. That records
// have no watermark matters only where none had one before.
func (r *execution) warn(kind LaneKind, marked bool, warnings []connector.Warning) {
	for _, w := range warnings {
		said := slices.ContainsFunc(r.warnings, func(old connector.Warning) bool { return old.Kind == w.Kind && old.Stream == w.Stream })
		if said || w.Kind == connector.PagingUnmatched && kind != Catchup || w.Kind == connector.IncrementalNull && marked {
			continue
		}
		r.warned(w)
	}
}

func (r *execution) warned(w connector.Warning) {
	r.warnings = append(r.warnings, w)
	r.emit(event.Event{Type: event.Warning, Stream: w.Stream, Note: string(w.Kind), Count: w.Records})
}

// warnOfDetails puts what all details of the run showed into the trace and the
// summary, at its end.
func (r *execution) warnOfDetails() {
	for _, s := range r.o.Connector.Streams() {
		if s.DetailStream == "" {
			continue
		}
		details := r.caller.detailsOf(s.DetailStream)
		for _, w := range details.Warnings(s.DetailStream, r.initial[s.DetailStream]) {
			r.warned(w)
		}
		if n := r.unmarked[s.DetailStream]; n > 0 {
			r.warned(connector.Warning{Kind: connector.TombstonesMissing, Stream: s.DetailStream, Records: n})
		}
	}
}

// outlast waits pressure out that would end the run, such as a circuit that is
// still open after all the waits of one stage, where the run has a time to fill:
// nil means that the work may go on. Without such a cap nobody could say when to
// end, and the stop stands; so does one whose end is known to come too late.
func (r *execution) outlast(ctx context.Context, s *stop) *stop {
	end := r.budget.deadline
	if !s.pressed() || end.IsZero() || s.why != reason.CircuitOpen.Reason() && s.retryAt.After(end) {
		return s
	}
	until := s.retryAt
	if until.IsZero() && s.why != reason.CircuitOpen.Reason() {
		until = time.Now().Add(firstTryWait)
	}
	if why := r.waitOut(ctx, s.why, until); why != reason.None {
		return &stop{why: why, cause: s.cause}
	}
	r.caller.begin()
	return nil
}

// waitOut waits for pressure to end, such as for the circuit to let a probe
// through; otherwise it says what ended the wait: the run's time, the operator,
// or the context's end.
func (r *execution) waitOut(ctx context.Context, pressure reason.Reason, until time.Time) (why reason.Reason) {
	if now := time.Now(); !until.After(now) {
		until = now.Add(time.Second) // a probe is under way; never a wait of no time
	}
	over := reason.None
	if d := r.budget.deadline; !d.IsZero() && !until.Before(d) {
		until, over = d, reason.MaxWallClock.Reason()
	}
	r.live.wait(pressure, until)
	defer r.live.wait(reason.None, time.Time{})
	defer r.live.outlasts(pressure)()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	var waiting <-chan struct{}
	if w, ok := ctx.Value(waitingKey{}).(context.Context); ok {
		waiting = w.Done()
	}
	select {
	case <-timer.C:
		return over
	case <-r.o.Stop:
		return reason.Interrupted
	case <-waiting:
		return reason.Interrupted
	case <-ctx.Done():
		return reason.Canceled
	}
}
