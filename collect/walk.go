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

// stream walks one stream: first the catch-up, if it is not done and as far as
// CatchupPages allows, then the steady lane. Each lane has its own cursor, and the
// catch-up never moves the steady one.
func (r *execution) stream(ctx context.Context, s connector.Stream, lanes []Lane) *stop {
	catchup, steady := lane(lanes, s.Name, Catchup), lane(lanes, s.Name, Steady)
	if !catchup.Done {
		begun, maxPages := false, r.o.CatchupPages
		if r.o.Lane == Steady {
			if !s.Incremental {
				return nil // without an incremental list, changes are found only by the catch-up
			}
			begun, maxPages = steady.Walking || steady.Watermark != "" || catchup.Pages > 0, 1
		}
		if !begun {
			if stop := r.walk(ctx, s, &catchup, maxPages); stop != nil {
				return stop
			}
		}
		if !s.Incremental {
			return nil // the catch-up that just ended has seen the whole list
		}
	}
	if r.o.Lane == Catchup {
		return nil
	}
	if steady.Walking {
		// An earlier run began this walk. It misses changes after its begin, so another
		// walk follows.
		if stop := r.walk(ctx, s, &steady, 0); stop != nil || !s.Incremental {
			return stop
		}
	}
	if s.Incremental {
		// Until it has its own watermark, the steady lane starts at the watermark of the
		// catch-up or, while that is not done, at the time when it began.
		switch {
		case steady.Watermark != "":
			steady.Since = steady.Watermark
		case catchup.Done:
			steady.Since = catchup.Watermark
		default:
			steady.Since = like(catchup.High, before(catchup.Start))
		}
		if s.Lookback > 0 {
			steady.Since, _ = earlier(steady.Since, s.Lookback) // "" if it is not a point in time: from the beginning
		}
	}
	if !catchup.Done && steady.Since == "" {
		return nil // the present is unknown, so the catch-up has to end first
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

// walk collects pages from the lane's cursor to the last page, slice by slice, but at most
// maxPages if that is not 0.
func (r *execution) walk(ctx context.Context, s connector.Stream, l *Lane, maxPages int64) *stop {
	r.enter(stage{Phase: Phase(l.Kind), Stream: s.Name})
	began, whole := time.Now(), !l.Walking && l.Since == ""
	if !l.Walking {
		l.begin()
	}
	walked := connector.Walked{Later: l.Pages > 0}
	marked := l.Since != "" || l.High != "" // earlier records had a watermark
	defer func() { r.warn(l.Kind, marked, walked.Warnings(s)) }()
	restarted := false
	var coming *ahead
	for n := int64(0); l.Walking; n++ {
		if maxPages > 0 && n >= maxPages {
			r.bounded = r.o.Lane != Steady
			return nil
		}
		if coming == nil { // a page that was requested is taken first: an attempt in flight is not canceled
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

// page returns the page at l, which may have been requested already.
func (r *execution) page(ctx context.Context, l *Lane, coming *ahead) (connector.Page, error) {
	if coming != nil {
		// A page that came too late since it waited behind details may be in time now.
		if page, err := coming.take(); !tooLate(err) {
			return page, err
		}
	}
	return r.list(ctx, l.ask())
}

// warn adds the warnings of a walk to the trace and the summary, each once. It leaves out
// two that are not signs of a mistake: a paging expression that found nothing after the
// first walk, since some providers omit the field on the last page of a short list, and
// records without a watermark if earlier ones had one.
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

// warnOfDetails adds the warnings about the run's details to the trace and the summary.
// It is called at the end of the run.
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

// outlast waits for the end of pressure that would end the run, such as a circuit that is
// still open after all the waits of one phase. It returns nil if the run may continue.
// It waits only if the run has a time limit and the pressure may end before it; otherwise
// it returns the stop.
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

// waitOut waits until pressure ends, for example until the circuit admits a probe. It
// returns [reason.None], or what ended the wait early: the time limit, an interruption
// or the end of the context.
func (r *execution) waitOut(ctx context.Context, pressure reason.Reason, until time.Time) (why reason.Reason) {
	if now := time.Now(); !until.After(now) {
		until = now.Add(time.Second) // a probe is in flight; do not spin
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
