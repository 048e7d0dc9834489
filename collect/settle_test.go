package collect

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

func TestWhatRecoverySaysOfGapsThatFailedAgain(t *testing.T) {
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
