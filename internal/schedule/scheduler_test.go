package schedule_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/retry"
	"github.com/headway-go/headway/store/sqlite"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// source is a provider with one page; it refuses credentials on demand.
type source struct {
	*httptest.Server
	mu      sync.Mutex
	asked   map[string]int // by path
	refuses map[string]bool
}

func newSource(t *testing.T) *source {
	t.Helper()
	s := &source{asked: map[string]int{}, refuses: map[string]bool{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked[r.URL.Path]++
		refuse := s.refuses[r.URL.Path]
		s.mu.Unlock()
		if refuse {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprint(w, `{"items":[{"id":"1"},{"id":"2"}]}`)
	}))
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		s.Close()
	})
	return s
}

func (s *source) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// folder is one of connection files.
type folder struct {
	t   *testing.T
	dir string
	s   *source
}

func (f folder) write(name, more string) {
	f.t.Helper()
	text := fmt.Sprintf(`connection: %s
provider: {base_url: "%s", ceiling: 1ms, pacing: {initial: 1ms}}
streams:
  - {name: things, list: {path: /%s}, records: .items, key: .id}
sink: {jsonl: {dir: %q}}
%s
`, name, f.s.URL, name, filepath.Join(f.dir, "out-"+name), more)
	f.raw(name, text)
}

func (f folder) raw(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name+".yaml"), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func begin(t *testing.T, f folder, timetable string) (*schedule.Scheduler, schedule.Config, *logged) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	var text logged
	c := schedule.Config{Dir: f.dir, Timetable: timetable, Lookup: func(string) (string, bool) { return "", false }}
	s, err := schedule.New(c, schedule.Deps{
		Store:   store,
		OnEvent: func(event.Event) {},
		Log:     slog.New(slog.NewTextHandler(&text, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s.Stop(ctx)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, c, &text
}

// logged is what was logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// eventually polls until a condition holds that no event reports.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.NewTimer(2*time.Minute), time.NewTicker(5*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not in time: %s", what)
		}
	}
}

func statusOf(s *schedule.Scheduler, name string) (schedule.Status, bool) {
	for _, one := range s.Status() {
		if one.Connection == name {
			return one, true
		}
	}
	return schedule.Status{}, false
}

func TestConnectionsRunApartFromEachOther(t *testing.T) {
	f := folder{t, t.TempDir(), newSource(t)}
	f.s.refuses["/bad"] = true
	f.write("good", "")
	f.write("bad", "")
	f.write("often", `run: {schedule: "@every 1s"}`)
	s, c, _ := begin(t, f, "@every 1h")
	if err := s.Load(c); err != nil {
		t.Fatal(err)
	}
	eventually(t, "each has run, one of them again", func() bool {
		good, _ := statusOf(s, "good")
		bad, _ := statusOf(s, "bad")
		return !good.Running && !good.Next.IsZero() && bad.Failures == 1 && f.s.count("/often") >= 2
	})
	good, _ := statusOf(s, "good")
	if wait := time.Until(good.Next); good.Error != "" || wait < 50*time.Minute || wait > time.Hour {
		t.Errorf("the good one: %+v, want the next run in an hour", good)
	}
	bad, _ := statusOf(s, "bad")
	if bad.Error == "" || bad.Next.IsZero() || f.s.count("/bad") != 1 {
		t.Errorf("the refused one: %+v after %d requests, want one and its error", bad, f.s.count("/bad"))
	}
	lines, err := os.ReadFile(filepath.Join(f.dir, "out-good", "things.jsonl"))
	if n := strings.Count(string(lines), "\n"); err != nil || n != 2 {
		t.Errorf("%d records were collected (%v), want 2", n, err)
	}
}

