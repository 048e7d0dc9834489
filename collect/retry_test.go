package collect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	reader "github.com/parquet-go/parquet-go"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
	"github.com/headway-go/headway/signal"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/sink/parquet"
	sqlsink "github.com/headway-go/headway/sink/sqlite"
)

func TestAnEmptyRetryBudgetDefersTheRemainder(t *testing.T) {
	b := newBench(t, 12)
	b.pageSize = 12
	b.o.Retry.Attempts = 3
	b.o.Pacing.NoBreaker = true
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		return isDetail(r) && fail(w, http.StatusInternalServerError)
	}
	s, err := b.run(t)
	if err != nil || s.State != collect.RunDeferred || s.Reason != reason.RetryBudget.Reason() {
		t.Fatalf("got %s (%s), %v", s.State, s.Reason, err)
	}
	// The list, four details with two retries each, and the one that found the
	// budget empty.
	if s.Attempts != 1+4*3+1 || s.Retries != 8 {
		t.Fatalf("%d attempts, %d retries", s.Attempts, s.Retries)
	}
	gaps, unsent := b.gaps(t, collect.GapPending), 0
	for _, g := range gaps {
		if g.Attempts == 0 {
			unsent++
			if g.Reason != reason.RetryBudget.Reason() {
				t.Errorf("a detail that was not asked for is owed for %s", g.Reason)
			}
		}
	}
	if len(gaps) != 12 || unsent != 7 {
		t.Fatalf("%d gaps, %d of them never sent, want 12 and 7", len(gaps), unsent)
	}
	if s.Cooldown.Cycles != 0 || !s.Cooldown.Until.IsZero() {
		t.Fatalf("a cap of the owner's armed the cooldown: %+v", s.Cooldown)
	}
}

func TestTheRetryBudgetIsTheOwnersToSet(t *testing.T) {
	b := newBench(t, 12)
	b.pageSize = 12
	b.o.Pacing.NoBreaker = true
	b.o.RetryBudget = retry.Limits{Start: 2, PerSuccess: 1}
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		return isDetail(r) && fail(w, http.StatusInternalServerError)
	}
	s, err := b.run(t)
	if err != nil || s.Reason != reason.RetryBudget.Reason() || s.Retries != 2 || s.Attempts != 1+3 {
		t.Fatalf("got %s, %v after %d attempts, %d retries", s.Reason, err, s.Attempts, s.Retries)
	}
	b.o.RetryBudget.Capacity = -1
	if _, err := collect.New(b.o); err == nil || !strings.Contains(err.Error(), "capacity is -1") {
		t.Fatalf("got %v", err)
	}
}

func TestFailedProbesLeaveTheRetryBudgetAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 12)
		b.pageSize = 12
		b.o.Pacing.Law = "aimd"
		b.o.Pacing.Breaker.OpenFor = time.Millisecond
		failures := 0
		b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
			// Six openings of the circuit. Four retries are left when it first opens, so
			// the probes cannot have used retries.
			if isDetail(r) && failures < 11 {
				failures++
				return fail(w, http.StatusInternalServerError)
			}
			return false
		}
		s := b.drained(t)
		b.complete(t)
		if s.GapsOpened != 0 {
			t.Fatalf("%d details were deferred: %v", s.GapsOpened, s.Owed)
		}
	})
}

func TestTheCircuitsEventCountsTheAttemptThatMovedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 3)
		b.o.Pacing.Breaker.OpenFor = time.Millisecond
		failures := 0
		b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
			if isDetail(r) && failures < 4 {
				failures++
				return fail(w, http.StatusInternalServerError)
			}
			return false
		}
		var moves []event.Breaker
		b.o.OnEvent = func(e event.Event) {
			if e.Type == event.Circuit {
				moves = append(moves, *e.Circuit)
			}
		}
		b.drained(t)
		if len(moves) != 3 {
			t.Fatalf("moves %+v", moves)
		}
		// The list was answered, then one detail failed four times in a row: half of
		// at least five outcomes.
		if open := moves[0]; open.State != "open" || open.Requests != 5 || open.Retries != 3 {
			t.Errorf("it opened after %d requests and %d retries, want 5 and 3: %+v", open.Requests, open.Retries, open)
		}
		if closed := moves[2]; closed.State != "closed" || closed.Requests != 6 {
			t.Errorf("it closed after %d requests, want 6: %+v", closed.Requests, closed)
		}
	})
}

