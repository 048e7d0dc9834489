package metrics_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/metrics"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

// scrape is what Prometheus would read.
func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	b, err := io.ReadAll(w.Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("GET /metrics: %d, %v", w.Code, err)
	}
	return string(b)
}

// full are metrics with a sample of every series that there is.
func full(t *testing.T) *metrics.Metrics {
	t.Helper()
	g, err := governor.New(governor.Options{Config: quota.Config{
		Global: quota.Limits{CallsPerMinute: 60, TokensPerMinute: 1000, MaxDailyTokens: 5000, MaxDailyCalls: 100, SoftTokenBudget: 900, SoftTokenWindowMS: 60000},
		Models: map[string]quota.Model{"small": {}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	d, err := g.Approve(quota.Request{Model: "small", InputTokens: 100})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 90, Output: 20}); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limits := []event.Limit{ // the first two have the same labels
		{Kind: "token_bucket", Size: 600, WindowS: 60, Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1},
		{Kind: "token_bucket", Size: 240, WindowS: 60, Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1},
		{Kind: "fixed_window", Unit: event.UnitCost, Pool: "tokens", Provenance: event.Advertised, Confidence: 0.5},
	}
	pools := []headway.PoolSnapshot{
		{Name: "idle", Circuit: "closed"}, // of which nothing is known
		{Name: "small", Circuit: "open", RetryAt: at, Rate: &event.Rate{CurrentIntervalMS: 250},
			Limits: []event.Limit{{Kind: "fixed_window", Size: 20, WindowS: 60, Unit: event.UnitRequests, Pool: "small", Provenance: event.Learned, Confidence: 0.9}}},
	}
	m := metrics.New(metrics.Options{
		Version: "v1",
		Providers: func() []egress.ProviderStatus {
			return []egress.ProviderStatus{{Name: "openai", InFlight: 2, Waiting: 1}}
		},
		Quotas: func() map[string]metrics.Quota { return map[string]metrics.Quota{"openai": g} },
		Connections: func() []headway.Snapshot {
			return []headway.Snapshot{
				{Connection: "openai", Law: "cycle", Circuit: "closed", RetryAt: at, Limits: limits, Rate: &event.Rate{
					CurrentIntervalMS: 500, CeilingIntervalMS: 10, LastBackoff: &event.Backoff{Reason: reason.RateLimited.Reason(), At: at},
				}, Pools: pools},
				{Connection: "unknown", Law: "cycle", Circuit: "closed"},
			}
		},
		Collections: func() ([]collect.ConnectionStatus, error) {
			return []collect.ConnectionStatus{{
				Name: "chats", Owed: map[string]int64{"rate_limited": 3}, Items: map[string]int64{"messages": 7},
				LastRun: &collect.Run{State: collect.RunDrained, Started: at, Ended: at, Progress: collect.Progress{Attempts: 9, Throttled: 1, BoundBy: reason.Bounds{reason.BoundCeiling: 3 * time.Second, reason.BoundLatency: time.Second}}},
			}}, nil
		},
	})
	m.Call(egress.CallLog{
		Provider: "openai", Model: "small", Tenant: "a", Ending: egress.Complete, Class: reason.OK, Status: 200,
		Attempts: 2, Throttled: 1, Wait: 2 * time.Second, Header: 100 * time.Millisecond, Whole: 3 * time.Second,
		Used: quota.Usage{Input: 90, Cached: 10, Output: 20}, BoundBy: reason.Bounds{reason.BoundCeiling: 2 * time.Second},
	})
	m.Call(egress.CallLog{Provider: "openai", Model: "anything at all", Ending: egress.Refused, Status: 429, Code: "RATE_THROTTLED"})
	m.Reloaded(errors.New("a fault"))
	m.HookDropped(0, 0)
	m.HookDropped(1, 7)
	return m
}

func TestWhatIsKnownIsShownAndNothingElse(t *testing.T) {
	text := scrape(t, full(t))
	for _, want := range []string{
		`headway_build_info{version="v1"} 1`,
		`headway_calls_total{model="small",outcome="ok",provider="openai",tenant="a"} 1`,
		`headway_calls_total{model="",outcome="refused",provider="openai",tenant=""} 1`,
		`headway_refusals_total{code="RATE_THROTTLED",provider="openai"} 1`,
		`headway_upstream_attempts_total{provider="openai"} 2`,
		`headway_upstream_throttles_total{provider="openai"} 1`,
		`headway_tokens_total{kind="cached",model="small",provider="openai",tenant="a"} 10`,
		`headway_call_wait_seconds_bucket{provider="openai",le="2.5"} 2`,
		`headway_call_bound_seconds_total{bound="ceiling",provider="openai"} 2`,
		`headway_calls_in_flight{provider="openai"} 2`,
		`headway_quota_approvals_total{model="small",quota="openai"} 1`,
		`headway_quota_remaining{budget="daily_tokens",model="",quota="openai"} 4890`,
		`headway_quota_state{model="small",quota="openai",state="normal"} 1`,
		`headway_connection_interval_seconds{connection="openai",law="cycle",pool=""} 0.5`,
		`headway_connection_interval_seconds{connection="openai",law="cycle",pool="small"} 0.25`,
		`headway_connection_circuit{connection="openai",pool="small",state="open"} 1`,
		`headway_connection_circuit{connection="openai",pool="",state="closed"} 1`,
		`headway_connection_retry_timestamp_seconds{connection="openai",pool="small"} 1.7672256e+09`,
		`headway_connection_limit{connection="openai",kind="fixed_window",pool="small",provenance="learned",unit="requests",window_seconds="60"} 20`,
		`headway_connection_limit{connection="openai",kind="token_bucket",pool="",provenance="owner",unit="requests",window_seconds="60"} 240`,
		`headway_connection_limit_confidence{connection="openai",kind="fixed_window",pool="tokens",provenance="advertised",unit="cost",window_seconds="0"} 0.5`,
		`headway_connection_circuit{connection="unknown",pool="",state="closed"} 1`,
		`headway_collection_owed{connection="chats",reason="rate_limited"} 3`,
		`headway_collection_last_run_state{connection="chats",reason="none",state="drained"} 1`,
		`headway_collection_last_run_bound_seconds{bound="ceiling",connection="chats"} 3`,
		`headway_collection_last_run_bound_seconds{bound="latency",connection="chats"} 1`,
		`headway_reloads_total{result="failed"} 1`,
		`headway_webhook_events_dropped_total{webhook="0"} 0`,
		`headway_webhook_events_dropped_total{webhook="1"} 7`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	for _, never := range []string{"anything at all", `pool="idle"`, `headway_connection_interval_seconds{connection="unknown"`, `headway_connection_limit{connection="openai",kind="fixed_window",pool="tokens"`} {
		if strings.Contains(text, never) {
			t.Errorf("there is %q, though nobody knows or asked for it", never)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestUnreadableStateIsNoZero(t *testing.T) {
	m := metrics.New(metrics.Options{Collections: func() ([]collect.ConnectionStatus, error) { return nil, errors.New("locked") }})
	scrape(t, m)
	text := scrape(t, m)
	if strings.Contains(text, "headway_collection_owed") || !strings.Contains(text, "headway_collections_unread_total ") || strings.Contains(text, "headway_collections_unread_total 0") {
		t.Errorf("a state that cannot be read shows as\n%s", text)
	}
}

func TestAnyBytesMayBeALabel(t *testing.T) {
	m := metrics.New(metrics.Options{})
	m.Call(egress.CallLog{Provider: "p", Model: "a\xffb", Tenant: "\xfe", Ending: egress.Complete, Class: reason.OK, Attempts: 1, Used: quota.Usage{Input: 1}})
	if got := scrape(t, m); !strings.Contains(got, "model=\"a\uFFFDb\",outcome=\"ok\",provider=\"p\",tenant=\"\uFFFD\"") {
		t.Errorf("the call is not counted:\n%s", got)
	}
}

func TestLabelsAreBounded(t *testing.T) {
	m := metrics.New(metrics.Options{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				m.Call(egress.CallLog{
					Provider: "p", Model: fmt.Sprint("m", i), Tenant: fmt.Sprint("t", (i+w)%500),
					Ending: egress.Complete, Class: reason.OK, Attempts: 1,
				})
			}
		})
	}
	wg.Wait()
	text := scrape(t, m)
	for label, most := range map[string]int{"model": metrics.MaxModels, "tenant": metrics.MaxTenants} {
		seen := map[string]bool{}
		for _, v := range regexp.MustCompile(label+`="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			seen[v[1]] = true
		}
		if len(seen) != most+1 || !seen[metrics.Others] {
			t.Errorf("%d values of %s, want %d and %q", len(seen), label, most, metrics.Others)
		}
	}
	total := 0
	for _, v := range regexp.MustCompile(`headway_calls_total\{[^}]*\} (\d+)`).FindAllStringSubmatch(text, -1) {
		var n int
		if _, err := fmt.Sscan(v[1], &n); err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total != 4000 {
		t.Errorf("%d calls counted of 4000", total)
	}
	if strings.Contains(text, "headway_labels_folded_total 0\n") {
		t.Error("nothing says that labels were folded")
	}
}

// TestPoolsAreBounded: those beyond the bound are one, and it is the worst of them.
func TestPoolsAreBounded(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := headway.Snapshot{Connection: "p", Law: "cycle", Circuit: "closed"}
	for i := range metrics.MaxModels {
		s.Pools = append(s.Pools, headway.PoolSnapshot{Name: fmt.Sprint("m", i), Circuit: "closed", Rate: &event.Rate{CurrentIntervalMS: 1}})
	}
	limit := func(size float64) []event.Limit {
		return []event.Limit{{Kind: "fixed_window", Size: size, WindowS: 60, Unit: event.UnitRequests, Pool: "mine", Provenance: event.Learned}}
	}
	s.Pools = append(s.Pools,
		headway.PoolSnapshot{Name: "x1", Circuit: "closed", Limits: limit(30)},
		headway.PoolSnapshot{Name: "x2", Circuit: "half_open", Rate: &event.Rate{CurrentIntervalMS: 2000}, RetryAt: at, Limits: limit(20)},
		headway.PoolSnapshot{Name: "x3", Circuit: "open", Rate: &event.Rate{CurrentIntervalMS: 1000}, RetryAt: at.Add(time.Hour)},
		headway.PoolSnapshot{Name: "x4", Circuit: "closed", Rate: &event.Rate{CurrentIntervalMS: 500}, RetryAt: at},
	)
	m := metrics.New(metrics.Options{Connections: func() []headway.Snapshot { return []headway.Snapshot{s} }})
	text := scrape(t, m)
	for _, want := range []string{
		`headway_connection_interval_seconds{connection="p",law="cycle",pool="other"} 2`,
		`headway_connection_circuit{connection="p",pool="other",state="open"} 1`,
		`headway_connection_retry_timestamp_seconds{connection="p",pool="other"} 1.7672292e+09`,
		`headway_connection_limit{connection="p",kind="fixed_window",pool="other",provenance="learned",unit="requests",window_seconds="60"} 20`,
		`headway_connection_interval_seconds{connection="p",law="cycle",pool="m99"} 0.001`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	for _, never := range []string{`pool="x`, `pool="mine"`} {
		if strings.Contains(text, never) {
			t.Errorf("there is %s", never)
		}
	}
	if again := scrape(t, m); strings.Count(again, "headway_connection_interval_seconds{") != metrics.MaxModels+1 {
		t.Error("another scrape shows others")
	}
}

// observe is the folder of what watches a daemon.
const observe = "../../examples/observe"

// expressions are those of the dashboard.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(observe, "grafana-dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
			GridPos struct{ X, Y, W, H int }
		}
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q: its id, title or place is wrong", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, x := range p.Targets {
			all = append(all, x.Expr)
		}
	}
	if len(all) < 10 {
		t.Fatalf("the dashboard asks %d questions, want more", len(all))
	}
	return all
}