func TestReloadFollowsTheFolder(t *testing.T) {
	f := folder{t, t.TempDir(), newSource(t)}
	f.write("kept", "")
	f.write("changed", "")
	f.write("gone", "")
	s, c, _ := begin(t, f, "@every 1h")
	if err := s.Load(c); err != nil {
		t.Fatal(err)
	}
	idle := func(name string) bool { one, ok := statusOf(s, name); return ok && !one.Running && !one.Next.IsZero() }
	eventually(t, "all have run", func() bool { return idle("kept") && idle("changed") && idle("gone") })
	f.write("changed", "run: {max_requests: 5}")
	f.write("new", "")
	f.raw("kept", "connection: kept\nprovider: {base_url: nowhere}\n")
	if err := os.Remove(filepath.Join(f.dir, "gone.yaml")); err != nil {
		t.Fatal(err)
	}
	err := s.Load(c)
	if err == nil || !strings.Contains(err.Error(), "kept.yaml") {
		t.Errorf("a broken file: %v, want an error that names it", err)
	}
	eventually(t, "the changed and the new one have run", func() bool {
		return f.s.count("/changed") == 2 && f.s.count("/new") == 1 && idle("new") && idle("changed")
	})
	if _, there := statusOf(s, "gone"); there {
		t.Error("the connection whose file is gone is still there")
	}
	if !idle("kept") || f.s.count("/kept") != 1 {
		t.Errorf("the one whose file broke was asked %d times, want it as it was", f.s.count("/kept"))
	}
}

