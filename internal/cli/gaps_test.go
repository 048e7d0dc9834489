package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/story"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/store/sqlite"
)

// owing is a state file with three gaps: two pending, one quarantined.
func owing(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	store, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	l, err := store.Acquire(t.Context(), collect.LeaseRequest{Connection: "acme", Run: "r1", Holder: "test", Now: now, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	gap := func(key string, why reason.Reason, status collect.GapStatus) collect.Gap {
		return collect.Gap{
			GapKey: collect.GapKey{Stream: "messages", Key: key}, Parent: "chats", Reason: why, Status: status,
			Attempts: 3, LastError: "500 server_error", RetryAt: now.Add(time.Hour),
		}
	}
	if err := store.Commit(t.Context(), l, collect.Commit{At: now, Opened: []collect.Gap{
		gap("a", reason.ServerError, collect.GapPending),
		gap("b", reason.RateLimited.Reason(), collect.GapPending),
		gap("c", reason.NotFound, collect.GapTerminal),
	}}); err != nil {
		t.Fatal(err)
	}
	if err := store.Finish(t.Context(), l, collect.RunEnd{At: now, State: collect.RunDeferred, Reason: reason.ServerError}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func headway(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, stdio{in: strings.NewReader(""), out: &stdout, err: &stderr})
	return code, stdout.String(), stderr.String()
}

func statuses(t *testing.T, path string) map[string]collect.Gap {
	t.Helper()
	code, out, errs := headway(t, "gaps", "list", "--status", "all", "--json", "--state", path)
	var gaps []collect.Gap
	if err := json.Unmarshal([]byte(out), &gaps); code != 0 || err != nil {
		t.Fatalf("exit %d, %v, %s%s", code, err, out, errs)
	}
	by := map[string]collect.Gap{}
	for _, g := range gaps {
		by[g.Key] = g
	}
	return by
}

func TestGapsAreListedShownAndMoved(t *testing.T) {
	path := owing(t)
	code, out, _ := headway(t, "gaps", "list", "--state", path)
	if code != 0 || strings.Count(out, "pending") != 2 || strings.Contains(out, "terminal") {
		t.Fatalf("exit %d:\n%s", code, out)
	}
	if code, out, _ := headway(t, "gaps", "show", "1", "--state", path); code != 0 || !strings.Contains(out, "messages of chats a") || !strings.Contains(out, "500 server_error") {
		t.Fatalf("exit %d:\n%s", code, out)
	}
	if code, out, _ := headway(t, "gaps", "release", "--all", "--state", path); code != 0 || out != "release: 1 gap\n" {
		t.Fatalf("exit %d: %s", code, out)
	}
	if g := statuses(t, path)["c"]; g.Status != collect.GapPending || g.Attempts != 0 || !g.RetryAt.IsZero() {
		t.Fatalf("released: %+v", g)
	}
	if code, out, _ := headway(t, "gaps", "quarantine", "1", "--state", path, "--json"); code != 0 || !strings.Contains(out, `"gaps": 1`) {
		t.Fatalf("exit %d: %s", code, out)
	}
	if code, out, _ := headway(t, "gaps", "retry", "--connection", "acme", "--reason", "rate_limited", "--state", path); code != 0 || out != "retry: 1 gap\n" {
		t.Fatalf("exit %d: %s", code, out)
	}
	by := statuses(t, path)
	if by["a"].Status != collect.GapTerminal || !by["b"].RetryAt.IsZero() || by["b"].Attempts != 3 {
		t.Fatalf("got %+v", by)
	}
}

func TestGapsSayWhatIsWrong(t *testing.T) {
	path := owing(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"retry"}, "say which gaps"},
		{[]string{"retry", "1", "--all"}, "say which gaps"},
		{[]string{"show", "zero"}, `not "zero"`},
		{[]string{"show", "99"}, "there is no gap 99"},
		{[]string{"list", "--reason", "bored"}, `--reason is "bored", must be one of canceled`},
		{[]string{"list", "--status", "lost"}, `--status is "lost", must be pending`},
		{[]string{"list", "--limit", "-1"}, "--limit is -1"},
	} {
		code, _, errs := headway(t, append(append([]string{"gaps"}, tt.args...), "--state", path)...)
		if code != exitUsage || !strings.Contains(errs, tt.want) {
			t.Errorf("%v: exit %d, %q, want %q", tt.args, code, errs, tt.want)
		}
	}
	missing := filepath.Join(t.TempDir(), "none.db")
	if code, _, errs := headway(t, "gaps", "retry", "--all", "--state", missing); code != exitUsage || !strings.Contains(errs, "nothing was collected from here yet") {
		t.Errorf("no state: exit %d, %s", code, errs)
	}
}

func TestStatusShowsWhatIsOwed(t *testing.T) {
	path := owing(t)
	code, out, _ := headway(t, "status", "acme", "--state", path)
	for _, want := range []string{"acme", "2 details (1 rate_limited, 1 server_error)", "more pages follow", "1, which no run fetches by itself", "deferred", "unknown"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, no %q in\n%s", code, want, out)
		}
	}
	if code, _, errs := headway(t, "status", "nobody", "--state", path); code != exitUsage || !strings.Contains(errs, `no connection "nobody"`) {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestNoGapsSaysThatSomeAreQuarantined(t *testing.T) {
	path := owing(t)
	headway(t, "gaps", "quarantine", "--all", "--state", path)
	if code, out, _ := headway(t, "gaps", "list", "--state", path); code != 0 || out != "no gaps; 3 quarantined (--status terminal lists them)\n" {
		t.Errorf("exit %d, %q", code, out)
	}
	if code, out, _ := headway(t, "gaps", "list", "--status", "recovered", "--state", path); code != 0 || out != "no gaps\n" {
		t.Errorf("exit %d, %q", code, out)
	}
}

func TestStatusSaysWherePagesAreLeft(t *testing.T) {
	catchup := func(stream string, done bool) collect.Lane {
		return collect.Lane{Stream: stream, Kind: collect.Catchup, Walking: !done, Done: done}
	}
	steady := func(stream string, walking bool) collect.Lane {
		return collect.Lane{Stream: stream, Kind: collect.Steady, Walking: walking, Done: true}
	}
	for _, tt := range []struct {
		name string
		c    collect.ConnectionStatus
		want bool
	}{
		{"nothing was tried", collect.ConnectionStatus{}, false},
		{"a first page is under way", collect.ConnectionStatus{LastRun: &collect.Run{}}, true},
		{"the past is walked", collect.ConnectionStatus{Lanes: []collect.Lane{catchup("a", true), catchup("b", false)}}, true},
		{"all is there", collect.ConnectionStatus{Lanes: []collect.Lane{catchup("a", true), steady("a", false)}, LastRun: &collect.Run{}}, false},
		{"changes are listed", collect.ConnectionStatus{Lanes: []collect.Lane{catchup("a", true), steady("a", true)}}, true},
		{"of a stream that is gone", collect.ConnectionStatus{
			Lanes: []collect.Lane{catchup("a", true), catchup("b", false)}, Shapes: []collect.StreamShape{{Stream: "b", Gone: true}},
		}, false},
	} {
		if got := tt.c.Unfinished(); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// Before its first refusal a client that starts passive has no rate.
func TestABackoffFromNoRateSaysSo(t *testing.T) {
	r := event.NewRate(time.Second, 0)
	for at, want := range map[float64]string{0: "ago at an unknown rate (rate_limited)", 500: "ago at 2/s (rate_limited)"} {
		r.LastBackoff = &event.Backoff{Reason: reason.RateLimited.Reason(), AtIntervalMS: at, At: time.Now()}
		for _, got := range []string{rateText(r), rateStatus{Pacing: &collect.Pacing{IntervalMS: 1000}, Rate: r}.text()} {
			if !strings.Contains(got, want) {
				t.Errorf("%q, want %q in it", got, want)
			}
		}
	}
}

func TestWhatIsRefusedForLoadIsShown(t *testing.T) {
	r := event.NewRate(time.Second, 0)
	for share, want := range map[float64]string{0: "", 0.0099: ", 1.0 % refused for load at any pace"} {
		r.RefusedForLoad = share
		for _, got := range []string{rateText(r), rateStatus{Pacing: &collect.Pacing{IntervalMS: 1000}, Rate: r}.text()} {
			if strings.Contains(got, "for load") != (want != "") || !strings.HasSuffix(got, want) {
				t.Errorf("%q, want %q at its end", got, want)
			}
		}
	}
}

func TestTheUseOfLimitsIsShown(t *testing.T) {
	soon := time.Now().Add(90 * time.Second)
	for _, tt := range []struct {
		limit event.Limit
		want  string
	}{
		{event.Limit{Kind: "fixed_window", Size: 200, Used: new(12.0)}, "12 in use, room now"},
		{event.Limit{Kind: "fixed_window", Size: 200, Used: new(200.0), RoomAt: soon}, "200 in use, room in 1m30s"},
		{event.Limit{Kind: "fixed_window", Size: 200, Used: new(200.0), RoomAt: soon.Add(-time.Hour)}, "200 in use, room now"},
		{event.Limit{Kind: "token_bucket", Size: 20, RoomAt: soon}, "room in 1m30s"},
		{event.Limit{Kind: "concurrency", Size: 4, Used: new(4.0)}, "4 in use"},
		{event.Limit{Kind: "fixed_window", Size: 200, Used: new(200.0)}, "200 in use"},        // calls under way hold them
		{event.Limit{Kind: "token_bucket", Size: 20, Used: new(30.0)}, "30 in use, room now"}, // its burst is larger
		{event.Limit{Kind: "concurrency", Size: 4, Used: new(3.0)}, "3 in use, room now"},
		{event.Limit{Kind: "token_bucket", Size: 20}, ""},
	} {
		if got := story.Use(tt.limit, soon.Add(-90*time.Second)); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.limit, got, tt.want)
		}
	}
	var b strings.Builder
	writeLimits(&b, "", []event.Limit{{Kind: "concurrency", Size: 4, Unit: event.UnitRequests, Provenance: event.Learned, Confidence: 0.9, Used: new(3.0)}})
	if want := "learned  concurrency  4 requests under way  confidence 0.90  3 in use, room now\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestLimitsAreShownWithTheirProvenance(t *testing.T) {
	var b strings.Builder
	writeLimits(&b, "  ", []event.Limit{
		{Kind: "token_bucket", Size: 240, WindowS: 60, Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1},
		{Kind: "fixed_window", Size: 40_000, WindowS: 86_400, Unit: event.UnitInputTokens, Pool: "m", Provenance: event.Owner, Confidence: 1},
		{Kind: "fixed_window", Unit: event.UnitCost, Pool: "tokens", Provenance: event.Advertised, Confidence: 0.5},
		{Kind: "concurrency", Size: 4, Unit: event.UnitRequests, Provenance: event.Learned, Confidence: 0.9},
	})
	want := `  owner       token_bucket  240 requests in 1m
  owner       fixed_window  40,000 input tokens in 24h (m)
  advertised  fixed_window  unknown cost in an unknown time (tokens)  confidence 0.50
  learned     concurrency   4 requests under way                      confidence 0.90
`
	if got := b.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, all := range [][]event.Limit{nil, {{Kind: "concurrency", Size: 2, Unit: event.UnitRequests, Provenance: event.Owner}}} {
		b.Reset()
		if writeLimits(&b, "  ", all); !strings.HasSuffix(b.String(), "  provider's limits unknown\n") {
			t.Errorf("of %v is said %q", all, b.String())
		}
	}
}

// What pools and keys have learned is shown while nothing runs, too.
func TestStoredRatesOfPoolsAndKeysAreShown(t *testing.T) {
	rate := func(ms float64) collect.Pacing {
		return collect.Pacing{Law: "cycle", IntervalMS: ms, RecordedAt: time.Now().Add(-2 * time.Hour)}
	}
	second := rate(500)
	second.Pools = map[string]collect.Pacing{"search": rate(2000)}
	all := rate(1000)
	all.Pools = map[string]collect.Pacing{"search": rate(2000), "core": {}}
	all.Keys = map[string]collect.Pacing{"second": second}
	var b strings.Builder
	writeParts(&b, "  ", &all)
	writeParts(&b, "  ", nil)
	want := `  pool core: unknown
  pool search: 30/min (cycle, learned 2h0m ago)
  key second: 2/s (cycle, learned 2h0m ago)
    pool search: 30/min (cycle, learned 2h0m ago)
`
	if got := b.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestRateIsAnAliasOfLimits(t *testing.T) {
	path := owing(t)
	for _, flags := range [][]string{nil, {"--json"}} {
		var texts []string
		for _, command := range []string{"limits", "rate"} {
			code, out, errs := headway(t, append([]string{command, "--state", path}, flags...)...)
			if code != 0 {
				t.Fatalf("%s: exit %d, %s", command, code, errs)
			}
			texts = append(texts, out)
		}
		if texts[0] != texts[1] || !strings.Contains(texts[0], "limits") {
			t.Errorf("limits says %q, rate %q", texts[0], texts[1])
		}
	}
}

// A state in which nothing is collected is said to be so, beside the list.
func TestStatusOfNothingSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := headway(t, "status", "--state", path); code != 0 || out != "" || !strings.Contains(errOut, "nothing is collected in "+path) {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	if code, out, errOut := headway(t, "status", "--json", "--state", path); code != 0 || out != "[]\n" || errOut != "" {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
}
