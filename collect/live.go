package collect

import (
	"math"
	"sync"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/transport"
)

// Phase is what a run is doing.
type Phase string

// The phases of a run, beside the lanes' own kinds and recovery.
const (
	PhaseStarting Phase = "starting"
	PhaseCatchup        = Phase(Catchup)
	PhaseSteady         = Phase(Steady)
	PhaseDone     Phase = "done"
)

// stage is a phase of one stream.
type stage struct {
	Phase  Phase  `json:"phase"`
	Stream string `json:"stream,omitempty"`
}

// Live is a run at an instant, for a progress display.
type Live struct {
	stage
	Run     string        `json:"run"`
	Elapsed time.Duration `json:"elapsed_ns"`
	// Progress counts with what is not committed yet: attempts as they are sent,
	// records as they are committed.
	Progress Progress `json:"progress"`
	// Outstanding counts the details that are owed in all: those left in this slice,
	// and those of gaps.
	Outstanding int64 `json:"outstanding"`
	// Owed counts the details that are left in this slice.
	Owed int64 `json:"owed"`
	// More says that pages follow, so that nobody knows yet how much is left.
	More bool `json:"more"`
	// Left is the time that Owed takes at the current rate and latency; 0 with a nil
	// Rate is unknown.
	Left time.Duration `json:"left_ns"`
	// Waiting and Until say what the run waits out, if anything.
	Waiting reason.Reason `json:"waiting,omitempty"`
	Until   time.Time     `json:"until,omitzero"`
	// Pacing is the governor's state; its Rate is nil while unknown.
	Pacing headway.Snapshot `json:"pacing"`
}

// live is the state that a display reads, under its own lock.
type live struct {
	started   time.Time
	held      func() headway.Wait // what the next attempt waits for
	mu        sync.Mutex
	ended     time.Time // zero while the run is under way
	account   account
	width     width
	stage     stage
	committed Progress
	attempts  int64
	retries   int64
	throttled int64
	owed      int64
	owing     int64 // what gaps stood for when that was last counted, less what was opened and recovered by then
	last      bool
	latency   time.Duration // recent, over several attempts
	waiting   reason.Reason
	until     time.Time
}

func (l *live) enter(s stage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage = s
	if s.Phase == PhaseDone {
		l.ended = time.Now()
	}
}

// phase is what the run is doing.
func (l *live) phase() Phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stage.Phase
}

// now is the time since the run began, up to its end, with the lock held.
func (l *live) now() time.Duration {
	if !l.ended.IsZero() {
		return l.ended.Sub(l.started)
	}
	return time.Since(l.started)
}

// sending is an attempt that goes out.
func (l *live) sending(a transport.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account.admitted(l.now(), a.Wait, a.Held, a.Number)
}

// gaveUp is an attempt that waited and does not go out.
func (l *live) gaveUp(a transport.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account.gaveUp(l.now(), a.Wait, a.Held, a.Number)
}

// committing accounts for a commit until done is called.
func (l *live) committing() (done func()) {
	return l.during((*account).committing, (*account).committed)
}

// outlasts accounts for the wait for an open circuit, or for the end of other
// pressure, until done is called.
func (l *live) outlasts(pressure reason.Reason) (done func()) {
	if pressure == reason.CircuitOpen.Reason() {
		return l.during((*account).opened, (*account).closed)
	}
	return l.during((*account).cooling, (*account).cooled)
}

// resting accounts for the wait before a list is asked for again until done is called.
func (l *live) resting() (done func()) {
	return l.during((*account).rests, (*account).rested)
}

// asksAhead accounts for a response that is not waited for yet until done is called.
func (l *live) asksAhead() (done func()) {
	return l.during((*account).asksAhead, (*account).wantsPage)
}

func (l *live) during(begin, end func(*account, time.Duration)) (done func()) {
	at := func(f func(*account, time.Duration)) {
		l.mu.Lock()
		defer l.mu.Unlock()
		f(&l.account, l.now())
	}
	at(begin)
	return func() { at(end) }
}

func (l *live) owe(n int64, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed, l.last = n, last
}

// stock says what the gaps of the connection stand for now.
func (l *live) stock(owed map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owing = l.committed.GapsRecovered - l.committed.GapsOpened
	for _, n := range owed {
		l.owing += n
	}
}

