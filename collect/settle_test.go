package collect

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/transport"
)

func TestGapsThatFailAgainInRecovery(t *testing.T) {
	const day = 24 * time.Hour
	began := clock(0)
	for _, tt := range []struct {
		name         string
		tries        int64 // before
		last, first  time.Duration
		why          reason.Reason
		attempts     int64 // of this pass
		status       GapStatus
		returned     bool
		wantAttempts int64
		wantWait     time.Duration
		wantStatus   GapStatus
	}{
		{name: "one that was not sent for", tries: 3, last: -day, first: -day, why: reason.ServerError, status: GapPending, returned: true},
		{name: "a first failure", last: -day, first: -time.Hour, why: reason.ServerError, attempts: 1, status: GapPending, wantAttempts: 1, wantWait: time.Minute, wantStatus: GapPending},
		{name: "a fourth", tries: 3, last: -day, first: -day, why: reason.ServerError, attempts: 1, status: GapPending, wantAttempts: 1, wantWait: 8 * time.Minute, wantStatus: GapPending},
		{name: "the eighth of a day", tries: 7, last: -1, first: time.Second - day, why: reason.ServerError, attempts: 1, status: GapPending, wantAttempts: 1, wantWait: 128 * time.Minute, wantStatus: GapTerminal},
		{name: "the eighth of less than a day", tries: 7, last: -1, first: time.Second - day + 1, why: reason.ServerError, attempts: 1, status: GapPending, wantAttempts: 1, wantWait: 128 * time.Minute, wantStatus: GapPending},
		{name: "the second of this run", tries: 3, last: 0, first: -day, why: reason.ServerError, attempts: 1, status: GapPending, wantWait: 4 * time.Minute, wantStatus: GapPending},
		{name: "the second of this run, and the eighth", tries: 7, last: 0, first: -2 * day, why: reason.ServerError, attempts: 1, status: GapPending, wantWait: 64 * time.Minute, wantStatus: GapPending},
		{name: "pressure, twice in this run", tries: 3, last: 0, first: -day, why: reason.RateLimited.Reason(), attempts: 1, status: GapPending, wantAttempts: 1, wantStatus: GapPending},
		{name: "a first one in this run that was only looked at before", last: 0, first: -day, why: reason.ServerError, attempts: 1, status: GapPending, wantAttempts: 1, wantWait: time.Minute, wantStatus: GapPending},
		{name: "one that cannot be asked for", tries: 1, last: -day, first: -day, why: reason.InvalidResponse, attempts: 1, status: GapTerminal, wantAttempts: 1, wantWait: 2 * time.Minute, wantStatus: GapTerminal},
	} {
		key := GapKey{"messages", "k"}
		now := clock(time.Second)
		b := &batch{run: &execution{started: began}}
		b.Opened = []Gap{{GapKey: key, Reason: tt.why, Attempts: tt.attempts, Status: tt.status, FirstSeen: now, LastSeen: now}}
		b.Recovered = []GapKey{{"messages", "a"}, {"messages", "b"}}
		b.Progress.GapsOpened = 1
		b.settleGaps(map[GapKey]Gap{key: {GapKey: key, Attempts: tt.tries, FirstSeen: clock(tt.first), LastSeen: clock(tt.last)}})
		want := Commit{Recovered: []GapKey{{"messages", "a"}, {"messages", "b"}}, Progress: Progress{GapsRecovered: 2}}
		if tt.returned {
			want.Returned = []GapKey{key}
		} else {
			g := Gap{GapKey: key, Reason: tt.why, Attempts: tt.wantAttempts, Status: tt.wantStatus, FirstSeen: now, LastSeen: now}
			if tt.wantWait > 0 {
				g.RetryAt = now.Add(tt.wantWait)
			}
			want.Opened = []Gap{g}
		}
		if diff := cmp.Diff(want, b.Commit, cmpopts.IgnoreUnexported(Commit{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

func TestWhichPagesAreLeftToWalk(t *testing.T) {
	past := Lane{Stream: "docs", Kind: Catchup, Done: true}
	unfinished := Lane{Stream: "docs", Kind: Catchup, Walking: true}
	walking := Lane{Stream: "docs", Kind: Steady, Walking: true}
	rested := Lane{Stream: "docs", Kind: Steady, Done: true}
	other := Lane{Stream: "talks", Kind: Catchup}
	lost := errors.New("the disk is gone")
	if got, err := upon(t, &shelf{lost: lost}, connector.Stream{Name: "docs"}).unfinished(t.Context()); got || !errors.Is(err, lost) {
		t.Errorf("lanes that cannot be read: %v, %v", got, err)
	}
	for _, tt := range []struct {
		name  string
		lanes []Lane
		gone  bool
		run   bool
		docs  bool // pages of docs are left
		any   bool
	}{
		{"never collected", nil, false, false, true, false},
		{"killed on its first page", nil, false, true, true, true},
		{"all of the past", []Lane{past}, false, true, false, false},
		{"some of the past", []Lane{unfinished}, false, true, true, true},
		{"some of what changed", []Lane{past, walking}, false, true, true, true},
		{"what changed, to its end", []Lane{past, rested}, false, true, false, false},
		{"what changed, and not the past", []Lane{rested}, false, true, true, true},
		{"another stream's past", []Lane{past, other}, false, true, false, true},
		{"a stream that is gone", []Lane{unfinished}, true, true, true, false},
		{"another beside one that is gone", []Lane{unfinished, other}, true, true, true, true},
	} {
		if got := unwalked(tt.lanes, "docs"); got != tt.docs {
			t.Errorf("%s: pages of docs are left: %v", tt.name, got)
		}
		c := ConnectionStatus{Lanes: tt.lanes, Shapes: []StreamShape{{Stream: "docs", Gone: tt.gone}, {Stream: "talks"}}}
		if tt.run {
			c.LastRun = &Run{}
		}
		r := upon(t, &shelf{status: c}, connector.Stream{Name: "docs"})
		if got, err := r.unfinished(t.Context()); got != tt.docs || err != nil {
			t.Errorf("%s: a run left pages of docs: %v, %v", tt.name, got, err)
		}
		if got := c.Unfinished(); got != tt.any {
			t.Errorf("%s: pages are left: %v", tt.name, got)
		}
	}
}

func TestEachEventIsCommittedOnce(t *testing.T) {
	var r execution
	r.emit(event.Event{Type: event.RunStart})
	r.emit(event.Event{Type: event.RunEnd})
	if got := r.drain(); len(got) != 2 || got[0].Type != event.RunStart || got[1].Type != event.RunEnd || got[0].At.IsZero() {
		t.Errorf("got %+v", got)
	}
	if got := r.drain(); got != nil {
		t.Errorf("and again: %+v", got)
	}
}

func TestHowDetailsWerePagedIsKeptByStream(t *testing.T) {
	var c caller
	none := connector.DetailsWalked{}
	if got := c.detailsOf("messages"); got != none {
		t.Errorf("before the first: %+v", got)
	}
	var w connector.Walked
	w.AddPage(3, 3, true, connector.EndUnmatched)
	var want connector.DetailsWalked
	for range 2 {
		c.DetailWalked("messages", &w)
		want.Add(&w)
	}
	if got := c.detailsOf("messages"); got != want || got == none {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := c.detailsOf("comments"); got != none {
		t.Errorf("of another stream: %+v", got)
	}
}

func TestWhichWarningsOfAWalkAreEmitted(t *testing.T) {
	plain := func(n int) (p connector.Page) {
		for i := range n {
			p.Items = append(p.Items, connector.Item{Key: fmt.Sprint(i), Fingerprint: "f"})
		}
		p.End, p.Asked = connector.EndUnmatched, n
		return p
	}
	next := plain(3)
	next.Next = "b"
	short := plain(2)
	short.Asked = 3
	refused := &connector.Failure{Reason: reason.ClientError, Class: reason.Rejected, Status: 400}
	past := Lane{Stream: "docs", Kind: Catchup, Done: true}
	steady := func(l Lane) []Lane {
		l.Stream, l.Kind, l.Walking = "docs", Steady, l.Cursor != ""
		return []Lane{past, l}
	}
	rest := func(l Lane) []Lane {
		l.Stream, l.Kind, l.Walking, l.Cursor = "docs", Catchup, true, "b"
		return []Lane{l}
	}
	warning := func(kind connector.WarningKind, n int64) connector.Warning {
		return connector.Warning{Kind: kind, Stream: "docs", Records: n}
	}
	unmatched, full, null := warning(connector.PagingUnmatched, 3), warning(connector.FullLastPage, 3), warning(connector.IncrementalNull, 3)
	six := warning(connector.IncrementalNull, 6)
	for _, tt := range []struct {
		name  string
		inc   bool // incremental
		pages map[string][]any
		lanes []Lane
		want  []connector.Warning
	}{
		{"a first page without a next one", false, map[string][]any{"": {plain(3)}}, nil, []connector.Warning{unmatched}},
		{"all again", false, map[string][]any{"": {plain(3)}}, []Lane{past}, nil},
		{"a first walk, then what changed", true, map[string][]any{"": {plain(3)}}, nil, []connector.Warning{unmatched, null}},
		{"what changed", true, map[string][]any{"": {plain(3)}}, steady(Lane{Watermark: "5"}), nil},
		{"a full end of what changed", true, map[string][]any{"": {next}, "b": {plain(3)}}, steady(Lane{Watermark: "5"}), []connector.Warning{full}},
		{"the rest of a first walk", true, map[string][]any{"b": {plain(3)}, "": {plain(0)}}, rest(Lane{Pages: 1}), []connector.Warning{full, null}},
		{"the rest of one with watermarks", true, map[string][]any{"b": {plain(3)}, "": {plain(0)}}, rest(Lane{Pages: 1, High: "5"}), []connector.Warning{full}},
		{"begun again", true, map[string][]any{"b": {refused}, "": {plain(3)}}, rest(Lane{Pages: 1, High: "5"}), []connector.Warning{unmatched, null}},
		{"what changed, begun again", true, map[string][]any{"b": {refused}, "": {plain(3), plain(0)}}, steady(Lane{Cursor: "b", Since: "4", Pages: 1}), nil},
		{"a page that is not full", true, map[string][]any{"": {next}, "b": {short}}, nil, []connector.Warning{{Kind: connector.IncrementalNull, Stream: "docs", Records: 5}}},
		{"two pages", true, map[string][]any{"": {next}, "b": {plain(3)}}, nil, []connector.Warning{full, six}},
	} {
		synctest.Test(t, func(t *testing.T) {
			stream := connector.Stream{Name: "docs", Incremental: tt.inc}
			r := walker(t, &shelf{}, &paper{pages: tt.pages}, stream)
			var said []connector.Warning
			r.o.OnEvent = func(e event.Event) {
				if e.Type == event.Warning {
					said = append(said, WarningOf(e))
				}
			}
			if end := r.stream(t.Context(), stream, tt.lanes); end != nil {
				t.Errorf("%s: %+v", tt.name, end)
			}
			if diff := cmp.Diff(tt.want, r.warnings); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tt.name, diff)
			}
			if diff := cmp.Diff(r.warnings, said); diff != "" {
				t.Errorf("%s: in the trace: -summary +trace:\n%s", tt.name, diff)
			}
		})
	}
	r := upon(t, &shelf{})
	other := unmatched
	other.Stream = "talks"
	r.warn(Catchup, false, []connector.Warning{unmatched, unmatched, full, other})
	r.warn(Catchup, false, []connector.Warning{full, other})
	if diff := cmp.Diff([]connector.Warning{unmatched, full, other}, r.warnings); diff != "" {
		t.Errorf("each once: -want +got:\n%s", diff)
	}
}

func TestWarningsAboutDetailsAreEmittedAtTheEnd(t *testing.T) {
	streams := []connector.Stream{{Name: "plain"}, {Name: "docs", DetailStream: "messages"}, {Name: "talks", DetailStream: "comments"}, {Name: "news", DetailStream: "texts"}}
	r := upon(t, &shelf{}, streams...)
	var w connector.Walked
	w.AddPage(3, 3, true, connector.EndUnmatched)
	for _, of := range []string{"messages", "comments", ""} {
		r.caller.DetailWalked(of, &w)
	}
	r.initial = map[string]bool{"messages": true}
	r.unmarked = map[string]int64{"": 4, "comments": 1, "messages": 0}
	r.warnOfDetails()
	want := []connector.Warning{
		{Kind: connector.DetailPagingUnmatched, Stream: "messages", Records: 1},
		{Kind: connector.DetailFullLastPage, Stream: "comments", Records: 1}, {Kind: connector.TombstonesMissing, Stream: "comments", Records: 1},
	}
	if diff := cmp.Diff(want, r.warnings); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWhichPressureIsWaitedOut(t *testing.T) {
	open, slow := reason.CircuitOpen.Reason(), reason.RateLimited.Reason()
	const minute = time.Minute
	for _, tt := range []struct {
		name     string
		why      reason.Reason
		failed   bool
		retryAt  time.Duration // 0 is unknown
		deadline time.Duration // 0 is no bound
		want     time.Duration // waited
		end      reason.Reason
	}{
		{name: "a circuit", why: open, retryAt: minute, deadline: time.Hour, want: minute},
		{name: "a circuit with a probe under way", why: open, deadline: time.Hour, want: time.Second},
		{name: "a circuit that is open for longer than the run", why: open, retryAt: time.Hour, deadline: minute, want: minute, end: reason.MaxWallClock.Reason()},
		{name: "a circuit that closes as the run ends", why: open, retryAt: minute, deadline: minute, want: minute, end: reason.MaxWallClock.Reason()},
		{name: "a limit", why: slow, retryAt: 2 * time.Second, deadline: time.Hour, want: 2 * time.Second},
		{name: "a limit of unknown length", why: slow, deadline: time.Hour, want: minute},
		{name: "a limit for longer than the run", why: slow, retryAt: time.Hour, deadline: minute, end: slow},
		{name: "a run without an end", why: slow, retryAt: minute, end: slow},
		{name: "a circuit in a run without an end", why: open, retryAt: minute, end: open},
		{name: "a failure under pressure", why: slow, failed: true, retryAt: minute, deadline: time.Hour, end: slow},
		{name: "something other than pressure", why: reason.MaxRequests.Reason(), retryAt: minute, deadline: time.Hour, end: reason.MaxRequests.Reason()},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := upon(t, &shelf{})
			began := time.Now()
			r.started, r.live.started = began, began
			r.caller.waits = 3
			s := &stop{why: tt.why, cause: errors.New("x")}
			if tt.failed {
				s.err = errors.New("y")
			}
			if tt.retryAt > 0 {
				s.retryAt = began.Add(tt.retryAt)
			}
			if tt.deadline > 0 {
				r.budget.deadline = began.Add(tt.deadline)
			}
			var waiting reason.Reason
			var until time.Time
			time.AfterFunc(time.Millisecond, func() {
				r.live.mu.Lock()
				defer r.live.mu.Unlock()
				waiting, until = r.live.waiting, r.live.until
			})
			got := r.outlast(t.Context(), s)
			why := reason.None
			if got != nil {
				why = got.why
			}
			if why != tt.end || got != nil && got != s && !errors.Is(got.cause, s.cause) {
				t.Errorf("%s: %+v, want %v", tt.name, got, tt.end)
			}
			if took := time.Since(began); took != tt.want {
				t.Errorf("%s: waited %v, want %v", tt.name, took, tt.want)
			}
			if tt.want > 0 && (waiting != tt.why || !until.Equal(began.Add(tt.want)) || r.live.waiting != reason.None || !r.live.until.IsZero()) {
				t.Errorf("%s: shown as waiting for %v until %v, then %v until %v", tt.name, waiting, until, r.live.waiting, r.live.until)
			}
			by := reason.BoundCooldown
			if tt.why == open {
				by = reason.BoundCircuit
			}
			if got := r.live.account.bounds(2*time.Hour, headway.Wait{})[by]; got != tt.want {
				t.Errorf("%s: %v count as waits for %v, want %v", tt.name, got, by, tt.want)
			}
			if forgot := r.caller.waits == 0; forgot != (got == nil) {
				t.Errorf("%s: %d waits count against what follows", tt.name, r.caller.waits)
			}
			synctest.Wait()
		})
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := upon(t, &shelf{})
		if why := r.waitOut(t.Context(), open, began.Add(minute)); why != reason.None || time.Since(began) != minute {
			t.Errorf("without a deadline: %v after %v", why, time.Since(began))
		}
	})
}

func TestOnlyAFullWalkClosesGapsOfBadEntries(t *testing.T) {
	for name, tt := range map[string]struct {
		lane Lane
		want bool
	}{
		"from the first page":   {Lane{}, true},
		"the rest of a walk":    {Lane{Walking: true, Cursor: "b", Pages: 1}, false},
		"a walk that has begun": {Lane{Walking: true}, false},
		"since a watermark":     {Lane{Since: "5"}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &shelf{gaps: []Gap{
				detail(1, GapTerminal, func(g *Gap) { g.Stream, g.LastSeen = "docs", time.Now().Add(-1) }),
				detail(2, GapTerminal, func(g *Gap) { g.Stream, g.LastSeen = "docs", time.Now() }),
			}}
			stream := connector.Stream{Name: "docs"}
			r := walker(t, s, &paper{pages: map[string][]any{"": {pageOf("")}, "b": {pageOf("")}}}, stream)
			tt.lane.Stream, tt.lane.Kind = "docs", Catchup
			if end := r.walk(t.Context(), stream, &tt.lane, 0); end != nil {
				t.Errorf("%s: %+v", name, end)
			}
			if want := (stage{PhaseCatchup, "docs"}); r.live.stage != want {
				t.Errorf("%s: in %+v, want %+v", name, r.live.stage, want)
			}
			var mended []GapKey
			for _, c := range s.commits {
				mended = append(mended, c.Recovered...)
			}
			if want := []GapKey{{"docs", "1"}}; tt.want != cmp.Equal(want, mended) || !tt.want && mended != nil {
				t.Errorf("%s: mended %v", name, mended)
			}
		})
	}
}

func TestThePageAheadIsGivenUpWithTheRun(t *testing.T) {
	full := errors.New("the disk is full")
	for name, tt := range map[string]func(*execution, *shelf, *paper){
		"a page that cannot be written": func(_ *execution, _ *shelf, p *paper) { p.full = full },
		"a commit that fails":           func(_ *execution, s *shelf, _ *paper) { s.err = full },
		"a commit that waits and is overdue": func(r *execution, s *shelf, _ *paper) {
			s.err, r.saves = full, saves{last: time.Now(), cost: time.Hour}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			stream := connector.Stream{Name: "docs"}
			s, p := &shelf{}, &paper{pages: map[string][]any{"": {pageOf("b", "1")}, "b": {pageOf("")}}, hang: "b"}
			r := walker(t, s, p, stream)
			r.started, r.live.started = time.Now(), time.Now()
			tt(r, s, p)
			if end := r.walk(t.Context(), stream, &Lane{Stream: "docs", Kind: Catchup}, 0); end == nil || !errors.Is(end.err, full) {
				t.Errorf("%s: %+v", name, end)
			}
			if !p.ended {
				t.Errorf("%s: the next page is still asked for", name)
			}
		})
	}
}