// TestDashboardAndAlertsAskForWhatIsThere holds every metric that they name
// against what is served.
func TestDashboardAndAlertsAskForWhatIsThere(t *testing.T) {
	served := scrape(t, full(t))
	alerts, err := os.ReadFile(filepath.Join(observe, "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	asked := regexp.MustCompile(`headway_[a-z_]+`).FindAllString(strings.Join(expressions(t), "\n")+"\n"+string(alerts), -1)
	if len(asked) < 20 {
		t.Fatalf("%d metrics are asked for, want more", len(asked))
	}
	for _, name := range asked {
		if !strings.Contains(served, "\n"+name+"{") && !strings.Contains(served, "\n"+name+" ") {
			t.Errorf("%s is asked for, but not served", name)
		}
	}
}

// TestPrometheusAcceptsRulesAndMetrics has Prometheus' own linter look at the
// rules, at the dashboard's expressions as rules, and at what is served.
func TestPrometheusAcceptsRulesAndMetrics(t *testing.T) {
	tool := promtool(t)
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for i, x := range expressions(t) {
		x = strings.NewReplacer("$__rate_interval", "5m", "$provider", ".*").Replace(x)
		fmt.Fprintf(&rules, "      - record: panel:%d\n        expr: %q\n", i, x)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "rules", filepath.Join(observe, "alerts.yml")}, {"check", "rules", file},
		{"check", "config", filepath.Join(observe, "prometheus.yml")},
	} {
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), tool, "check", "metrics")
	cmd.Stdin = strings.NewReader(scrape(t, full(t)))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// promtool gives its path; Debian's package is unpacked where it is missing: the
// server that comes with it is not wanted.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	dir := t.TempDir()
	run := func(name string, args ...string) error {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	get := func() error { return run("apt-get", "-o", "APT::Sandbox::User=root", "download", "prometheus") }
	if get() != nil {
		if err := errors.Join(run("apt-get", "update"), get()); err != nil {
			t.Fatalf("this test needs promtool (Debian: apt-get install prometheus): %v", err)
		}
	}
	packages, err := filepath.Glob(filepath.Join(dir, "prometheus_*.deb"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("the package of promtool: %v, %v", packages, err)
	}
	if err := run("dpkg-deb", "-x", packages[0], dir); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "usr", "bin", "promtool")
}

func BenchmarkCall(b *testing.B) {
	m := metrics.New(metrics.Options{Version: "v1"})
	c := egress.CallLog{
		Provider: "openai", Model: "m", Status: 200, Ending: egress.Complete, Class: reason.OK, Attempts: 1,
		Header: time.Millisecond, Whole: 2 * time.Millisecond, Used: quota.Usage{Input: 20, Output: 40},
	}
	c.BoundBy[reason.BoundLatency], c.BoundBy[reason.BoundProcessing] = time.Millisecond, time.Millisecond
	b.ReportAllocs()
	for b.Loop() {
		m.Call(c)
	}
}
