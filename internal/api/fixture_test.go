package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/samples"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// callers are the callers by the key that they present.
var callers = map[string]api.Caller{
	"admin":  {ID: "ops", Role: api.Admin},
	"shift":  {ID: "shift", Role: api.Operator},
	"screen": {ID: "screen", Role: api.Viewer},
	"plain":  {ID: "plain", PriorityMax: 5},
	"team-a": {ID: "team-a", Tenant: "a", Agent: "planner", Priority: 1, May: onlyOpenAI},
	"team-b": {ID: "team-b", Tenant: "b"},
}

func onlyOpenAI(provider, model string) bool {
	return provider == "openai" && (model == "" || model == "m")
}

// authorize lets the keys in; some keys show what else a daemon may say.
func authorize(r *http.Request, need api.Role) (api.Caller, error) {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	c, ok := callers[key]
	switch {
	case key == "busy":
		return c, &reason.Refusal{Reason: reason.RateLimited.Reason(), RetryAt: time.Now().Add(1500 * time.Millisecond)}
	case !ok:
		return c, &reason.Refusal{Reason: reason.Unauthorized, Scope: "canary-secret"}
	case need != "" && !c.Role.Covers(need):
		return c, &reason.Refusal{Reason: reason.Forbidden}
	}
	return c, nil
}

// limits are those of the quotas in tests.
func limits() quota.Config {
	return quota.Config{
		Models: map[string]quota.Model{
			"m": {Limits: quota.Limits{
				CallsPerMinute: 60, Burst: 2, TokensPerMinute: 10_000, SoftTokenBudget: 100_000, SoftTokenWindowMS: 60_000, MaxDailyTokens: 1_000_000,
			}},
			"small": {Limits: quota.Limits{MaxDailyTokens: 100}},
			"free":  {},
		},
		Tenants: map[string]quota.Tenant{"a": {Limits: quota.Limits{CallsPerMinute: 6000}, Weight: 2}},
	}
}

// world is an API with all that it needs.
type world struct {
	*api.API
	openai, gemini *governor.Governor
	hub            *events.Hub
	quotas         map[string]api.Quota
	reader         *shelf
	notReady       error
}

// newWorld makes one; change may change its options.
func newWorld(t testing.TB, change func(*api.Options)) *world {
	t.Helper()
	hub, err := events.New(100)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{hub: hub, reader: newShelf()}
	w.openai, w.gemini = newGovernor(t, hub, "openai"), newGovernor(t, hub, "gemini")
	w.quotas = map[string]api.Quota{"openai": w.openai, "gemini": w.gemini}
	o := api.Options{
		Authorize: authorize,
		Quotas:    func() map[string]api.Quota { return w.quotas },
		Rates:     live,
		Simulator: toy{},
		Sparks: func(now time.Time) []samples.Spark {
			var b samples.Book
			b.Add(now, []samples.Look{{Connection: "a", Known: true, Rate: 60}, {Connection: "b"}})
			return b.Sparks(now)
		},
		Reader: w.reader,
		Act:    w.reader.act,
		Audit:  audit.New(t.TempDir(), nil),
		Events: hub,
		Ready:  func() error { return w.notReady },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = w.Write([]byte("headway_up 1\n"))
		}),
		Version: "v1.2.3", Keys: &cabinet{},
	}
	if change != nil {
		change(&o)
	}
	if w.API, err = api.New(o); err != nil {
		t.Fatal(err)
	}
	return w
}