// flown models a provider for tests of width: places requests are served at once, each for
// takes. Further requests wait or, if refuses is set, are refused.
type flown struct {
	places  int
	refuses bool
	takes   time.Duration
	every   time.Duration // pacing lets one go so often; 0 for at once
	until   time.Duration // when pacing ends; 0 for never
}

// run requests the given number of responses. It returns how long that took, the greatest
// width, and how many requests were refused.
func (f flown) run(w *width, answers int) (took time.Duration, widest, refused int) {
	free := make([]time.Duration, f.places) // when each place is
	var under []transport.Attempt           // Latency is the instant of its end until then
	var now, next time.Duration
	for answers > 0 {
		for len(under) < w.atOnce() {
			a := transport.Attempt{Class: reason.OK}
			at := max(now, next)
			if f.every > 0 && (f.until == 0 || now < f.until) {
				if a.Wait = at - now; a.Wait > 0 {
					a.Held = headway.Wait{Reason: reason.Pacing, Bound: reason.BoundLimit}
				}
				next = at + f.every
			}
			i := 0
			for j := range free {
				if free[j] < free[i] {
					i = j
				}
			}
			if a.Latency = max(at, free[i]) + f.takes; f.refuses && free[i] > at {
				a.Class, a.Latency = reason.Throttled, at+time.Millisecond
				refused++
			} else {
				free[i] = a.Latency
			}
			a.Number = int(at) // when it was sent
			under = append(under, a)
		}
		i := 0
		for j := range under {
			if under[j].Latency < under[i].Latency {
				i = j
			}
		}
		a := under[i]
		under = append(under[:i], under[i+1:]...)
		now = max(now, a.Latency)
		a.Latency -= time.Duration(a.Number)
		if a.Class == reason.OK {
			answers--
		}
		w.answered(now, a)
		widest = max(widest, w.atOnce())
	}
	return now, widest, refused
}

