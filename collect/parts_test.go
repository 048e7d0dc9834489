package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
	"github.com/headway-go/headway/transport"
)

// renewals is a store that only renews, as it is scripted.
type renewals struct {
	Store
	mu  sync.Mutex
	at  []time.Time
	ttl []time.Duration
	err func(n int) error
}

func (s *renewals) Renew(_ context.Context, l Lease, now time.Time, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Token != 7 {
		return errors.New("another lease")
	}
	s.at, s.ttl = append(s.at, now), append(s.ttl, ttl)
	return s.err(len(s.at))
}

func TestTheHeartbeatRenewsThreeTimesALeaseUntilItIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &renewals{err: func(n int) error {
			switch n {
			case 2:
				return errors.New("the disk is busy") // is tried again
			case 4:
				return ErrLeaseLost
			}
			return nil
		}}
		ctx, lost := context.WithCancelCause(t.Context())
		beat := heartbeat(ctx, s, Lease{Token: 7}, 30*time.Second, lost)
		time.Sleep(39 * time.Second)
		if ctx.Err() != nil {
			t.Fatalf("the run was ended after %d renewals: %v", len(s.at), context.Cause(ctx))
		}
		time.Sleep(time.Minute)
		if !errors.Is(context.Cause(ctx), ErrLeaseLost) {
			t.Fatalf("a lost lease did not end the run: %v", context.Cause(ctx))
		}
		beat.Wait()
		if len(s.at) != 4 {
			t.Fatalf("%d renewals, want 4 and none after the loss", len(s.at))
		}
		for i, at := range s.at {
			if want := time.Duration(i+1) * 10 * time.Second; at.Sub(began) != want || s.ttl[i] != 30*time.Second {
				t.Errorf("renewal %d at %v for %v, want %v for 30s", i, at.Sub(began), s.ttl[i], want)
			}
		}
	})
}

func TestTheHeartbeatEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &renewals{err: func(int) error { return nil }}
		ctx, end := context.WithCancelCause(t.Context())
		beat := heartbeat(ctx, s, Lease{Token: 7}, 30*time.Second, end)
		time.Sleep(15 * time.Second)
		end(nil)
		beat.Wait()
		if len(s.at) != 1 {
			t.Fatalf("%d renewals in half a lease", len(s.at))
		}
	})
}

func TestEightOpeningsInARowAreWaitedOutAndASuccessOrOtherWorkForgetsThem(t *testing.T) {
	c := &caller{}
	at := time.Unix(0, 0)
	open := func() bool {
		at = at.Add(time.Minute)
		ok := c.mayWait(at)
		// Requests refused by the same opening or an earlier one do not count.
		if c.mayWait(at) != ok || c.mayWait(at.Add(-time.Second)) != ok || c.mayWait(time.Time{}) != ok {
			t.Fatal("one opening was counted twice")
		}
		return ok
	}
	for round, forget := range []func(){c.succeeded, c.begin, c.succeeded} {
		for n := 1; n <= 8; n++ {
			if !open() {
				t.Fatalf("round %d: opening %d of 8 was not waited out", round, n)
			}
		}
		if ninth, tenth := open(), open(); ninth || tenth {
			t.Fatalf("round %d: a ninth opening in a row was waited out", round)
		}
		forget()
	}
	if !c.accepted() || (&caller{}).accepted() {
		t.Error("a success is not remembered, or one is that was none")
	}
}

