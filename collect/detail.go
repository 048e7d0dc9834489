package collect

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/transport"
)

// task is one detail to fetch.
type task struct {
	item     connector.Item
	from, to string
	children children
	known    bool // seen before, so there may be a gap for it
	changed  bool // the list record changed and is written with the detail
}

// outcome is the result of a task.
type outcome struct {
	task
	records []connector.Record
	err     error
}

// ending is a stop that occurred while details were fetched. If abort is set, nothing more
// is committed; a later run requests the rest again.
type ending struct {
	*stop
	abort bool
}

// details fetches the tasks, as many at once as the run's width, and adds the outcomes to
// the batch. It commits outcomes on the way, so that a run that is killed keeps nearly all
// of them; the lane moves only after the whole page. After a stop the remaining tasks
// become gaps.
//
// If several requests may be in flight, askAhead is called once, about when the last task
// is sent. The request that it makes counts against the width until the channel that it
// returns is closed; a nil channel means that it made none.
func (r *execution) details(ctx context.Context, b *batch, todo []task, last bool, askAhead func() <-chan struct{}) *ending {
	r.live.owe(int64(len(todo)), last)
	defer r.live.owe(0, last)
	out := make(chan outcome)
	var wg sync.WaitGroup
	defer wg.Wait()
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	var end *ending
	sent, got, asked, room := 0, 0, 0, len(todo)
	var page <-chan struct{}
	for got < sent || sent < len(todo) && end == nil {
		for width := min(r.live.atOnce(), room); end == nil && sent-got+asked < width; {
			if width > 1 && askAhead != nil && len(todo)-sent < width {
				if page = askAhead(); page != nil {
					asked = 1
				}
				askAhead = nil
				continue
			}
			if sent == len(todo) {
				break
			}
			t := todo[sent]
			sent++
			wg.Go(func() {
				records, err := r.o.Connector.Detail(r.inPool(ctx, t.to), r.caller, t.from, t.item)
				out <- outcome{task: t, records: records, err: err}
			})
		}
		var wake <-chan time.Time
		if b.pending > 0 && (end == nil || !end.abort) {
			now := time.Now()
			if r.saves.due(now, b.pending) {
				if err := b.commit(ctx); err != nil {
					end = &ending{stop: r.broken(ctx, err), abort: true}
				}
				continue
			}
			alarm.Reset(r.saves.at().Sub(now))
			wake = alarm.C
		}
		select {
		case o := <-out:
			got++
			if end == nil && sent > got && tooLate(o.err) {
				// Others were queued before it, so it is tried again after them. A task
				// that is too late with nothing else in flight ends the run.
				todo, room = append(slices.Clip(todo), o.task), sent-got
				continue
			}
			r.live.settled()
			if came := r.came(ctx, b, o); came != nil && (end == nil || came.abort && !end.abort) {
				end = came
			}
			if end == nil && r.standingBack(ctx) {
				end = &ending{stop: &stop{why: r.standBack.reason()}}
			}
		case <-page:
			page, asked = nil, 0
		case <-wake:
		}
	}
	if end == nil || end.abort {
		return end
	}
	for _, t := range todo[sent:] {
		if err := b.missed(ctx, outcome{task: t, err: &reason.Refusal{Reason: end.why, RetryAt: end.retryAt}}, time.Now()); err != nil {
			return &ending{stop: r.broken(ctx, err), abort: true}
		}
	}
	return end
}

// tooLate reports whether a request was not sent, or not sent again, since its wait would
// have exceeded the run's time limit.
func tooLate(err error) bool {
	if refusal, ok := errors.AsType[*reason.Refusal](err); ok {
		return refusal.Reason == reason.MaxWallClock.Reason()
	}
	f, ok := errors.AsType[*connector.Failure](err)
	return ok && f.Stopped == reason.MaxWallClock.Reason()
}

// DefaultMaxConcurrency is the maximum number of details in flight if
// [Options].Concurrency is not set.
const DefaultMaxConcurrency = 32