func TestWhatADaemonCannotDoIsRefused(t *testing.T) {
	f := folder{t, t.TempDir(), newSource(t)}
	f.raw("pipe", "connection: pipe\nprovider: {base_url: \"http://localhost\"}\nstreams:\n  - {name: a, list: {path: /}, records: ., key: .id}\nsink: {singer: {}}\n")
	f.write("when", `run: {schedule: "whenever"}`)
	f.write("one", "")
	f.raw("two", "connection: one\nprovider: {base_url: \"http://localhost\"}\nstreams:\n  - {name: a, list: {path: /}, records: ., key: .id}\n")
	err := schedule.Check(schedule.Config{Dir: f.dir, Lookup: func(string) (string, bool) { return "", false }}, "")
	for _, want := range []string{"pipe.yaml", "standard output", "when.yaml", "whenever", `connection "one" is already that of`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	for _, c := range []schedule.Config{
		{}, {Dir: f.dir}, {Dir: f.dir, Lookup: os.LookupEnv, Running: -1}, {Dir: f.dir, Lookup: os.LookupEnv, Timetable: "now"},
		{Dir: filepath.Join(f.dir, "nowhere"), Lookup: os.LookupEnv},
	} {
		if err := schedule.Check(c, ""); err == nil {
			t.Errorf("%+v was accepted", c.Dir)
		}
	}
}

func TestAHeldConnectionIsTriedSoon(t *testing.T) {
	f := folder{t, t.TempDir(), newSource(t)}
	f.write("shared", "")
	dir := t.TempDir()
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if _, err := store.Acquire(t.Context(), collect.LeaseRequest{Connection: "shared", Run: "another", Holder: "another process", Now: time.Now(), TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	c := schedule.Config{Dir: f.dir, Lookup: func(string) (string, bool) { return "", false }}
	s, err := schedule.New(c, schedule.Deps{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(c); err != nil {
		t.Fatal(err)
	}
	defer s.Stop(t.Context())
	eventually(t, "it was tried", func() bool { one, _ := statusOf(s, "shared"); return !one.Next.IsZero() })
	one, _ := statusOf(s, "shared")
	if wait := time.Until(one.Next); one.Failures != 0 || wait > schedule.RetrySoon || !strings.Contains(one.Error, "another process") {
		t.Errorf("%+v, want another try within a minute", one)
	}
	if f.s.count("/shared") != 0 {
		t.Error("it was collected in spite of the other")
	}
}

func TestTheLogSaysWhatWasEditedInAConnection(t *testing.T) {
	f := folder{t, t.TempDir(), newSource(t)}
	f.write("things", "")
	s, c, log := begin(t, f, "@every 1h")
	if err := s.Load(c); err != nil {
		t.Fatal(err)
	}
	idle := func() bool { one, ok := statusOf(s, "things"); return ok && !one.Running && !one.Next.IsZero() }
	eventually(t, "it has run", idle)
	if text := log.String(); strings.Contains(text, "edited") {
		t.Errorf("nothing was edited: %s", text)
	}
	raw, err := os.ReadFile(filepath.Join(f.dir, "things.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f.raw("things", strings.Replace(string(raw), "key: .id", "key: .id, fingerprint: .id", 1))
	if err := s.Load(c); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has run again", func() bool { return f.s.count("/things") == 2 && idle() })
	for _, want := range []string{"the connection was edited", "connection=things", "its fingerprint changed"} {
		if text := log.String(); !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

func TestASinkInTheStatesFileIsThatOfTheState(t *testing.T) {
	f := folder{t, t.TempDir(), newSource(t)}
	in := func(file string) string {
		return fmt.Sprintf("connection: things\nprovider: {base_url: %q, ceiling: 1ms, pacing: {initial: 1ms}}\nstreams:\n"+
			"  - {name: things, list: {path: /things}, records: .items, key: .id}\nsink: {sqlite: {file: %q}}\n", f.s.URL, file)
	}
	run := func(state string) *logged {
		t.Helper()
		store, err := sqlite.Open(t.Context(), state)
		if err != nil {
			t.Fatal(err)
		}
		var text logged
		c := schedule.Config{Dir: f.dir, Timetable: "@every 1h", Lookup: func(string) (string, bool) { return "", false }}
		s, err := schedule.New(c, schedule.Deps{Store: store, State: state, Log: slog.New(slog.NewTextHandler(&text, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Load(c); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has run", func() bool { one, ok := statusOf(s, "things"); return ok && !one.Running && !one.Next.IsZero() })
		if one, _ := statusOf(s, "things"); one.Error != "" {
			t.Errorf("the run failed: %s", one.Error)
		}
		s.Stop(t.Context())
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		return &text
	}
	known := func(file string) []collect.ConnectionStatus {
		t.Helper()
		r, err := sqlite.OpenReader(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Close() }()
		all, err := r.Connections(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	one, two := filepath.Join(f.dir, "one.db"), filepath.Join(f.dir, "two.db")
	f.raw("things", in(one))
	run(one)
	if all := known(one); len(all) != 1 || all[0].SinkKind != "state" {
		t.Errorf("the sink in the state's file is %+v, want that of the state", all)
	}
	// From now on the state is stored elsewhere. It is moved there, and nothing is lost.
	log := run(two)
	if all := known(two); len(all) != 1 || all[0].SinkKind != "sqlite" || all[0].SinkPath != one || all[0].Items["things"] != 2 {
		t.Errorf("the state is %+v, want the one that stood with the records", all)
	}
	if all := known(one); len(all) != 0 {
		t.Errorf("the file of the records still has a state: %+v", all)
	}
	if !strings.Contains(log.String(), "state") || !strings.Contains(log.String(), one) {
		t.Errorf("the log says nothing of the move: %s", log)
	}
	run(two)
}

func TestCircuitAndRetryBudgetReachTheRun(t *testing.T) {
	const file = `
connection: c
provider:
  base_url: https://api.example.com
  circuit: %
  retry: {base: 1s, cap: 2s, attempts: 3, budget: {start: 2, capacity: 4, per_success: 0.5}}
streams:
  - {name: a, list: {path: /a}, records: .items, key: .id}
`
	for circuit, want := range map[string]breaker.Config{
		"off": {},
		"{ratio: 0.75, window: 8, minimum: 4, open_for: 5s, probes: 2}": {Ratio: 0.75, Window: 8, Minimum: 4, OpenFor: 5 * time.Second, Probes: 2},
	} {
		c, err := rest.Parse("c.yaml", []byte(strings.Replace(file, "%", circuit, 1)), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		o := schedule.Options(c)
		if o.Pacing.NoBreaker != (circuit == "off") || o.Pacing.Breaker != want {
			t.Errorf("circuit: %s: got %+v, off %v", circuit, o.Pacing.Breaker, o.Pacing.NoBreaker)
		}
		if (o.RetryBudget != retry.Limits{Start: 2, Capacity: 4, PerSuccess: 500}) {
			t.Errorf("the run's retry budget is %+v", o.RetryBudget)
		}
		if (o.Retry != retry.Backoff{Base: time.Second, Cap: 2 * time.Second, Attempts: 3}) {
			t.Errorf("the backoff is %+v", o.Retry)
		}
	}
}