func TestWidthGrowsWhileThroughputRises(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name    string
		set     int
		by      flown
		widest  int
		refused int           // at most
		took    time.Duration // at most, for 2,000 answers
	}{
		{"nothing is in its way", 0, flown{places: 100, takes: 200 * ms}, DefaultMaxConcurrency, 0, 20 * time.Second},
		{"the owner's stands", 3, flown{places: 100, takes: 200 * ms}, 3, 0, 134 * time.Second},
		{"answers come at once", 0, flown{places: 100, takes: 5 * ms}, 1, 0, 10 * time.Second},
		{"one is served at a time", 0, flown{places: 1, takes: 200 * ms}, 2, 0, 400 * time.Second},
		{"four are", 0, flown{places: 4, takes: 200 * ms}, 9, 0, 102 * time.Second},
		{"four are, and more are refused", 0, flown{places: 4, takes: 200 * ms, refuses: true}, 6, 4, 102 * time.Second},
		{"four are, once the pace has grown", 0, flown{places: 4, takes: 200 * ms, refuses: true, every: 300 * ms, until: 2 * time.Second}, 6, 4, 103 * time.Second},
		{"pacing is what it waits for", 0, flown{places: 100, takes: 50 * ms, every: 100 * ms}, 1, 0, 201 * time.Second},
		{"as many as pacing lets go", 0, flown{places: 100, takes: time.Second, every: 100 * ms}, 13, 0, 240 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := width{set: tt.set}
			took, widest, refused := tt.by.run(&w, 2000)
			if widest > tt.widest || refused > tt.refused || took > tt.took {
				t.Errorf("it took %v, %d at once at most, %d refused; want at most %v, %d, %d", took, widest, refused, tt.took, tt.widest, tt.refused)
			}
		})
	}
}