const (
	// widthRound is the minimum number of responses by which a width is judged, and
	// firstRound that by which it is found to pay while none is given up. A greater
	// width is judged by as many responses as it has requests in flight.
	widthRound, firstRound = 8, 4
	// slowAnswer is the minimum latency at which a greater width can help.
	slowAnswer = 20 * time.Millisecond
	// widthStep is the divisor of growth: a width grows by 1/widthStep, at least by one, and
	// by 1/firstStep while none is given up.
	widthStep, firstStep = 8, 2
	// After a width was given up, no greater one is tried for a rest, which doubles
	// each time.
	minWidthRest, maxWidthRest = 30 * time.Second, 10 * time.Minute
)

// width decides how many details are in flight at once. If the owner sets none it begins
// with one, and grows while the run waits for responses rather than for pacing. It steps
// back if an attempt was throttled right after a step, and if growing by half raised the
// throughput by less than half of that. It is pure: instants are durations since the run
// began.
type width struct {
	set int // the owner's width; 0 means that none was set
	now int // the current width; 0 means 1

	changed time.Duration // when the width changed; attempts sent before do not count
	before  int           // the width before the last step until that is judged, otherwise 0
	// The responses of the current round: their number, how many were paced, and the
	// sum of their latencies.
	answers, paced int
	took           time.Duration

	base     int           // the width to compare greater ones with; 0 if there is none yet
	latency  time.Duration // the mean latency at base
	rest     time.Duration // the length of the last rest
	until    time.Duration // the end of the last rest
	unproven int           // the last width that was given up
}

// atOnce returns the current width.
func (w *width) atOnce() int { return max(w.set, w.now, 1) }

// answered records the outcome of an attempt.
func (w *width) answered(now time.Duration, a transport.Attempt) {
	if w.set > 0 || now-a.Latency < w.changed {
		return
	}
	if a.Class.Throttle() {
		if w.before > 0 {
			w.giveUp(now, w.before)
		}
		w.round()
		return
	}
	w.answers++
	w.took += a.Latency
	if a.Held.Bound.Paces() {
		w.paced++
	}
	n, step := w.atOnce(), widthStep
	mean, bound := w.took/time.Duration(w.answers), 4*w.paced < w.answers
	pays, judged := w.pays(n, mean), w.answers >= max(widthRound, n)
	if w.unproven == 0 {
		step = firstStep
		judged = judged || pays && w.answers == max(firstRound, n)
	}
	if !judged {
		return
	}
	w.round()
	w.before = 0
	if !bound || mean < slowAnswer {
		return // more requests would wait for pacing too
	}
	switch {
	case w.base == 0 || n < w.base:
		w.base, w.latency = n, mean
	case 2*n >= 3*w.base:
		if !pays {
			w.giveUp(now, w.base)
			return
		}
		w.base, w.latency = n, mean
		if n >= w.unproven {
			w.rest, w.unproven = 0, 0
		}
	}
	if now >= w.until && n < DefaultMaxConcurrency {
		w.before, w.changed = n, now
		w.now = min(n+max(1, n/step), DefaultMaxConcurrency)
	}
}

// pays reports whether a width of n, with that mean latency, does not fall behind the one
// that it is compared with: the throughput is the width divided by the latency.
func (w *width) pays(n int, mean time.Duration) bool {
	if w.base == 0 || 2*n < 3*w.base {
		return true
	}
	more := float64(n) / float64(w.base)
	return more*float64(w.latency)/float64(mean) >= (1+more)/2
}

// giveUp returns to a smaller width and begins a rest.
func (w *width) giveUp(now time.Duration, to int) {
	w.rest = min(max(2*w.rest, minWidthRest), maxWidthRest)
	w.unproven, w.until = w.atOnce(), now+w.rest
	w.now, w.before, w.changed = to, 0, now
	if w.base > to {
		w.base = 0
	}
	w.round()
}

// round begins a round.
func (w *width) round() { w.answers, w.paced, w.took = 0, 0, 0 }

// came adds one outcome to the batch. It returns nil if the other tasks may continue.
func (r *execution) came(ctx context.Context, b *batch, o outcome) *ending {
	fault.Point(fault.DetailFetched)
	if ctx.Err() != nil || errors.Is(o.err, context.Canceled) {
		return &ending{stop: r.broken(ctx, context.Canceled), abort: true}
	}
	if o.err == nil {
		r.denied, r.pressed = 0, 0
		r.standBack.fetched()
		if err := b.hydrated(ctx, o); err != nil {
			return &ending{stop: r.broken(ctx, err), abort: true}
		}
		return nil
	}
	if o.err = unlisted(o); r.standingBack(ctx) {
		o.err = r.standBack.pressedInstead(o.err)
	}
	if err := b.missed(ctx, o, time.Now()); err != nil {
		return &ending{stop: r.broken(ctx, err), abort: true}
	}
	if stop := r.stopsRun(o.err); stop != nil {
		return &ending{stop: stop}
	}
	return nil
}