func TestARedirectStaysWithItsHostAndScheme(t *testing.T) {
	request := func(address string) *http.Request {
		req, err := http.NewRequest(http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	first := request("https://api.test/a")
	many := make([]*http.Request, 10)
	for i := range many {
		many[i] = first
	}
	for _, tt := range []struct {
		to   string
		via  []*http.Request
		want error
	}{
		{"https://api.test/b", many[:1], nil},
		{"https://api.test/b", many[:9], nil},
		{"https://api.test/b", many, errRedirectLoop},
		{"http://api.test/a", many[:1], errRedirect}, // the credential would go in the clear
		{"https://api.test:8443/a", many[:1], errRedirect},
		{"https://other.test/a", many[:1], errRedirect},
		// The first host counts, for which the credential was meant, not the last hop.
		{"http://api.test/c", []*http.Request{first, request("http://api.test/b")}, errRedirect},
	} {
		if got := sameHost(request(tt.to), tt.via); !errors.Is(got, tt.want) {
			t.Errorf("to %s after %d: %v, want %v", tt.to, len(tt.via), got, tt.want)
		}
	}
}

func TestAFailureSaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &caller{run: &execution{}}
		answer := func(status int) *http.Response {
			return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(nil))}
		}
		in := func(d time.Duration) signal.Signal {
			return signal.Signal{Class: reason.Throttled, HasRetryAfter: true, RetryAfter: d}
		}
		var f connector.Failure
		c.refused(&f, answer(http.StatusTooManyRequests), nil, in(time.Hour))
		if want := time.Now().Add(time.Hour); !f.RetryAt.Equal(want) || f.Status != 429 || f.Reason != reason.RateLimited.Reason() {
			t.Errorf("got %+v, want a retry at %v", f, want)
		}
		// The reason that stopped the request takes precedence.
		before := time.Now().Add(time.Minute)
		f = connector.Failure{RetryAt: before}
		if c.refused(&f, answer(http.StatusTooManyRequests), nil, in(time.Hour)); !f.RetryAt.Equal(before) {
			t.Errorf("a retry at %v became %v", before, f.RetryAt)
		}
		f = connector.Failure{}
		if c.refused(&f, answer(http.StatusTooManyRequests), nil, signal.Signal{Class: reason.Throttled}); !f.RetryAt.IsZero() {
			t.Errorf("without a Retry-After: %v", f.RetryAt)
		}
		for status, want := range map[int]reason.Reason{
			301: reason.InvalidResponse, 399: reason.InvalidResponse, 400: reason.ClientError, 401: reason.Unauthorized,
			403: reason.Forbidden, 404: reason.NotFound, 410: reason.NotFound, 499: reason.ClientError, 500: reason.ServerError, 599: reason.ServerError,
		} {
			f = connector.Failure{}
			if c.refused(&f, answer(status), nil, signal.Signal{Class: reason.Rejected}); f.Reason != want || f.Status != status {
				t.Errorf("%d: %+v, want %v", status, f, want)
			}
		}
		f = connector.Failure{}
		if c.refused(&f, answer(429), nil, signal.Signal{Class: reason.Throttled, Exhausted: true}); f.Reason != reason.QuotaExhausted {
			t.Errorf("an exhausted quota is %v", f.Reason)
		}
	})
}

func TestACircuitIsWaitedOutToItsInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		r := &execution{o: Options{Stop: stop}}
		r.budget.deadline = time.Now().Add(time.Hour)
		for _, tt := range []struct {
			until time.Time
			took  time.Duration
			why   reason.Reason
		}{
			{time.Now().Add(time.Minute), time.Minute, reason.None},
			{time.Time{}, time.Second, reason.None}, // a probe is under way
			{time.Now().Add(time.Hour - 1), time.Hour - 1 - time.Minute - time.Second, reason.None},
			{time.Now().Add(time.Hour), 0, reason.MaxWallClock.Reason()},
		} {
			began := time.Now()
			if why := r.waitOut(t.Context(), reason.CircuitOpen.Reason(), tt.until); why != tt.why {
				t.Errorf("until %v: %v, want %v", tt.until, why, tt.why)
			} else if why == reason.None && time.Since(began) != tt.took {
				t.Errorf("until %v it took %v, want %v", tt.until, time.Since(began), tt.took)
			}
		}
	})
}

func TestFailuresOfTheProviderQuarantineNoItem(t *testing.T) {
	for why, terminal := range map[reason.Reason]bool{
		reason.RateLimited.Reason(): false, reason.UpstreamPressure.Reason(): false, reason.CircuitOpen.Reason(): false,
		reason.MaxRequests.Reason(): false, reason.Interrupted: false, reason.Unreachable: false, reason.Timeout: false,
		reason.QuotaExhausted: false, reason.Unauthorized: false, reason.TLS: false,
		reason.NotFound: true,
	} {
		if got := !excused(why); got != terminal {
			t.Errorf("%v counts against the item: %v, want %v", why, got, terminal)
		}
	}
}

