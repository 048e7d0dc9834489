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

// Phase is the current work of a run.
type Phase string

// The phases of a run. See also [PhaseRecovery].
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

// Live is the current state of a run, for a progress display.
type Live struct {
	stage
	Run     string        `json:"run"`
	Elapsed time.Duration `json:"elapsed_ns"`
	// Progress counts attempts when they are sent, and records when they are committed.
	Progress Progress `json:"progress"`
	// Outstanding counts all details that are owed: those left in this slice and those
	// of gaps.
	Outstanding int64 `json:"outstanding"`
	// Owed counts the details that are left in this slice.
	Owed int64 `json:"owed"`
	// More reports that further pages follow, so that the remaining work is unknown.
	More bool `json:"more"`
	// Left estimates the time for Owed at the current rate and latency. It is 0, meaning
	// unknown, while Pacing.Rate is nil.
	Left time.Duration `json:"left_ns"`
	// Waiting is the pressure whose end the run waits for, until Until; zero if none.
	Waiting reason.Reason `json:"waiting,omitempty"`
	Until   time.Time     `json:"until,omitzero"`
	// Pacing is the governor's snapshot; its Rate is nil while unknown.
	Pacing headway.Snapshot `json:"pacing"`
}

// live is the state behind Collector.Live. It has its own lock.
type live struct {
	started   time.Time
	held      func() headway.Wait // returns what the next attempt waits for
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
	owing     int64 // items of all gaps at the last count, minus the gaps opened and plus those recovered before it
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

// phase returns the current phase.
func (l *live) phase() Phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stage.Phase
}

// now returns the time since the run began, or its duration once it has ended. The lock
// is held.
func (l *live) now() time.Duration {
	if !l.ended.IsZero() {
		return l.ended.Sub(l.started)
	}
	return time.Since(l.started)
}

// sending records an attempt that is about to be sent.
func (l *live) sending(a transport.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account.admitted(l.now(), a.Wait, a.Held, a.Number)
}

// gaveUp records an attempt that waited and is not sent.
func (l *live) gaveUp(a transport.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account.gaveUp(l.now(), a.Wait, a.Held, a.Number)
}

// committing accounts for a commit until done is called.
func (l *live) committing() (done func()) {
	return l.during((*account).committing, (*account).committed)
}

// outlasts accounts for a wait until an open circuit or other pressure ends, until
// done is called.
func (l *live) outlasts(pressure reason.Reason) (done func()) {
	if pressure == reason.CircuitOpen.Reason() {
		return l.during((*account).opened, (*account).closed)
	}
	return l.during((*account).cooling, (*account).cooled)
}

// resting accounts for the backoff before a list request is repeated, until done is
// called.
func (l *live) resting() (done func()) {
	return l.during((*account).rests, (*account).rested)
}

// asksAhead accounts for a request whose response is not needed yet, until done is
// called.
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

// owe sets how many details are left in the slice, and whether its page is the last.
func (l *live) owe(n int64, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed, l.last = n, last
}

// stock sets how many items the connection's gaps stand for now.
func (l *live) stock(owed map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owing = l.committed.GapsRecovered - l.committed.GapsOpened
	for _, n := range owed {
		l.owing += n
	}
}

// outstanding returns the number of details that are owed. During recovery the details
// left in the slice are gaps already; during a walk they are not. The lock is held.
func (l *live) outstanding() int64 {
	gaps := l.owing + l.committed.GapsOpened - l.committed.GapsRecovered
	if l.stage.Phase == PhaseRecovery {
		return max(gaps, l.owed)
	}
	return max(gaps, 0) + max(l.owed, 0)
}

// settled records that a detail of the slice was fetched or became a gap.
func (l *live) settled() {
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
	if l.owed > 0 { // otherwise the attempt was for a list
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

// atOnce returns how many details may be in flight.
func (l *live) atOnce() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.width.atOnce()
}

// counted returns the run's counters.
func (l *live) counted() Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.with(Progress{})
}

// with returns the counters including those of a batch. The lock is held.
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

// Live returns the state of the current run, or of the last one if none is under way.
// ok is false before the first run.
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

// timeLeft estimates how long owed requests take, given the interval between two
// starts, the latency, and how many may be in flight.
func timeLeft(owed int64, interval, latency time.Duration, concurrency int) time.Duration {
	each := max(interval, latency/time.Duration(max(concurrency, 1)))
	left := float64(max(owed, 0)) * float64(each)
	return time.Duration(min(left, math.MaxInt64/2)) // which is 2^62 as a float
}

// observe records the outcome of an attempt.
func (r *execution) observe(a transport.Attempt) {
	r.standBack.observe(time.Now(), a, r.governor.Learned)
	r.live.attempt(a)
}

// enter begins another phase and emits an event for it.
func (r *execution) enter(s stage) {
	r.live.enter(s)
	r.caller.begin()
	r.emit(event.Event{Type: event.Phase, Stream: s.Stream, Phase: string(s.Phase)})
}

// emit adds an event to the run's trace. It is stored with the next commit.
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

// drain returns the events that are not stored yet and removes them from the queue.
func (r *execution) drain() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.pending
	r.pending = nil
	return events
}
