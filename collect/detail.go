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
	known    bool // seen before, so that it may be owed
	changed  bool // the list record is new too, and is written with the detail
}

// outcome is what came of a task.
type outcome struct {
	task
	records []connector.Record
	err     error
}

// ending is a stop that came while details were fetched. One that aborts
// commits nothing more: what is not committed is asked for again.
type ending struct {
	*stop
	abort bool
}

// details fetches the tasks, as many at once as the run's width, and puts what came of
// them into the batch. What has come is committed on the way, so that a run that is
// killed keeps nearly all of it; the lane stays where it is until the whole page is
// done. After a stop the rest become gaps. If several may be under way at once, askAhead
// is called once, when about the last of them are sent. What it asks for takes a place
// until the channel that it returns is closed; nil means that it asked for nothing.
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
				// The others wait before it. Who is alone and comes too late ends the run.
				todo, room = append(slices.Clip(todo), o.task), sent-got
				continue
			}
			r.live.paid()
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

// tooLate reports whether a request was not sent, or not again, since its wait would
// have taken longer than the run may.
func tooLate(err error) bool {
	if refusal, ok := errors.AsType[*reason.Refusal](err); ok {
		return refusal.Reason == reason.MaxWallClock.Reason()
	}
	f, ok := errors.AsType[*connector.Failure](err)
	return ok && f.Stopped == reason.MaxWallClock.Reason()
}

// DefaultMaxConcurrency is how many details are under way at once at most where
// [Options].Concurrency is not set.
const DefaultMaxConcurrency = 32

const (
	// widthRound is how many answers a width is judged by, at least one for each place.
	widthRound = 8
	// slowAnswer is the shortest latency at which more requests at once can help.
	slowAnswer = 20 * time.Millisecond
	// widthStep is the part by which a width grows, at least by one.
	widthStep = 8
	// A width that did not pay, or was refused, is tried again after a rest that
	// doubles each time.
	minWidthRest, maxWidthRest = 30 * time.Second, 10 * time.Minute
)

// width is how many details are under way at once. Where the owner sets nothing it
// begins with one and grows while responses, not pacing, are what the run waits for. It
// steps back when its last step was refused, and when half as much again in flight made
// answers so much slower that less than half of the increase was gained. Pure; instants
// are durations since the run began.
type width struct {
	set int // the owner's; 0 means that none was set
	now int // 0 is 1

	changed time.Duration // what was sent before says nothing of this width
	before  int           // the width before the last step, while that is on trial, otherwise 0
	// Of the answers since then, or since the round before:
	answers, paced int
	took           time.Duration

	base     int           // the width that a greater one is held against; 0 before there is one
	latency  time.Duration // the mean of that one
	rest     time.Duration // the last rest
	until    time.Duration // no step before
	unproven int           // the last width that was given up
}

// atOnce is the width now.
func (w *width) atOnce() int { return max(w.set, w.now, 1) }

// answered takes in how an attempt ended.
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
	if w.answers < max(widthRound, w.atOnce()) {
		return
	}
	mean, bound := w.took/time.Duration(w.answers), 4*w.paced < w.answers
	w.round()
	w.before = 0
	if !bound || mean < slowAnswer {
		return // more at once would wait with the others
	}
	n := w.atOnce()
	switch {
	case w.base == 0 || n < w.base:
		w.base, w.latency = n, mean
	case 2*n >= 3*w.base:
		// In flight over latency is the throughput.
		gain := float64(n) / float64(w.base) * float64(w.latency) / float64(mean)
		if gain < (1+float64(n)/float64(w.base))/2 {
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
		w.now = min(n+max(1, n/widthStep), DefaultMaxConcurrency)
	}
}

// giveUp goes back to a narrower width, and rests.
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

// came puts one outcome into the batch. The ending is nil when the rest may go on.
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

// The bounds of how long what was fetched may wait for its commit.
const (
	minSpacing = 100 * time.Millisecond
	maxSpacing = time.Second
	// ageShare bounds what a young run can lose: the time between commits is at most the
	// run's age divided by this.
	ageShare = 20
	// maxPending is how many outcomes are held at most.
	maxPending = 256
	// commitShare is the time between two commits as a multiple of how long a commit takes:
	// about a twentieth of a run goes into commits.
	commitShare = 20
)

// at is the earliest instant of the next commit.
func (s saves) at() time.Time {
	return s.last.Add(max(minSpacing, min(commitShare*s.cost, s.age/ageShare, maxSpacing)))
}

// due reports whether so many outcomes are to be committed at now.
func (s saves) due(now time.Time, pending int) bool {
	return pending >= maxPending || !now.Before(s.at())
}

// maxDenied is how many details in a row may be refused with a 401, none
// fetched between, before the credential itself is taken to be refused.
const maxDenied = 3

// maxPressed is how many details in a row the provider's pressure may refuse,
// none fetched between, before details are left for later: the list may pass.
const maxPressed = 8

// stopsRun says whether a detail's failure is one for the whole run: a refusal
// to send, an empty retry budget (a provider that fails so often is not sent the
// first attempts of everything else either), a credential that is no longer
// taken, a quota that is used up. Other failures concern one item. Where pressure
// has emptied the retry budget the stop is for the pressure: details are left for
// later, and the list is walked on.
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

// writeChildren writes the records of a detail that differ from the last time,
// and marks those that are gone, where the sink can.
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