func TestARefusedDetailIsOwedUntilTheProviderAllowsIt(t *testing.T) {
	b := newBench(t, 1)
	b.o.Retry.Attempts = 1
	b.o.Pacing.MaxWait = time.Second
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		if !isDetail(r) {
			return false
		}
		w.Header().Set("Retry-After", "3600")
		return fail(w, http.StatusTooManyRequests)
	}
	before := time.Now()
	s, err := b.run(t)
	after := time.Now()
	if err != nil || s.State != collect.RunDeferred {
		t.Fatalf("got %s, %v", s.State, err)
	}
	for what, at := range map[string]time.Time{"gap": b.gaps(t, collect.GapPending)[0].RetryAt, "run": s.RetryAt} {
		if at.Before(before.Add(time.Hour).Truncate(time.Second)) || at.After(after.Add(time.Hour+time.Second)) {
			t.Errorf("the %s may be tried again at %v, want an hour after %v", what, at, before)
		}
	}
}

// answers is a base transport that gives each request what it is asked to.
type answers func(*http.Request) *http.Response

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return a(r), nil
}

func TestARedirectFromHTTPSToHTTPIsNotFollowedOnOneHostEither(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		follows  bool
	}{
		{"https://api.test", "http://api.test/elsewhere", false},
		{"https://api.test", "https://other.test/elsewhere", false},
		{"https://api.test", "https://api.test:8443/elsewhere", false},
		{"https://api.test", "https://api.test/elsewhere", true},
		{"http://api.test", "http://api.test/elsewhere", true},
	} {
		t.Run(tt.from+" to "+tt.to, func(t *testing.T) {
			b := newBench(t, 0)
			b.o.Connector = client{base: tt.from}
			var sent []string
			b.o.Base = answers(func(r *http.Request) *http.Response {
				sent = append(sent, r.URL.Scheme+"://"+r.URL.Host)
				res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r}
				body, _ := json.Marshal(map[string]any{"items": []doc{}})
				if !strings.HasPrefix(r.URL.Path, "/elsewhere") {
					res.StatusCode = http.StatusFound
					res.Header.Set("Location", tt.to)
				}
				res.Body = io.NopCloser(strings.NewReader(string(body)))
				return res
			})
			s, err := b.run(t)
			if tt.follows {
				if err != nil || len(sent) < 2 || len(sent)%2 != 0 {
					t.Fatalf("got %s, %v after %q", s.State, err, sent)
				}
				return
			}
			if err == nil || s.Reason != reason.InvalidResponse || len(sent) != 1 {
				t.Fatalf("got %s (%s), %v after %q", s.State, s.Reason, err, sent)
			}
		})
	}
}

// unclosed is a sink that cannot be closed.
type unclosed struct {
	collect.Sink
	err error
}

func (s unclosed) Close() error { return errors.Join(s.err, s.Sink.Close()) }

func TestASinkThatCannotBeClosedFailsTheRun(t *testing.T) {
	b, full := newBench(t, 3), errors.New("the disk is full")
	b.o.Sink = unclosed{jsonl.New(b.dir + "/out"), full}
	c, err := collect.New(b.o)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.Run(t.Context()); !errors.Is(err, full) || s.State != collect.RunFailed || s.Reason != reason.Internal || !strings.Contains(s.Error, "full") {
		t.Errorf("got %s (%s), %v", s.State, s.Reason, err)
	}
}

// A provider that refuses with a 200, as the connection's rules say.
func TestARefusalInsideASuccessIsNoDetail(t *testing.T) {
	b := newBench(t, 3)
	b.o.Retry = retry.Backoff{Attempts: 1}
	b.o.Classify = func(_ int, body []byte) (reason.Class, reason.Reason, bool) {
		return reason.Rejected, reason.Forbidden, strings.Contains(string(body), "hello 1")
	}
	s, err := b.run(t)
	if err != nil || s.Details != 2 || s.GapsOpened != 1 {
		t.Fatalf("%d details, %d gaps, %v", s.Details, s.GapsOpened, err)
	}
	if gaps := b.gaps(t, collect.GapPending); len(gaps) != 1 || gaps[0].Key != "d01" || gaps[0].Reason != reason.Forbidden || gaps[0].LastError != "200 forbidden" {
		t.Errorf("gaps %+v", gaps)
	}
	if got := b.lines(t, "messages"); len(got) != 4 {
		t.Errorf("%d messages of two details", len(got))
	}
}

// manyMessages are so many that they take more than one slice.
const manyMessages = 2500

// collected returns a bench with one doc of many messages in a SQLite file. One message is
// deleted.
func collected(t *testing.T) (b *bench, from string) {
	t.Helper()
	b = newBench(t, 1)
	b.onDisk(t)
	from = filepath.Join(b.dir, "data.db")
	messages := make([]string, manyMessages+1)
	for i := range messages {
		messages[i] = fmt.Sprint(i)
	}
	b.version(0, messages...)
	b.into(t, sqlsink.For("bench", from, filepath.Join(b.dir, "state.db")))
	b.version(1, messages[:manyMessages]...)
	b.into(t, sqlsink.For("bench", from, filepath.Join(b.dir, "state.db")))
	return b, from
}