func TestOnlyErrorsThatQuoteNothingArePrinted(t *testing.T) {
	const secret = "canary-4711"
	broken := "net/http: HTTP/1.x transport connection broken: "
	if got := redact(fmt.Errorf("http: %w", http.ErrSchemeMismatch)); got.Error() != errSpeaksPlain.Error() {
		t.Errorf("http behind https is %q", got)
	}
	for _, c := range []struct {
		err     error
		printed bool
	}{
		{fmt.Errorf("transport: reading the body of a 200 after 3 bytes: %w", io.ErrUnexpectedEOF), true},
		{fmt.Errorf("%w: a 200 with more than 4 bytes", transport.ErrTooLarge), true},
		{&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, true},
		{syscall.ECONNRESET, true},
		{errors.New("net/http: server response headers exceeded 10485760 bytes; aborted"), true},
		{fmt.Errorf(broken+"malformed MIME header: missing colon: %q", secret), false},
		{fmt.Errorf("http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=%q", secret), false},
		{errors.New(secret), false},
	} {
		got := redact(c.err)
		if strings.Contains(got.Error(), secret) || c.printed && got.Error() != c.err.Error() || !c.printed && got.Error() == c.err.Error() {
			t.Errorf("of %q is printed: %q", c.err, got)
		}
		if strings.Contains(c.err.Error(), "GOAWAY") != strings.Contains(got.Error(), "ended the connection before it had answered") {
			t.Errorf("of %q is said: %q", c.err, got)
		}
		if !errors.Is(got, c.err) {
			t.Errorf("the cause of %q no longer matches", c.err)
		}
	}
}

func TestWhichGapsAreServed(t *testing.T) {
	streams := []connector.Stream{{Name: "docs", DetailStream: "messages"}, {Name: "plain"}, {Name: "talks", DetailStream: "comments"}}
	for _, tt := range []struct {
		name     string
		only     []string
		cooldown time.Duration
		want     ServeRequest
	}{
		{"all", nil, 0, ServeRequest{}},
		{"those of some streams", []string{"docs", "talks"}, 0, ServeRequest{Streams: []string{"messages", "comments"}}},
		{"none but pressure's in a cooldown", nil, time.Hour, ServeRequest{NoPressure: true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &shelf{gaps: []Gap{detail(1, GapPending, nil), detail(2, GapPending, nil)}}
			r := upon(t, s, streams...)
			r.started, r.live.started = time.Now(), time.Now()
			r.o.Streams, r.cooldown.Until = tt.only, time.Now().Add(tt.cooldown)
			if end := r.recover(t.Context()); end != nil {
				t.Errorf("%s: %+v", tt.name, end)
			}
			tt.want.Now, tt.want.Before, tt.want.MaxBytes, tt.want.MaxRows = time.Now(), time.Now(), 1<<20, 500
			if diff := cmp.Diff([]ServeRequest{tt.want}, s.asks); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tt.name, diff)
			}
			if got := r.live.outstanding(); got != 2 {
				t.Errorf("%s: %d details are outstanding, want 2", tt.name, got)
			}
		})
	}
}