// How long fetched details wait for their commit.
const (
	minSpacing = 100 * time.Millisecond
	maxSpacing = time.Second
	// ageShare limits what a young run can lose: the time between commits is at most the
	// run's age divided by ageShare.
	ageShare = 20
	// maxPending is the maximum number of outcomes that wait.
	maxPending = 256
	// commitShare is the time between two commits as a multiple of the duration of one, so
	// that about a twentieth of a run is spent in commits.
	commitShare = 20
)

// at returns the earliest instant of the next commit.
func (s saves) at() time.Time {
	return s.last.Add(max(minSpacing, min(commitShare*s.cost, s.age/ageShare, maxSpacing)))
}

// due reports whether the pending outcomes must be committed now.
func (s saves) due(now time.Time, pending int) bool {
	return pending >= maxPending || !now.Before(s.at())
}

// maxDenied is the number of details refused with a 401 in a row after which the
// credential itself counts as refused.
const maxDenied = 3

// maxPressed is the number of details refused under pressure in a row after which details
// are left for later. The list may still be admitted.
const maxPressed = 8

// stopsRun returns a stop if the failure of a detail concerns the whole run, not just one
// item: a refusal to send, an empty retry budget, a refused credential or an exhausted
// quota. If pressure has emptied the retry budget, the stop is for the pressure: details
// are left for later, and the walk of the list continues.
func (r *execution) stopsRun(err error) *stop {
	if r, ok := errors.AsType[*reason.Refusal](err); ok {
		return &stop{why: r.Reason, retryAt: r.RetryAt}
	}
	f, ok := errors.AsType[*connector.Failure](err)
	switch {
	case !ok:
		return &stop{why: reason.Internal, err: err}
	case f.Stopped == reason.RetryBudget.Reason() && f.Reason.Kind() == reason.KindPressure:
		r.pressed = 0
		return &stop{why: f.Reason, retryAt: f.RetryAt, cause: f}
	case f.Stopped != reason.None:
		return &stop{why: f.Stopped, retryAt: f.RetryAt, cause: f}
	case f.Reason == reason.Unauthorized:
		if r.denied++; r.denied >= maxDenied {
			return &stop{why: f.Reason, err: f}
		}
	case f.Reason == reason.TLS, f.Reason == reason.WrongScheme:
		return &stop{why: f.Reason, err: f}
	case f.Reason == reason.QuotaExhausted:
		return &stop{why: f.Reason, retryAt: f.RetryAt, cause: f}
	case f.Reason.Kind() == reason.KindPressure:
		if r.pressed++; r.pressed >= maxPressed {
			r.pressed = 0
			return &stop{why: f.Reason, retryAt: f.RetryAt, cause: f}
		}
	}
	return nil
}

// writeChildren writes the records of a detail that changed since the last time, and marks
// deleted ones if the sink can.
func (b *batch) writeChildren(ctx context.Context, o *outcome) error {
	known := o.children
	changed, keys, gone := o.children.update(o.records)
	records := make([]Record, 0, len(changed))
	for _, r := range changed {
		records = append(records, Record{Key: r.Key, Parent: o.item.Key, Data: r.Data})
	}
	if err := b.write(ctx, o.to, records); err != nil {
		return err
	}
	b.Progress.ChildrenGone += gone
	if sink, ok := b.run.o.Sink.(Marker); ok && (gone > 0 || known.vague) {
		keys := make([]string, len(o.records))
		for i, r := range o.records {
			keys[i] = r.Key
		}
		b.dirty = true
		return sink.Remain(ctx, o.to, o.item.Key, keys, time.Now())
	}
	sink, ok := b.run.o.Sink.(Burier)
	switch {
	case !ok:
	case known.hashed:
		b.run.unmarked[o.to] += gone
	case len(keys) > 0:
		b.dirty = true
		return sink.Gone(ctx, o.to, o.item.Key, keys, time.Now())
	}
	return nil
}