// outstanding is all that is owed, with the lock held. What recovery has left is
// gaps; what is left of a page is not.
func (l *live) outstanding() int64 {
	gaps := l.owing + l.committed.GapsOpened - l.committed.GapsRecovered
	if l.stage.Phase == PhaseRecovery {
		return max(gaps, l.owed)
	}
	return max(gaps, 0) + max(l.owed, 0)
}

func (l *live) paid() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed--
}

func (l *live) wait(why reason.Reason, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting, l.until = why, until
}

func (l *live) attempt(a transport.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account.ended(l.now())
	if l.owed > 0 { // otherwise it is a list's
		l.width.answered(l.now(), a)
	}
	l.attempts++
	if l.latency == 0 {
		l.latency = a.Latency
	}
	l.latency += (a.Latency - l.latency) / 8
	if a.Number > 1 {
		l.retries++
	}
	if a.Class.Throttle() {
		l.throttled++
	}
}

// atOnce is how many details may be under way.
func (l *live) atOnce() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.width.atOnce()
}

// counted is the run's counters now.
func (l *live) counted() Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.with(Progress{})
}

// with is the counters with a batch in them, with the lock held.
func (l *live) with(b Progress) Progress {
	p := l.committed
	p.Pages += b.Pages
	p.Items += b.Items
	p.Unchanged += b.Unchanged
	p.Details += b.Details
	p.Records += b.Records
	p.GapsOpened += b.GapsOpened
	p.GapsRecovered += b.GapsRecovered
	p.ChildrenGone += b.ChildrenGone
	var held headway.Wait
	if l.held != nil && l.ended.IsZero() {
		held = l.held()
	}
	p.BoundBy = l.account.bounds(l.now(), held)
	p.Attempts, p.Retries, p.Throttled = l.attempts, l.retries, l.throttled
	return p
}

// Live tells how the run under way stands; ok is false before the first one.
func (c *Collector) Live() (now Live, ok bool) {
	c.mu.Lock()
	r := c.run
	c.mu.Unlock()
	if r == nil {
		return Live{}, false
	}
	pacing := r.governor.Snapshot()
	l := &r.live
	l.mu.Lock()
	defer l.mu.Unlock()
	now = Live{
		stage: l.stage, Run: r.id, Elapsed: time.Since(r.started), Progress: l.with(Progress{}),
		Outstanding: l.outstanding(), Owed: l.owed, More: !l.last, Waiting: l.waiting, Until: l.until, Pacing: pacing,
	}
	if pacing.Rate != nil {
		interval := time.Duration(pacing.Rate.CurrentIntervalMS * float64(time.Millisecond))
		now.Left = timeLeft(l.owed, interval, l.latency, l.width.atOnce())
	}
	return now, true
}

// timeLeft is what so many requests take that may begin an interval apart, so many
// of them under way at once.
func timeLeft(owed int64, interval, latency time.Duration, concurrency int) time.Duration {
	each := max(interval, latency/time.Duration(max(concurrency, 1)))
	left := float64(max(owed, 0)) * float64(each)
	return time.Duration(min(left, math.MaxInt64/2)) // which is 2^62 as a float
}

// observe counts an attempt.
func (r *execution) observe(a transport.Attempt) {
	r.standBack.observe(time.Now(), a, r.governor.Learned)
	r.live.attempt(a)
}

// enter goes on to another phase, and says so in the trace.
func (r *execution) enter(s stage) {
	r.live.enter(s)
	r.caller.begin()
	r.emit(event.Event{Type: event.Phase, Stream: s.Stream, Phase: string(s.Phase)})
}

// emit puts an event into the run's trace: durable with the next commit.
func (r *execution) emit(e event.Event) {
	if e.At.IsZero() {
		e.At = time.Now().Round(0)
	}
	e.Connection, e.Run = r.o.Connection, r.id
	if e.Circuit != nil {
		p := r.live.counted()
		e.Circuit.ElapsedMS = time.Since(r.started).Milliseconds()
		e.Circuit.Requests, e.Circuit.Retries = p.Attempts, p.Retries
	}
	r.mu.Lock()
	r.pending = append(r.pending, e)
	r.mu.Unlock()
	if r.o.OnEvent != nil {
		r.o.OnEvent(e)
	}
}

// drain takes the events that are not durable yet.
func (r *execution) drain() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.pending
	r.pending = nil
	return events
}