func TestWhatBecomesOfAPageOfGaps(t *testing.T) {
	streams := []connector.Stream{{Name: "docs", DetailStream: "messages"}, {Name: "empty", DetailStream: "none"}, {Name: "talks", DetailStream: "comments"}}
	of := func(parent, stream, key string) Gap {
		return Gap{GapKey: GapKey{stream, key}, Connection: "bench", Parent: parent, Status: GapLeased, Reason: reason.ServerError, Attempts: 2, FirstSeen: time.Unix(0, 0), LastSeen: time.Unix(0, 0), Locator: []byte(key)}
	}
	bad := &connector.Failure{Reason: reason.ServerError, Status: 500, Attempts: 1, Class: reason.Failed}
	certificate := &connector.Failure{Reason: reason.TLS}
	records := []connector.Record{{Key: "m", Data: []byte(`1`)}}
	page := []Gap{of("talks", "comments", "t"), of("docs", "messages", "d"), of("docs", "messages", "k"), of("zoo", "animals", "z"), of("docs", "docs", "e")}
	backlog := Gap{GapKey: GapKey{Stream: "messages"}, Parent: "docs", Backlog: true}
	quarantined := func(g Gap) Gap { g.Status, g.Attempts, g.LastSeen = GapTerminal, 0, clock(5); return g }
	known := map[string]KnownItem{"k": {Key: "k", Fingerprint: "f", Owed: true}}
	m := children{last: map[string]digest{"m": sum([]byte(`1`))}}
	aside := Commit{Opened: []Gap{quarantined(page[3]), quarantined(page[4])}}
	for _, tt := range []struct {
		name  string
		made  map[string]any
		page  []Gap
		asked []string
		why   reason.Reason
		want  []Commit
	}{
		{
			name: "fetched", page: page, made: map[string]any{"t": records, "d": records, "k": records}, asked: []string{"d", "k", "t"},
			want: []Commit{
				aside,
				{Stream: "docs", Sink: []byte(`1`), Items: []KnownItem{{Key: "k", Fingerprint: "f", Children: m.encode()}}, Recovered: []GapKey{{"messages", "d"}, {"messages", "k"}}},
				{Stream: "talks", Sink: []byte(`1`), Recovered: []GapKey{{"comments", "t"}}},
			},
		},
		{
			name: "a provider that must not be sent more", page: page[:3], made: map[string]any{"d": certificate, "t": records}, asked: []string{"d"}, why: reason.TLS,
			want: []Commit{
				{Stream: "docs", Items: []KnownItem{known["k"]}, Opened: []Gap{{
					GapKey: page[1].GapKey, Connection: "bench", Parent: "docs", Status: GapPending, Reason: reason.TLS, Attempts: 1, Locator: []byte("d"), LastError: "tls",
				}}, Returned: []GapKey{{"messages", "k"}}},
				{Returned: []GapKey{{"comments", "t"}}},
			},
		},
		{
			name: "an answer that is no detail", page: page[:1], made: map[string]any{"t": bad}, asked: []string{"t"},
			want: []Commit{{Stream: "talks", Opened: []Gap{{
				GapKey: page[0].GapKey, Connection: "bench", Parent: "talks", Status: GapPending, Reason: reason.ServerError, Attempts: 1, Locator: []byte("t"), LastError: "500 server_error",
			}}}},
		},
		{
			name: "the last stream's", page: page[:1], made: map[string]any{"t": certificate}, asked: []string{"t"}, why: reason.TLS,
			want: []Commit{{Stream: "talks", Opened: []Gap{{
				GapKey: page[0].GapKey, Connection: "bench", Parent: "talks", Status: GapPending, Reason: reason.TLS, Attempts: 1, Locator: []byte("t"), LastError: "tls",
			}}}},
		},
		{
			name: "before a backlog", page: []Gap{backlog, page[1]}, made: map[string]any{"d": certificate}, asked: []string{"d"}, why: reason.TLS,
			want: []Commit{{Stream: "docs", Opened: []Gap{{
				GapKey: page[1].GapKey, Connection: "bench", Parent: "docs", Status: GapPending, Reason: reason.TLS, Attempts: 1, Locator: []byte("d"), LastError: "tls",
			}}}, {Returned: []GapKey{{Stream: "messages"}}}},
		},
		{name: "nothing that can be asked for", page: page[3:], want: []Commit{aside}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, p := &shelf{known: known}, &paper{made: tt.made}
			r := walker(t, s, p, connector.Stream{})
			p.streams = streams
			r.started, r.live.started, r.live.width.set = time.Now(), time.Now(), 1
			r.saves = saves{last: time.Now(), cost: time.Hour, age: time.Hour}
			parents := map[string]connector.Stream{"docs": streams[0], "empty": streams[1], "talks": streams[2]}
			end := r.recoverPage(t.Context(), parents, tt.page, clock(5))
			if (end == nil) != (tt.why == reason.None) || end != nil && end.why != tt.why {
				t.Errorf("%s: %+v, want %v", tt.name, end, tt.why)
			}
			if asked := tt.asked != nil; r.live.last != asked {
				t.Errorf("%s: more of the page is to come: %v", tt.name, !r.live.last)
			}
			var asked []string
			for _, what := range p.log {
				if len(what) == 1 {
					asked = append(asked, what)
				}
			}
			if diff := cmp.Diff(tt.asked, asked); diff != "" {
				t.Errorf("%s: asked for: -want +got:\n%s", tt.name, diff)
			}
			ignored := cmpopts.IgnoreFields(Gap{}, "FirstSeen", "LastSeen", "RetryAt")
			if diff := cmp.Diff(tt.want, s.commits, ignored, cmpopts.IgnoreUnexported(Commit{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tt.name, diff)
			}
			for _, c := range s.commits {
				for _, g := range c.Opened {
					if g.Status == GapTerminal && !g.LastSeen.Equal(clock(5)) {
						t.Errorf("%s: %v was last seen at %v", tt.name, g.GapKey, g.LastSeen)
					}
				}
			}
		})
	}
}