// replay copies into a sink and calls then after each slice.
func (b *bench) replay(t *testing.T, ctx context.Context, from string, into collect.Sink, stop <-chan struct{}, then func(collect.ReplaySummary)) (collect.ReplaySummary, error) {
	t.Helper()
	return collect.RunReplay(ctx, collect.ReplayOptions{
		Connection: "bench", Connector: b.o.Connector, Store: b.store, Sink: into, Stop: stop, OnProgress: then,
		Open: func(ctx context.Context, at collect.Location, former []collect.FormerSink, streams []collect.StreamInfo) (collect.Kept, error) {
			return sqlsink.OpenKept(ctx, from, "bench", at, former, streams)
		},
	})
}

// onceEach checks that each message is in the Parquet files once, and the deleted one twice:
// the record and its tombstone.
func onceEach(t *testing.T, dir string) {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(dir, "messages", "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	times, gone, total := map[string]int{}, "", 0
	for _, path := range parts {
		rows, err := reader.ReadFile[struct {
			Key string `parquet:"_key,optional"`
			At  string `parquet:"_headway_deleted_at,optional"`
		}](path)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		for _, r := range rows {
			total++
			if r.At != "" {
				gone += r.Key
				continue
			}
			times[r.Key]++
		}
	}
	if len(times) != manyMessages+1 || total != manyMessages+2 || gone != fmt.Sprint(manyMessages) {
		t.Errorf("%d rows of %d messages, and gone is %q", total, len(times), gone)
	}
}

func TestAReplayIntoParquetGoesOnAfterCtrlC(t *testing.T) {
	b, from := collected(t)
	dir := filepath.Join(b.dir, "out")

	// The first Ctrl-C: the slice under way is committed, and no other begun.
	stop := make(chan struct{})
	slices := 0
	sum, err := b.replay(t, t.Context(), from, parquet.New(dir), stop, func(s collect.ReplaySummary) {
		if slices++; slices == 2 {
			close(stop)
		}
	})
	if err != nil || sum.State != collect.RunDeferred || slices != 2 || sum.Replay.State != collect.ReplayUnfinished || sum.Replay.Records == 0 || sum.Replay.Records > manyMessages {
		t.Fatalf("stopped after %d slices: %+v, %v", slices, sum, err)
	}
	if runs, err := b.store.Runs(t.Context(), "bench", 1); err != nil || runs[0].State != collect.RunDeferred || runs[0].Reason != reason.Interrupted || runs[0].Records != sum.Replay.Records {
		t.Errorf("on record: %+v, %v", runs, err)
	}

	// The second one ends it at once, in the middle of a slice.
	ctx, cancel := context.WithCancel(t.Context())
	second, err := b.replay(t, ctx, from, cutSink{parquet.New(dir), cancel}, nil, nil)
	if err != nil || second.State != collect.RunDeferred || second.Replay.Records != sum.Replay.Records || !second.Resumed {
		t.Fatalf("cut off: %+v, %v", second, err)
	}

	sum, err = b.replay(t, t.Context(), from, parquet.New(dir), nil, nil)
	if err != nil || sum.State != collect.RunDrained || !sum.Resumed || sum.Replay.Records != manyMessages+2 || sum.Replay.Deleted != 1 {
		t.Fatalf("to the end: %+v, %v", sum, err)
	}
	onceEach(t, dir)
	if run := b.into(t, parquet.New(dir)); run.Records != 0 {
		t.Errorf("a run afterwards wrote %d records", run.Records)
	}
	onceEach(t, dir)
}

// cutSink cancels the context once a slice has been written to it.
type cutSink struct {
	*parquet.Sink
	cancel context.CancelFunc
}

func (s cutSink) Write(ctx context.Context, stream string, records []collect.Record) error {
	err := s.Sink.Write(ctx, stream, records)
	s.cancel()
	return err
}

// A replay that was stopped before its first slice can be resumed, and a run refuses to
// start before that.
func TestAReplayThatIsStoppedAtOnceGoesOn(t *testing.T) {
	b, from := collected(t)
	stop := make(chan struct{})
	close(stop)
	dir := filepath.Join(b.dir, "out")
	sum, err := b.replay(t, t.Context(), from, jsonl.New(dir), stop, nil)
	if err != nil || sum.State != collect.RunDeferred || sum.Replay.Records != 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	b.o.Sink = jsonl.New(dir)
	c, err := collect.New(b.o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(t.Context()); err == nil {
		t.Error("a run began beside a replay that is not finished")
	}
	if sum, err = b.replay(t, t.Context(), from, jsonl.New(dir), nil, nil); err != nil || sum.State != collect.RunDrained || sum.Replay.Records != manyMessages+2 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if n := len(lastLines(t, b)); n < manyMessages {
		t.Errorf("%d messages", n)
	}
}

// probe sends one request through a caller outside a run.
func probe(t *testing.T, ctx context.Context, o collect.Options, url string) (*connector.Response, error) {
	t.Helper()
	c, err := collect.NewCaller(o)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Do(ctx, req)
}

// roundTrip is a function that answers requests.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestFailureOfAProbe(t *testing.T) {
	quick := headway.Config{Ceiling: 1, Initial: 1}
	answer := func(status int, body string) roundTrip {
		return func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Request: r, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}
	}
	once := collect.Options{Connection: "bench", Pacing: quick, Retry: retry.Backoff{Attempts: 1}}

	// No error contains the credential of a query.
	once.Base = roundTrip(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })
	_, err := probe(t, t.Context(), once, "http://provider.test/docs?api_key=hush")
	if f, ok := errors.AsType[*connector.Failure](err); !ok || f.Reason != reason.Unreachable || strings.Contains(err.Error(), "hush") || f.Err == nil || strings.Contains(f.Err.Error(), "hush") {
		t.Errorf("cut off: %v", err)
	}

	// A canceled request is not the provider's failure.
	ctx, cancel := context.WithCancel(t.Context())
	once.Base = roundTrip(func(r *http.Request) (*http.Response, error) { cancel(); return nil, r.Context().Err() })
	_, err = probe(t, ctx, once, "http://provider.test/docs")
	if refusal, ok := errors.AsType[*reason.Refusal](err); !ok || refusal.Reason != reason.Canceled {
		t.Errorf("given up: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	once.Base = roundTrip(func(r *http.Request) (*http.Response, error) { cancel(); return answer(http.StatusOK, "fine")(r) })
	if res, err := probe(t, ctx, once, "http://provider.test/docs"); err != nil || string(res.Body) != "fine" {
		t.Errorf("given up when it was answered: %v, %v", res, err)
	}

	// Only a wrong scheme is reported as a wrong scheme.
	const tlsOnly = "Client sent an HTTP request to an HTTPS server.\n"
	for url, want := range map[string]reason.Reason{"http://provider.test/docs": reason.WrongScheme, "https://provider.test/docs": reason.ClientError} {
		once.Base = answer(http.StatusBadRequest, tlsOnly)
		_, err := probe(t, t.Context(), once, url)
		if f, ok := errors.AsType[*connector.Failure](err); !ok || f.Reason != want {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}

	// A choice of places is no success.
	once.Base = answer(http.StatusMultipleChoices, "fine")
	_, err = probe(t, t.Context(), once, "http://provider.test/docs")
	if f, ok := errors.AsType[*connector.Failure](err); !ok || f.Reason != reason.InvalidResponse {
		t.Errorf("a choice: %v", err)
	}

	// The connection's rules see a bounded beginning of a body.
	seen := 0
	once.Base = answer(http.StatusBadRequest, strings.Repeat("x", signal.MaxBody+1))
	once.Classify = func(_ int, body []byte) (c reason.Class, why reason.Reason, ok bool) {
		seen = len(body)
		return reason.Rejected, reason.QuotaExhausted, true
	}
	_, err = probe(t, t.Context(), once, "http://provider.test/docs")
	if f, ok := errors.AsType[*connector.Failure](err); !ok || f.Reason != reason.QuotaExhausted || seen != signal.MaxBody {
		t.Errorf("classified by %d bytes: %v", seen, err)
	}
}

func TestAnAttemptMayTakeHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := collect.Options{Connection: "bench", Pacing: headway.Config{Ceiling: 1, Initial: 1}, Retry: retry.Backoff{Attempts: 1}}
		o.Base = roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		began := time.Now()
		_, err := probe(t, t.Context(), o, "http://provider.test/docs")
		if f, ok := errors.AsType[*connector.Failure](err); !ok || f.Reason != reason.Timeout || time.Since(began).Round(time.Second) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		// Events of its circuit name the connection.
		var said []event.Event
		failing := o
		failing.Retry.Attempts, failing.Pacing.OnEvent = 9, func(e event.Event) { said = append(said, e) }
		failing.Base = roundTrip(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })
		if _, err = probe(t, t.Context(), failing, "http://provider.test/docs"); err == nil || len(said) == 0 || said[0].Connection != "bench" {
			t.Errorf("it fails again and again: %v, events %+v", err, said)
		}
		b := endure(t, 1)
		b.o.Retry.Attempts, b.o.Base = 1, o.Base
		if s, err := b.run(t); err != nil || s.Reason != reason.Timeout || s.Ended.Sub(s.Started).Round(time.Second) != 30*time.Second {
			t.Errorf("a run ended after %v for %s, %v", s.Ended.Sub(s.Started), s.Reason, err)
		}
	})
}
