package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
)

// garbling is a connector whose first lists are not pages.
type garbling struct {
	connector.Connector
	bad   int
	asked int
}

func (g *garbling) List(context.Context, connector.Caller, connector.ListRequest) (connector.Page, error) {
	if g.asked++; g.asked <= g.bad {
		return connector.Page{}, &connector.Failure{Reason: reason.InvalidResponse, Status: 200, Class: reason.Failed}
	}
	return connector.Page{Next: "b"}, nil
}

func TestAListThatIsNotAPageIsAskedForAsOftenAsARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name     string
			bad      int
			stop     bool
			asked    int
			complete bool
		}{
			{"at once", 0, false, 1, true},
			{"the third time", 2, false, 3, true},
			{"never", 99, false, 12, false},
			{"once, and then the run is stopped", 9, true, 1, false},
			{"once, and then the time is over", 9, false, 1, false},
		} {
			g := &garbling{bad: tt.bad}
			halt := make(chan struct{})
			r := &execution{o: Options{Connector: g, Retry: retry.Backoff{Base: time.Second, Cap: time.Hour, Attempts: 12}, Stop: halt}, started: time.Now()}
			r.live.started = r.started
			if tt.stop {
				close(halt)
			} else if tt.bad > 2 && tt.asked == 1 {
				r.budget.deadline = r.started
			}
			began := time.Now()
			page, err := r.list(t.Context(), connector.ListRequest{})
			// Waits of random length, the first of at most a second, the next of twice that.
			if longest := time.Second * (1<<(tt.asked-1) - 1); time.Since(began) > longest {
				t.Errorf("%s: %v between requests, at most %v", tt.name, time.Since(began), longest)
			}
			if g.asked != tt.asked || (err == nil) != tt.complete || (page.Next == "b") != tt.complete {
				t.Errorf("%s: asked %d times, %+v, %v", tt.name, g.asked, page, err)
			}
		}
		halt := make(chan struct{})
		r := &execution{o: Options{Stop: halt}}
		r.live.started = time.Now()
		if began := time.Now(); !r.rest(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("a rest of a minute took %v", time.Since(began))
		}
		if got := r.live.account.bounds(2*time.Minute, headway.Wait{})[reason.BoundBackoff]; got != time.Minute {
			t.Errorf("a rest of a minute counts as %v of waits for a list", got)
		}
		if r.halted(t.Context()) != nil {
			t.Error("the rest ended the run")
		}
		close(halt)
		if r.rest(t.Context(), time.Minute) {
			t.Error("a run that was stopped rests to the end")
		}
	})
}

func TestABadFirstPageIsTheConnectionsFault(t *testing.T) {
	bad := func(change func(*connector.Failure)) error {
		f := &connector.Failure{Reason: reason.InvalidResponse, Status: 200, Class: reason.Failed}
		change(f)
		return f
	}
	page := bad(func(*connector.Failure) {})
	for _, tt := range []struct {
		name   string
		lane   Lane
		err    error
		failed bool
		why    reason.Reason
	}{
		{"the very first page", Lane{Kind: Catchup}, page, true, reason.InvalidResponse},
		{"the second", Lane{Kind: Catchup, Pages: 1}, page, false, reason.InvalidResponse},
		{"the first of a walk once all was walked", Lane{Kind: Catchup, Done: true}, page, false, reason.InvalidResponse},
		{"the first of what changed", Lane{Kind: Steady}, page, false, reason.InvalidResponse},
		{"a page that is gone", Lane{Kind: Steady}, bad(func(f *connector.Failure) { f.Reason, f.Status = reason.NotFound, 404 }), true, reason.NotFound},
		{"a provider in trouble", Lane{Kind: Catchup}, bad(func(f *connector.Failure) { f.Reason, f.Status = reason.ServerError, 503 }), false, reason.ServerError},
	} {
		end := (&execution{}).unlisted(t.Context(), &tt.lane, tt.err)
		failure, cause := error(nil), tt.err
		if tt.failed {
			failure, cause = tt.err, nil
		}
		if end.why != tt.why || !errors.Is(end.err, failure) || !errors.Is(end.cause, cause) {
			t.Errorf("%s: %+v", tt.name, end)
		}
	}
}

