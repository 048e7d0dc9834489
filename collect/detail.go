package collect

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/reason"
)

// task is one detail to fetch.
type task struct {
	item     connector.Item
	from, to string
	children children
	known    bool // seen before, so that it may be owed
}

// outcome is what came of a task.
type outcome struct {
	task
	records []connector.Record
	err     error
}

// ending is a stop that came while details were fetched. One that aborts
// commits nothing: the slice is asked for again.
type ending struct {
	*stop
	abort bool
}

// details fetches the tasks, several at once if so configured, and puts what
// came of them into the batch. After a stop the rest become gaps.
func (r *run) details(ctx context.Context, b *batch, todo []task, last bool) *ending {
	r.live.owe(int64(len(todo)), last)
	var end *ending
	for o := range r.fetch(ctx, todo, func() *stop {
		if end != nil {
			return end.stop
		}
		return nil
	}) {
		fault.Point(fault.DetailFetched)
		r.live.paid()
		if ctx.Err() != nil || errors.Is(o.err, context.Canceled) {
			end = &ending{stop: r.broken(ctx, context.Canceled), abort: true}
			continue
		}
		if o.err == nil {
			if err := b.hydrated(ctx, o); err != nil {
				end = &ending{stop: r.broken(ctx, err), abort: true}
			}
			continue
		}
		b.missed(o, time.Now())
		if stop := stopsRun(o.err); stop != nil && end == nil {
			end = &ending{stop: stop}
		}
	}
	r.live.owe(0, last)
	return end
}

// fetch runs the tasks on as many goroutines as the run's concurrency and
// yields what came of each. Once stopped says why, the tasks that have not
// begun are yielded as refused for that reason, unsent.
func (r *run) fetch(ctx context.Context, todo []task, stopped func() *stop) func(yield func(outcome) bool) {
	return func(yield func(outcome) bool) {
		workers := min(r.o.Concurrency, len(todo))
		in, out := make(chan task), make(chan outcome)
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for t := range in {
					records, err := r.o.Connector.Detail(ctx, r.caller, t.from, t.item)
					out <- outcome{task: t, records: records, err: err}
				}
			})
		}
		defer func() {
			close(in)
			wg.Wait()
		}()
		sent, got := 0, 0
		for got < len(todo) {
			if sent < len(todo) {
				if s := stopped(); s != nil {
					yield(outcome{task: todo[sent], err: &reason.Refusal{Reason: s.why, RetryAt: s.retryAt}})
					sent++
					got++
					continue
				}
			}
			var feed chan task
			var t task
			if sent < len(todo) {
				feed, t = in, todo[sent]
			}
			select {
			case feed <- t:
				sent++
			case o := <-out:
				got++
				yield(o)
			}
		}
	}
}

// stopsRun says whether a detail's failure is one for the whole run: a refusal
// to send, an empty retry budget (a provider that fails so often is not sent the
// first attempts of everything else either), a credential that is no longer
// taken, a quota that is used up. Other failures concern one item.
func stopsRun(err error) *stop {
	if r, ok := errors.AsType[*reason.Refusal](err); ok {
		return &stop{why: r.Reason, retryAt: r.RetryAt}
	}
	f, ok := errors.AsType[*connector.Failure](err)
	switch {
	case !ok:
		return &stop{why: reason.Internal, err: err}
	case f.Stopped != reason.None:
		return &stop{why: f.Stopped, retryAt: f.RetryAt, cause: f}
	case f.Reason == reason.Unauthorized, f.Reason == reason.TLS:
		return &stop{why: f.Reason, err: f}
	case f.Reason == reason.QuotaExhausted:
		return &stop{why: f.Reason, retryAt: f.RetryAt, cause: f}
	}
	return nil
}