func newGovernor(t testing.TB, hub *events.Hub, name string) *governor.Governor {
	t.Helper()
	g, err := governor.New(governor.Options{Config: limits(), OnEvent: hub.Quota(name)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// do sends one request; body "" means none. It is answered in memory.
func (w *world) do(method, path, key, body string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, request(method, path, key, body))
	return rec
}

func request(method, path, key, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	switch method {
	case http.MethodPost:
		r.Header.Set("Content-Type", "application/json")
	case http.MethodPatch:
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	return r
}

// into reads an answer of a status.
func into[T any](t *testing.T, rec *httptest.ResponseRecorder, status int) (v T) {
	t.Helper()
	if rec.Code != status {
		t.Fatalf("status %d, want %d: %s", rec.Code, status, rec.Body)
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, rec.Body)
	}
	if status >= 400 && rec.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("content type %q of a problem", rec.Header().Get("Content-Type"))
	}
	return v
}

// approved asks and must get.
func (w *world) approved(t *testing.T, key, body string) api.Approval {
	t.Helper()
	return into[api.Approval](t, w.do("POST", "/v1/quota/approve", key, body), 200)
}

var began = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

func live() []api.Live {
	rate := event.NewRate(50*time.Millisecond, 10*time.Millisecond)
	rate.LastBackoff = &event.Backoff{Reason: reason.RateLimited.Reason(), AtIntervalMS: 25, At: began}
	limits := []event.Limit{
		{Kind: "token_bucket", Size: 600, WindowS: 60, Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1},
		{Kind: "fixed_window", Unit: event.UnitCost, Pool: "tokens", Provenance: event.Advertised, Confidence: 0.5},
		{Kind: "concurrency", Size: 4, Unit: event.UnitRequests, Provenance: event.Learned, Confidence: 0.9},
	}
	rate.Belief = &event.Belief{Kind: "token_bucket", Limit: 60, WindowS: 60, Confidence: 0.9}
	return []api.Live{
		{Source: api.Proxy, Snapshot: headway.Snapshot{At: began, Connection: "openai", Law: "cycle", Rate: rate, Limits: limits, Circuit: "closed", InFlight: 2}, BoundBy: reason.Bounds{reason.BoundLatency: time.Second}},
		{Source: api.Collect, Snapshot: headway.Snapshot{At: began, Connection: "chat", Law: "aimd", Circuit: "open", RetryAt: began.Add(time.Minute)}},
	}
}

// shelf is a collect.Reader over values.
type shelf struct {
	status []collect.ConnectionStatus
	kept   []collect.Run
	owed   []collect.Gap
	traces map[string][]event.Event
	fails  error
	read   int // traces that were read
}

func newShelf() *shelf {
	s := &shelf{traces: map[string][]event.Event{}}
	for _, id := range []string{"r5", "r4", "r3", "r2", "r1"} {
		run := collect.Run{
			ID: id, Connection: "archive", Holder: "host:1", State: collect.RunDeferred, Reason: reason.RateLimited.Reason(),
			Started: began, Ended: began.Add(time.Minute), RetryAt: began.Add(time.Hour), Error: "429 rate_limited",
			Progress: collect.Progress{Attempts: 10, Throttled: 1, Records: 90, ChildrenGone: 2},
		}
		if id == "r4" {
			run.Connection = "chat"
		}
		s.kept = append(s.kept, run)
	}
	s.traces["r5"] = []event.Event{
		{Seq: 1, At: began, Type: event.RunStart, Connection: "archive", Run: "r5"},
		{Seq: 2, At: began, Type: event.CollectionRate, Connection: "archive", Run: "r5", Rate: event.NewRate(time.Second, time.Millisecond), Limits: []event.Limit{{Kind: "token_bucket", Size: 60_000, WindowS: 60, Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1}}},
		{Seq: 3, At: began, Type: event.Circuit, Connection: "archive", Run: "r5", Circuit: &event.Breaker{Previous: "closed", State: "open", Trigger: "failure_ratio"}},
	}
	for i, status := range []collect.GapStatus{collect.GapPending, collect.GapTerminal, collect.GapPending, collect.GapPending} {
		s.owed = append(s.owed, collect.Gap{
			ID: int64(i + 1), Connection: "archive", GapKey: collect.GapKey{Stream: "messages", Key: "k"}, Parent: "conversations",
			Locator: []byte("canary-locator"), Reason: reason.ServerError, Status: status, Attempts: 1, FirstSeen: began, LastSeen: began,
			LastError: "503 server_error",
		})
	}
	s.owed[3].Reason, s.owed[3].Backlog, s.owed[3].Since = reason.RateLimited.Reason(), true, "2026"
	pacing := &collect.Pacing{Version: 1, Law: "aimd", IntervalMS: 250, RecordedAt: began}
	s.status = []collect.ConnectionStatus{
		{
			Name: "archive", Lanes: []collect.Lane{{Stream: "conversations", Kind: collect.Catchup, Done: true, Trail: connector.Trail{Steps: 3}}},
			Shapes: []collect.StreamShape{{
				Stream: "conversations", DetailStream: "messages", Gone: true,
				Shape: connector.Shape{Base: "b", List: "l", Records: "r", Key: "k", Fingerprint: "f", Incremental: "i", Detail: "d"},
			}},
			SinkKind: "jsonl",
			Items:    map[string]int64{"conversations": 7}, Owed: map[string]int64{"server_error": 2}, Quarantined: 1, Pacing: pacing,
			Cooldown: collect.Cooldown{Cycles: 1, Until: began}, LastRun: &s.kept[0], Holder: "host:1",
		},
		{Name: "chat", Items: map[string]int64{}, Owed: map[string]int64{}, LastRun: &s.kept[1]},
		{Name: "new", Items: map[string]int64{}, Owed: map[string]int64{}},
	}
	return s
}

func (s *shelf) Connections(context.Context) ([]collect.ConnectionStatus, error) {
	return s.status, s.fails
}

func (s *shelf) Runs(_ context.Context, connection string, limit int) (runs []collect.Run, err error) {
	for _, r := range s.kept {
		if (connection == "" || r.Connection == connection) && (limit == 0 || len(runs) < limit) {
			runs = append(runs, r)
		}
	}
	return runs, s.fails
}

func (s *shelf) Gaps(_ context.Context, f collect.GapFilter) (gaps []collect.Gap, err error) {
	for _, g := range s.owed {
		if (f.Connection == "" || g.Connection == f.Connection) && (f.Stream == "" || g.Stream == f.Stream) &&
			(f.Status == "" || g.Status == f.Status) && (f.Reason == reason.None || g.Reason == f.Reason) &&
			g.ID > f.AfterID && (f.Limit == 0 || len(gaps) < f.Limit) {
			gaps = append(gaps, g)
		}
	}
	return gaps, s.fails
}

func (s *shelf) Events(_ context.Context, run string) ([]event.Event, error) {
	s.read++
	return s.traces[run], s.fails
}

// act quarantines, and counts what else would be done.
func (s *shelf) act(_ context.Context, a collect.GapAction, f collect.GapFilter, ids []int64) (n int64, err error) {
	for i := range s.owed {
		g := &s.owed[i]
		if (len(ids) == 0 || slices.Contains(ids, g.ID)) && (f.Reason == reason.None || f.Reason == g.Reason) && (f.Stream == "" || f.Stream == g.Stream) {
			n++
			if a == collect.GapQuarantine {
				g.Status = collect.GapTerminal
			}
		}
	}
	return n, s.fails
}

// toy is a simulator that runs until it is ended where the scenario says so.
type toy struct{}

func (toy) Menu() (api.SimulatorMenu, error) {
	return api.SimulatorMenu{Scenarios: []api.SimulatorScenario{{Name: "s", Limits: []string{"10/s"}}}, Families: []string{"f"}, Laws: []string{"cycle"}}, nil
}

func (toy) Draft(p api.SimulatorPick) (string, error) { return "name: " + p.Scenario, nil }

func (toy) Simulate(ctx context.Context, ask api.Simulation) (api.Simulated, error) {
	if ask.Source == "name: endless" {
		<-ctx.Done()
		return api.Simulated{}, ctx.Err()
	}
	return api.Simulated{Results: []api.SimulatedLaw{{Law: ask.Laws[0], SVG: "<svg/>", Figures: []api.SimulatedFigure{{Name: "n", Value: "unknown"}}}}}, nil
}

// cabinet is a keyring that keeps keys in memory.
type cabinet struct{ keys []api.IssuedKey }

func (c *cabinet) List() []api.IssuedKey {
	return append([]api.IssuedKey{{KeyRequest: api.KeyRequest{ID: "configured"}, Configured: true}}, c.keys...)
}

func (c *cabinet) Issue(k api.KeyRequest) (string, error) {
	if k.ID == "" {
		return "", api.BadKey(errors.New("id is missing"))
	}
	c.keys = append(c.keys, api.IssuedKey{KeyRequest: k})
	return "hw_secret", nil
}

func (c *cabinet) Revoke(id string) error {
	for i, k := range c.keys {
		if k.ID == id {
			c.keys = append(c.keys[:i:i], c.keys[i+1:]...)
			return nil
		}
	}
	return api.NoKey(id, id == "configured")
}