func TestWhichPageIsAskedForAhead(t *testing.T) {
	of := func(sizes ...int) (p connector.Page) {
		for _, n := range sizes {
			p.Items = append(p.Items, connector.Item{Data: make([]byte, n)})
		}
		return p
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		page connector.Page
		last bool
		want bool
	}{
		{"the next of small pages", t.Context(), of(1, 1), false, true},
		{"the next of an empty page", t.Context(), of(), false, true},
		{"none after the last", t.Context(), of(1), true, false},
		{"none once the run ended", ended, of(1), false, false},
		{"the next of a page that is large", t.Context(), of(4<<20, 4<<20), false, true},
		{"none beside one that is too large", t.Context(), of(4<<20, 4<<20, 1), false, false},
	} {
		if got := (&execution{}).mayAskAhead(tt.ctx, tt.page, &Lane{Walking: !tt.last}); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// paper is a connector with one list that records its requests, and a sink that records
// what is written and takes a second to sync.
type paper struct {
	lists
	pages     map[string][]any // by cursor: a page or an error for each time it is asked for, the last one for ever
	made      map[string]any   // details by key: records or an error
	mu        sync.Mutex
	log       []string
	kept      []string // stream:parent/key of each record that was written
	hang      string   // the cursor of a page that never comes
	ended     bool     // the request for that one was given up
	full      error    // of the sink, once after so many writes
	fullAfter int
	onWrite   func()
}

func (p *paper) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, what)
}

// asked returns the requests in order.
func (p *paper) asked() []string {
	return slices.DeleteFunc(p.log, func(what string) bool { return !strings.Contains(what, "@") })
}

func (p *paper) List(ctx context.Context, _ connector.Caller, r connector.ListRequest) (connector.Page, error) {
	p.note(r.Cursor + "@" + r.Since)
	answers := p.pages[r.Cursor]
	if len(answers) > 1 {
		p.pages[r.Cursor] = answers[1:]
	}
	if p.hang != "" && r.Cursor == p.hang {
		<-ctx.Done()
		p.ended = true
		return connector.Page{}, ctx.Err()
	}
	if err, failed := answers[0].(error); failed {
		return connector.Page{}, err
	}
	return answers[0].(connector.Page), nil
}

func (p *paper) Detail(_ context.Context, _ connector.Caller, _ string, it connector.Item) ([]connector.Record, error) {
	p.note(it.Key)
	if err, failed := p.made[it.Key].(error); failed {
		return nil, err
	}
	records, _ := p.made[it.Key].([]connector.Record)
	return records, nil
}

func (*paper) Open(context.Context, json.RawMessage, []StreamInfo) error { return nil }
func (*paper) Close() error                                              { return nil }

func (p *paper) Write(_ context.Context, stream string, records []Record) error {
	time.Sleep(time.Millisecond) // a page ahead is asked for first
	p.note(fmt.Sprint("write ", len(records)))
	if p.onWrite != nil {
		p.onWrite()
	}
	for _, r := range records {
		p.kept = append(p.kept, stream+":"+r.Parent+"/"+r.Key)
	}
	if p.fullAfter--; p.fullAfter == -1 {
		return p.full
	}
	return nil
}

func (p *paper) Sync(context.Context) (json.RawMessage, error) {
	time.Sleep(time.Second)
	p.note("sync")
	return json.RawMessage(`1`), nil
}

// walker is a run of one stream with p as connector and sink.
func walker(t *testing.T, s *shelf, p *paper, stream connector.Stream) *execution {
	r := upon(t, s, stream)
	r.o.Connector, r.o.Sink = p, p
	r.stored["docs"] = &keySet{}
	r.o.backlogAfter = backlogAfter
	return r
}

// pageOf is a page of items of those watermarks.
func pageOf(next string, marks ...string) connector.Page {
	p := connector.Page{Next: next, ServerTime: time.Date(2024, 1, 10, 0, 0, 0, 0, time.UTC)}
	for i, m := range marks {
		p.Items = append(p.Items, connector.Item{Key: fmt.Sprint(next, i), Fingerprint: "f", Watermark: m})
	}
	return p
}