func TestHowOftenRecoveryComesBack(t *testing.T) {
	slow := reason.RateLimited.Reason()
	one := Gap{ID: 9, GapKey: GapKey{"messages", "d"}, Connection: "bench", Parent: "docs", Status: GapLeased, Reason: slow}
	for _, tt := range []struct {
		name    string
		again   bool
		why     reason.Reason // of the gap that stays
		pages   [][]Gap       // of each pass, and none to end it
		ends    time.Duration
		passes  int
		waited  time.Duration
		stopped reason.Reason
	}{
		{name: "not at all", why: slow, ends: 24 * time.Hour, passes: 1},
		{name: "not for failures", again: true, why: reason.ServerError, ends: 24 * time.Hour, passes: 1},
		{name: "eight times for pressure", again: true, why: slow, ends: 24 * time.Hour, passes: 9, waited: 8 * time.Minute},
		{name: "more often when it brought something", again: true, why: slow, pages: [][]Gap{nil, nil, {one}}, ends: 24 * time.Hour, passes: 11, waited: 10 * time.Minute},
		{name: "until the run ends", again: true, why: slow, ends: 150 * time.Second, passes: 3, waited: 150 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, p := &shelf{gaps: []Gap{detail(1, GapPending, func(g *Gap) { g.Reason, g.RetryAt = tt.why, time.Time{} })}, pages: tt.pages}, &paper{}
			r := walker(t, s, p, connector.Stream{})
			p.streams = []connector.Stream{{Name: "docs", DetailStream: "messages"}}
			began := time.Now()
			r.started, r.live.started, r.live.width.set = began, began, 1
			r.budget.deadline = began.Add(tt.ends)
			end := r.recoverWhileItPays(t.Context(), tt.again)
			if (end == nil) != (tt.stopped == reason.None) {
				t.Errorf("%s: %+v", tt.name, end)
			}
			passes := 0
			seen := map[time.Time]bool{}
			for _, ask := range s.asks {
				if !seen[ask.Before] {
					passes++
				}
				seen[ask.Before] = true
			}
			if took := time.Since(began); passes != tt.passes || took != tt.waited {
				t.Errorf("%s: %d passes in %v, want %d in %v", tt.name, passes, took, tt.passes, tt.waited)
			}
		})
	}
}

func TestADetailOfAnUnlistedItemIsNotFound(t *testing.T) {
	plain, refused, failed := errors.New("it has no url"), &reason.Refusal{Reason: reason.CircuitOpen.Reason()}, &connector.Failure{Reason: reason.ServerError}
	for _, tt := range []struct {
		data string
		err  error
		same bool
	}{{"7", plain, true}, {"", refused, true}, {"", failed, true}, {"", plain, false}} {
		err := unlisted(outcome{task: task{item: connector.Item{Key: "k", Data: []byte(tt.data)}}, err: tt.err})
		f, ok := errors.AsType[*connector.Failure](err)
		same := err == tt.err //nolint:errorlint // Whether it is the very one.
		if same != tt.same || !tt.same && (!ok || f.Reason != reason.NotFound || f.Attempts != 1 || !errors.Is(err, plain)) {
			t.Errorf("%q, %v: %v", tt.data, tt.err, err)
		}
	}
}