func TestWhichPagesOfAStreamAreAskedFor(t *testing.T) {
	const first, last, begun = "2024-01-02T00:00:00Z", "2024-01-03T00:00:00Z", "2024-01-09T23:59:59Z"
	serverTime := time.Date(2024, 1, 10, 0, 0, 0, 0, time.UTC)
	past := Lane{Stream: "docs", Kind: Catchup, Done: true, Watermark: last}
	for _, tt := range []struct {
		name     string
		only     LaneKind
		whole    bool // the stream is not incremental
		lookback time.Duration
		bound    int64
		opaque   bool // its watermarks are no points in time
		lanes    []Lane
		want     []string
		bounded  bool
	}{
		{name: "all, then what changed", want: []string{"@", "b@", "@" + last, "b@" + last}},
		{name: "all, where nothing else can be asked for", whole: true, want: []string{"@", "b@"}},
		{name: "all again", whole: true, lanes: []Lane{past}, want: []string{"@", "b@"}},
		{name: "the rest of all", whole: true, lanes: []Lane{past, {Stream: "docs", Kind: Steady, Walking: true, Cursor: "b", Pages: 1}}, want: []string{"b@"}},
		{name: "only the past", only: Catchup, want: []string{"@", "b@"}},
		{name: "only the past, which is over", only: Catchup, lanes: []Lane{past}},
		{name: "only what changed, where nobody can say", only: Steady, whole: true},
		{name: "only what changed, before anything was collected", only: Steady, want: []string{"@", "@" + begun, "b@" + begun}},
		{name: "only what changed, and nobody knows since when", only: Steady, opaque: true, want: []string{"@"}},
		{
			name: "only what changed, some pages into the past", only: Steady, want: []string{"@" + begun, "b@" + begun},
			lanes: []Lane{{Stream: "docs", Kind: Catchup, Walking: true, Cursor: "b", Pages: 1, High: first, Start: serverTime}},
		},
		{
			name: "only what changed, which has begun", only: Steady, want: []string{"b@" + first, "@" + last, "b@" + last},
			lanes: []Lane{{Stream: "docs", Kind: Steady, Walking: true, Cursor: "b", Since: first, Pages: 1, Start: serverTime}},
		},
		{
			name: "only what changed, as before", only: Steady, want: []string{"@" + first, "b@" + first},
			lanes: []Lane{{Stream: "docs", Kind: Steady, Watermark: first}},
		},
		{
			name: "two pages of what changed", only: Steady, want: []string{"a@" + first, "b@" + first, "@" + last, "b@" + last},
			lanes: []Lane{{Stream: "docs", Kind: Steady, Walking: true, Cursor: "a", Since: first, Pages: 1, Start: serverTime}},
		},
		{name: "since an hour before", lookback: time.Hour, lanes: []Lane{past}, want: []string{"@2024-01-02T23:00:00Z", "b@2024-01-02T23:00:00Z"}},
		{name: "since hardly before", lookback: 1, lanes: []Lane{past}, want: []string{"@2024-01-02T23:59:59Z", "b@2024-01-02T23:59:59Z"}},
		{name: "one page of the past, then what changed", bound: 1, bounded: true, want: []string{"@", "@" + begun, "b@" + begun}},
		{name: "the last page of the past", only: Catchup, bound: 2, want: []string{"@", "b@"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			pages := map[string][]any{"": {pageOf("b", first)}, "a": {pageOf("b", first)}, "b": {pageOf("", last)}}
			if tt.opaque {
				pages = map[string][]any{"": {pageOf("b", "one")}, "b": {pageOf("", "two")}}
			}
			stream := connector.Stream{Name: "docs", DetailStream: "messages", Incremental: !tt.whole, Lookback: tt.lookback}
			p := &paper{pages: pages}
			r := walker(t, &shelf{}, p, stream)
			r.suspended = &stop{why: reason.RateLimited.Reason()} // the details are for later
			r.o.Lane, r.o.CatchupPages = tt.only, tt.bound
			if end := r.stream(t.Context(), stream, tt.lanes); end != nil {
				t.Errorf("%s: stopped by %+v", tt.name, end)
			}
			if diff := cmp.Diff(tt.want, p.asked(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tt.name, diff)
			}
			if r.bounded != tt.bounded {
				t.Errorf("%s: pages are left by the owner's bound: %v", tt.name, r.bounded)
			}
		})
	}
}

func TestWhatAWalkDoesAboutAListThatFails(t *testing.T) {
	refused := &connector.Failure{Reason: reason.ClientError, Class: reason.Rejected, Status: 400}
	trouble := &connector.Failure{Reason: reason.ServerError, Class: reason.Failed, Status: 503}
	open := &reason.Refusal{Reason: reason.CircuitOpen.Reason()}
	for _, tt := range []struct {
		name  string
		pages map[string][]any
		only  LaneKind
		lanes []Lane
		want  []string
		why   reason.Reason
		notes int
	}{
		{
			only: Catchup, name: "a first page that is refused", why: reason.ClientError, want: []string{"@"},
			pages: map[string][]any{"": {refused}},
		},
		{
			only: Catchup, name: "a cursor that expired", want: []string{"@", "b@", "@", "b@"}, notes: 1,
			pages: map[string][]any{"": {pageOf("b")}, "b": {refused, pageOf("")}},
		},
		{
			only: Catchup, name: "one that is never taken", why: reason.ClientError, want: []string{"@", "b@", "@", "b@"}, notes: 1,
			pages: map[string][]any{"": {pageOf("b")}, "b": {refused}},
		},
		{
			only: Catchup, name: "another cursor the second time", want: []string{"b@", "@", "c@"}, notes: 1,
			lanes: []Lane{{Stream: "docs", Kind: Catchup, Walking: true, Cursor: "b", Pages: 1}},
			pages: map[string][]any{"": {pageOf("c")}, "b": {refused}, "c": {pageOf("")}},
		},
		{
			only: Catchup, name: "a circuit that opens", want: []string{"@", "b@", "b@", "c@"},
			pages: map[string][]any{"": {pageOf("b")}, "b": {open, pageOf("c")}, "c": {pageOf("")}},
		},
		{
			name: "a provider in trouble", why: reason.ServerError, want: []string{"b@4"},
			lanes: []Lane{{Stream: "docs", Kind: Catchup, Done: true, Watermark: "5"}, {Stream: "docs", Kind: Steady, Walking: true, Cursor: "b", Since: "4", Pages: 1}},
			pages: map[string][]any{"": {pageOf("")}, "b": {trouble}},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			stream := connector.Stream{Name: "docs", DetailStream: "messages", Incremental: true}
			p, s := &paper{pages: tt.pages}, &shelf{}
			r := walker(t, s, p, stream)
			r.o.Lane = tt.only
			r.started, r.live.started = time.Now(), time.Now()
			r.budget.deadline = time.Now().Add(time.Hour)
			notes := 0
			r.o.OnEvent = func(e event.Event) {
				if e.Note == "cursor_refused_walk_restarted" {
					notes++
				}
			}
			end := r.stream(t.Context(), stream, tt.lanes)
			if (end == nil) != (tt.why == reason.None) || end != nil && end.why != tt.why {
				t.Errorf("%s: stopped by %+v, want %v", tt.name, end, tt.why)
			}
			if diff := cmp.Diff(tt.want, p.asked(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tt.name, diff)
			}
			if notes != tt.notes {
				t.Errorf("%s: said %d times that the walk begins again, want %d", tt.name, notes, tt.notes)
			}
			over := false
			for _, c := range s.commits {
				over = over || c.Lane != nil && c.Lane.Done
			}
			if over != (tt.why == reason.None) {
				t.Errorf("%s: the walk is over: %v", tt.name, over)
			}
		})
	}
}

func TestThePageAheadIsAskedForWhileTheBoundAllowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := connector.Stream{Name: "docs"}
		p := &paper{pages: map[string][]any{"": {pageOf("b", "1")}, "b": {pageOf("b", "1")}}}
		if end := walker(t, &shelf{}, p, stream).stream(t.Context(), stream, nil); end == nil || end.why != reason.CursorRepeats {
			t.Errorf("a list that runs in a circle: %+v", end)
		}
		if diff := cmp.Diff([]string{"@", "b@"}, p.asked()); diff != "" {
			t.Errorf("a list that runs in a circle: -want +got:\n%s", diff)
		}
	})
	pages := func() map[string][]any {
		return map[string][]any{"": {pageOf("b", "1")}, "b": {pageOf("c", "2")}, "c": {pageOf("", "3")}}
	}
	for bound, want := range map[int64][]string{
		0: {"@", "b@", "write 1", "sync", "c@", "write 1", "write 1", "sync"},
		1: {"@", "write 1", "sync"},
		2: {"@", "b@", "write 1", "sync", "write 1", "sync"},
		4: {"@", "b@", "write 1", "sync", "c@", "write 1", "write 1", "sync"},
	} {
		synctest.Test(t, func(t *testing.T) {
			stream := connector.Stream{Name: "docs"}
			p := &paper{pages: pages()}
			r := walker(t, &shelf{}, p, stream)
			r.started, r.live.started = time.Now(), time.Now()
			r.o.CatchupPages = bound
			if end := r.stream(t.Context(), stream, nil); end != nil || r.bounded != (bound > 0 && bound < 3) {
				t.Errorf("at most %d pages: %+v, bounded %v", bound, end, r.bounded)
			}
			if diff := cmp.Diff(want, p.log); diff != "" {
				t.Errorf("at most %d pages: -want +got:\n%s", bound, diff)
			}
		})
	}
}
