package console_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/console"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/samples"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// world is a console with all that it reads.
type world struct {
	*console.Console
	mu     sync.Mutex
	status []collect.ConnectionStatus
	runs   []collect.Run
	owed   []collect.Gap
	trace  []event.Event
	live   []api.Live
	quotas map[string]api.Quota
	key    string // the admin's; empty lets everybody in
	log    bytes.Buffer
	seen   samples.Book
	calls  calls.Recent
	usage  *calls.Ledger
	audit  *audit.Log
	acted  []collect.GapAction
	fleet  []fleet.Credential

	announced []string // paths of one-time links; nil where keys log in

	text      string // is in what the simulator has
	simulated []api.Simulation
}

func newWorld(t testing.TB) *world { return worldWith(t, false) }

// worldWith makes a world, where links log in if that is asked for.
func worldWith(t testing.TB, links bool) *world {
	t.Helper()
	w := &world{quotas: map[string]api.Quota{}, audit: audit.New(t.TempDir(), nil), usage: calls.NewLedger(filepath.Join(t.TempDir(), calls.FileName))}
	t.Cleanup(func() { _ = w.usage.Close(context.Background()) })
	log := slog.New(slog.NewTextHandler(&w.log, nil))
	answers, err := api.New(api.Options{
		Authorize: w.authorize, Reader: w, Log: log,
		Rates:  func() []api.Live { w.mu.Lock(); defer w.mu.Unlock(); return w.live },
		Quotas: func() map[string]api.Quota { return w.quotas },
		Act:    w.act, Audit: w.audit, Simulator: w,
		Fleet: func() []fleet.Credential { return w.fleet }, Sparks: w.seen.Sparks,
		Samples: w.seen.Series, Calls: &w.calls, Usage: w.usage,
	})
	if err != nil {
		t.Fatal(err)
	}
	o := console.Options{API: answers, Source: "the state", Log: log}
	if links {
		o.Announce = func(path string) { w.announced = append(w.announced, path) }
	}
	if w.Console, err = console.New(o); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) authorize(r *http.Request, need api.Role) (api.Caller, error) {
	w.mu.Lock()
	key := w.key
	w.mu.Unlock()
	if key == "" {
		return api.Anybody(r, need)
	}
	switch r.Header.Get("Authorization") {
	case "Bearer " + key:
		return api.Caller{ID: "admin ops", Role: api.Admin}, nil
	case "Bearer screen":
		return api.Caller{ID: "viewer screen", Role: api.Viewer}, nil
	case "Bearer shift":
		return api.Caller{ID: "operator shift", Role: api.Operator}, nil
	case "Bearer data":
		if need != "" {
			return api.Caller{}, &reason.Refusal{Reason: reason.Forbidden}
		}
		return api.Caller{ID: "data"}, nil
	}
	return api.Caller{}, &reason.Refusal{Reason: reason.Unauthorized}
}

func (w *world) Connections(context.Context) ([]collect.ConnectionStatus, error) {
	return w.status, nil
}
func (w *world) Gaps(_ context.Context, f collect.GapFilter) ([]collect.Gap, error) {
	all := slices.DeleteFunc(slices.Clone(w.owed), func(g collect.Gap) bool { return g.ID <= f.AfterID })
	if f.Limit > 0 {
		all = all[:min(f.Limit, len(all))]
	}
	return all, nil
}
func (w *world) Events(context.Context, string) ([]event.Event, error)    { return w.trace, nil }
func (w *world) Runs(context.Context, string, int) ([]collect.Run, error) { return w.runs, nil }

func (w *world) act(_ context.Context, a collect.GapAction, _ collect.GapFilter, ids []int64) (int64, error) {
	w.acted = append(w.acted, a)
	return int64(max(len(ids), 3)), nil
}

// Menu, Draft and Simulate make a world a simulator that draws what it is given.
func (w *world) Menu() (api.SimulatorMenu, error) {
	return api.SimulatorMenu{Scenarios: []api.SimulatorScenario{{Name: "github-primary", Limits: []string{w.text}}, {Name: w.text}}, Families: []string{w.text}, Laws: []string{"cycle", w.text}}, nil
}

func (w *world) Draft(p api.SimulatorPick) (string, error) {
	return fmt.Sprintf("# %s\nname: %s%d\n", w.text, p.Scenario, p.Member), nil
}

func (w *world) Simulate(_ context.Context, ask api.Simulation) (s api.Simulated, err error) {
	w.simulated = append(w.simulated, ask)
	if ask.Source == "wrong" {
		return s, &api.Problem{Status: http.StatusUnprocessableEntity, Title: "Invalid scenario", Detail: "scenario:1:1: " + w.text}
	}
	for _, law := range ask.Laws {
		s.Results = append(s.Results, api.SimulatedLaw{Law: law, SVG: "<svg xmlns=\"http://www.w3.org/2000/svg\"><rect width=\"900\" height=\"400\" fill=\"#8fb3d9\"/></svg>", Figures: []api.SimulatedFigure{{Name: "goodput ratio", Value: "unknown", Note: w.text}}})
	}
	return s, nil
}

// changed writes down a change, with a name wherever there can be one.
func (w *world) changed(t testing.TB, name string) {
	t.Helper()
	values := map[string]any{name: name}
	e := audit.Entry{Who: name, Action: name, Target: name, Before: values}
	if err := w.audit.Do(t.Context(), e, func(context.Context) (map[string]any, error) { return values, errors.New(name) }); err == nil {
		t.Error("a change that fails has no error")
	}
}

// budget adds a quota.
func (w *world) budget(t testing.TB, name string, c quota.Config) *governor.Governor {
	t.Helper()
	g, err := governor.New(governor.Options{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	w.quotas[name] = g
	return g
}

// get asks for a page; cookies are sent along.
func (w *world) get(path string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for _, c := range cookies {
		r.AddCookie(c)
	}
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	return rec
}

// post sends a form.
func (w *world) post(path string, form url.Values, cookies ...*http.Cookie) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, c := range cookies {
		r.AddCookie(c)
	}
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	return rec
}

var tokenField = regexp.MustCompile(`name="token" value="([0-9a-f]+)"`)

func token(t *testing.T, page string) string {
	t.Helper()
	m := tokenField.FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no token in %s", page)
	}
	return m[1]
}

// collected is a connection of which everything is known.
func collected(name string) collect.ConnectionStatus {
	at := time.Now().Add(-time.Hour)
	return collect.ConnectionStatus{
		Name: name, Owed: map[string]int64{"rate_limited": 3}, Quarantined: 2,
		Items: map[string]int64{"items": 7}, Pacing: &collect.Pacing{Law: "cycle", IntervalMS: 50, RecordedAt: at},
		LastRun: &collect.Run{
			ID: "run-" + name, Connection: name, Holder: name, State: collect.RunDeferred, Reason: reason.RateLimited.Reason(),
			Started: at, Ended: at.Add(time.Minute), Error: name, Progress: collect.Progress{Attempts: 10, Records: 90},
		},
	}
}

// paced is a connection that is proxied now.
func paced(name string) api.Live {
	rate := event.NewRate(50*time.Millisecond, 10*time.Millisecond)
	rate.LastBackoff = &event.Backoff{Reason: reason.RateLimited.Reason(), AtIntervalMS: 25, At: time.Now().Add(-time.Hour)}
	rate.Belief = &event.Belief{Kind: "token_bucket", Limit: 60, WindowS: 60, Confidence: 0.9}
	limits := []event.Limit{{Kind: "token_bucket", Size: 600, WindowS: 60, Unit: event.UnitRequests, Pool: name, Provenance: event.Learned, Confidence: 0.4}}
	return api.Live{Source: api.Proxy, Snapshot: headway.Snapshot{
		At: time.Now(), Connection: name, Law: "cycle", Rate: rate, Limits: limits, Circuit: "closed",
		Pools: []headway.PoolSnapshot{{Name: name, Rate: rate, Limits: limits, Circuit: "closed"}},
	}}
}

func TestNothingUnknownIsZeroOrGood(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string]string{
		"": "Nothing is connected yet", "runs": "There was no run yet", "gaps": "No gap is known", "gaps?status=terminal": "No gap is like that", "quotas": "No quota is configured", "calls": "No call ended",
		"audit": "No change is known", "fleet": "No process shares a credential", "simulator": "The scenario",
	} {
		rec := w.get(console.Path + path)
		if rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), want) {
			t.Errorf("%q: %d %s", path, rec.Code, rec.Body)
		}
		if strings.Contains(rec.Body.String(), `good"`) {
			t.Errorf("%q: something is good in an empty store: %s", path, rec.Body)
		}
	}
	bare := func(change func(*api.Live)) func(*world) {
		return func(w *world) {
			w.live = []api.Live{paced("a")}
			change(&w.live[0])
		}
	}
	stored := func(change func(*collect.ConnectionStatus)) func(*world) {
		return func(w *world) {
			w.status = []collect.ConnectionStatus{collected("a")}
			change(&w.status[0])
			if last := w.status[0].LastRun; last != nil {
				w.runs = []collect.Run{*last}
			}
		}
	}
	for name, tt := range map[string]struct {
		set  func(*world)
		want []string // on the connection's page
	}{
		"no rate":           {bare(func(l *api.Live) { l.Rate = nil }), []string{"in use, rate unknown", `<span class="figure">unknown</span> <small>ceiling unknown</small>`, "<dt>Last back-off</dt><dd>unknown</dd>", "<dt>Learned limit</dt><dd>unknown</dd>"}},
		"a rate of nothing": {bare(func(l *api.Live) { l.Rate = &event.Rate{} }), []string{`<span class="figure">unknown</span> <small>no ceiling set</small>`}},
		"no ceiling":        {bare(func(l *api.Live) { l.Rate = event.NewRate(time.Second, 0) }), []string{"no ceiling set", `class="bar unknown"`}},
		"no belief":         {bare(func(l *api.Live) { l.Rate = event.NewRate(time.Second, time.Second) }), []string{"<dt>Learned limit</dt><dd>unknown</dd>", "<dt>Last back-off</dt><dd>none</dd>"}},
		"no limits":         {bare(func(l *api.Live) { l.Limits, l.Pools = nil, nil }), []string{"Limits are unknown."}},
		"no size":           {bare(func(l *api.Live) { l.Limits[0].Size, l.Limits[0].WindowS = 0, 0 }), []string{"unknown requests in an unknown time"}},
		"no circuit":        {bare(func(l *api.Live) { l.Circuit = "" }), []string{"<dt>Circuit</dt><dd>unknown</dd>"}},
		"never run":         {stored(func(s *collect.ConnectionStatus) { s.LastRun = nil }), []string{`<span class="state plain">unknown</span>`}},
		"no pacing":         {stored(func(s *collect.ConnectionStatus) { s.Pacing = nil }), []string{"<dt>Stored rate</dt><dd>unknown</dd>", "<dt>Calls</dt><dd>unknown</dd>", "<dt>Circuit</dt><dd>unknown</dd>", "<dt>Bound by</dt><dd>unknown</dd>"}},
		"state unheard of":  {stored(func(s *collect.ConnectionStatus) { s.LastRun.State = "dreaming" }), []string{`<span class="state plain">dreaming</span>`}},
		"no start":          {stored(func(s *collect.ConnectionStatus) { s.LastRun.Started, s.LastRun.Ended = time.Time{}, time.Time{} }), nil},
		"no times at all": {stored(func(s *collect.ConnectionStatus) {
			*s.LastRun = collect.Run{ID: "run-a", Connection: "a"}
			s.Pacing.RecordedAt = time.Time{}
		}), nil},
		"no back-off's": {bare(func(l *api.Live) { l.Rate.LastBackoff = &event.Backoff{} }), []string{"at unknown, none, unknown"}},
		"an empty call": {func(w *world) { w.live = []api.Live{paced("a")}; w.calls.Add(calls.Of(&egress.CallLog{})) }, nil},
		"an empty gap":  {func(w *world) { w.live = []api.Live{paced("a")}; w.owed = []collect.Gap{{}} }, nil},
		"an empty change": {func(w *world) {
			w.live = []api.Live{paced("a")}
			w.trace = []event.Event{{}}
			w.runs = []collect.Run{{ID: "run-a"}}
		}, nil},
		"an empty member": {func(w *world) {
			w.live = []api.Live{paced("a")}
			w.fleet = []fleet.Credential{{Members: []fleet.Member{{}}}}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.set(w)
			page := w.get(console.Path + "connection?name=a").Body.String()
			for _, want := range tt.want {
				if !strings.Contains(page, want) {
					t.Errorf("the page lacks %s:\n%s", want, page)
				}
			}
			paths := []string{"", "connection?name=a", "runs", "gaps", "quotas", "calls", "audit", "fleet", "simulator", "profiles"}
			if len(w.runs) > 0 {
				paths = append(paths, "run?id=run-a")
			}
			for _, path := range paths {
				rec := w.get(console.Path + path)
				if rec.Code != http.StatusOK {
					t.Errorf("%q: %d %s", path, rec.Code, rec.Body)
				}
				page := tokenField.ReplaceAllString(rec.Body.String(), "") // any digits may be in a token
				for _, zero := range []string{"0001", "+Inf", "NaN", "%!", "2562047h", "106751", ">0</span>", "&lt;nil&gt;"} {
					if strings.Contains(page, zero) {
						t.Errorf("%q has %q:\n%s", path, zero, page)
					}
				}
			}
			if all := w.get(console.Path).Body.String(); name == "no rate" && strings.Contains(all, `good"`) {
				t.Errorf("something is good: %s", all)
			}
		})
	}
}

// TestTheOverviewSaysWhatToLookAtFirst: the worst comes first, with its reason, and where
// each pool has a rate of its own these are shown.
func TestTheOverviewSaysWhatToLookAtFirst(t *testing.T) {
	w := newWorld(t)
	w.live = []api.Live{paced("a-fine"), paced("b-cools"), paced("c-pools")}
	w.live[1].RetryAt = time.Now().Add(time.Hour)
	w.live[2].Rate = nil
	w.live[2].Pools = append(w.live[2].Pools, headway.PoolSnapshot{Name: "more", Rate: event.NewRate(time.Second, 0)})
	w.status = []collect.ConnectionStatus{collected("d-owes"), collected("e-late")}
	w.status[0].Cooldown.NeedsAttention = true
	page := w.get(console.Path).Body.String()
	last := 0
	for _, want := range []string{
		`d-owes</bdi></a> <span class="state bad">needs attention</span> <small><bdi>2 quarantined</bdi></small>`,
		`b-cools</bdi></a> <span class="state warn">cooling down</span> <small><bdi>rate limited</bdi></small><small>, ends <time `,
		`e-late</bdi></a> <span class="state warn">deferred</span> <small><bdi>rate limited</bdi></small>`,
		`c-pools</bdi></a> <span class="state plain">in use, rate unknown</span>`,
		`<small>2 pools at 1/s to 20/s</small>`,
		`a-fine</bdi></a> <span class="state good">in use</span></th>`,
	} {
		at := strings.Index(page, want)
		if at < last {
			t.Errorf("%s is at %d, after one at %d: %s", want, at, last, page)
		}
		last = max(at, last)
	}
	w.calls.Add(calls.Of(&egress.CallLog{Began: time.Now(), Provider: "a-fine", Status: 200, Ending: egress.Complete, Attempts: 1}))
	w.called("b-cools")
	page = w.get(console.Path + "calls").Body.String()
	for _, want := range []string{`class="n"><span class="dim">–</span></td>`, `9, 4 <small>estimated</small>`, "<bdi>none</bdi>", "<bdi>key b-cools, tenant b-cools, agent b-cools</bdi>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of calls lacks %s: %s", want, page)
		}
	}
}

// TestABudgetThatRefusesIsNotGood: too little is left of it for a call, though not nothing.
func TestABudgetThatRefusesIsNotGood(t *testing.T) {
	w := newWorld(t)
	w.live = []api.Live{paced("openai")}
	g := w.budget(t, "openai", quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyTokens: 500}}, "idle": {Limits: quota.Limits{MaxDailyTokens: 500}}}})
	states := func() (good, refusing int) {
		page := w.get(console.Path + "quotas").Body.String()
		return strings.Count(page, `<span class="state good">normal</span>`), strings.Count(page, `<span class="state warn">refusing calls</span>`)
	}
	if good, refusing := states(); good != 3 || refusing != 0 {
		t.Errorf("at first %d are good and %d refuse", good, refusing)
	}
	first, err := g.Approve(quota.Request{Model: "m", InputTokens: 400})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.RecordUsage(first.Permit, quota.Usage{Input: 400}); err != nil {
		t.Fatal(err)
	}
	if good, refusing := states(); good != 3 || refusing != 0 {
		t.Errorf("after a call %d are good and %d refuse", good, refusing)
	}
	if d, _ := g.Approve(quota.Request{Model: "m", InputTokens: 200}); d.Approved || d.RetryIn <= 0 {
		t.Fatalf("not refused: %+v", d)
	}
	if good, refusing := states(); good != 1 || refusing != 2 {
		t.Errorf("after a refusal %d are good and %d refuse", good, refusing)
	}
	if page := w.get(console.Path + "quotas").Body.String(); strings.Count(page, "100 left, 400 used a minute: <b class=\"bad\">too little for the calls that come</b>") != 1 || strings.Count(page, "too little") != 1 {
		t.Errorf("the forecast of what refuses calls: %s", page)
	}
	if page := w.get(console.Path).Body.String(); !strings.Contains(page, `<span class="state warn">refusing calls</span> <small><bdi>of m</bdi></small>`) || strings.Contains(page, "good\"") {
		t.Errorf("the connection: %s", page)
	}
	if err := g.Replace(quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyTokens: 5000}}, "idle": {}}}); err != nil {
		t.Fatal(err)
	}
	if good, refusing := states(); good != 3 || refusing != 0 {
		t.Errorf("after a raise %d are good and %d refuse", good, refusing)
	}
	last, err := g.Approve(quota.Request{Model: "m", InputTokens: 4600})
	if err != nil || !last.Approved {
		t.Fatal(last, err)
	}
	if _, err := g.RecordUsage(last.Permit, quota.Usage{Input: 4600}); err != nil {
		t.Fatal(err)
	}
	if page := w.get(console.Path + "quotas").Body.String(); !strings.Contains(page, `<b class="bad">used up</b>`) || strings.Contains(page, "used up in") {
		t.Errorf("nothing is left: %s", page)
	}
}

var valueField = regexp.MustCompile(` value="[^"]*"|<textarea [^>]*>[^<]*</textarea>`)

func TestHostileNamesAreText(t *testing.T) {
	for _, name := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "\u202etxt.exe", `' onmouseover='x`, `</template><script>x</script>`,
		"javascript:alert(1)", strings.Repeat("<b>", 3500), "a\r\nevent: part\r\ndata: <script>", `{{.Token}}`, "a/../b?c=d&e#f",
	} {
		w := newWorld(t)
		w.status, w.live = []collect.ConnectionStatus{collected(name)}, []api.Live{paced(name)}
		w.live[0].Circuits = append(w.live[0].Circuits, egress.CircuitStatus{Model: name, Path: name, State: "open"})
		w.runs = []collect.Run{*w.status[0].LastRun}
		w.owed = []collect.Gap{{ID: 1, Connection: name, GapKey: collect.GapKey{Stream: name, Key: name}, Status: collect.GapPending, LastError: name}}
		w.trace = []event.Event{{Type: event.Type(name)}, {Type: event.Phase, Phase: name, Stream: name, Note: name}, {Type: event.ConnectionChanged, Connection: name, Stream: name}}
		if len(name) < 200 {
			w.budget(t, name, quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyCalls: 10}}}})
		}
		w.called(name)
		w.changed(t, name)
		w.fleet = []fleet.Credential{{IntervalMS: 50, Members: []fleet.Member{{Name: name, Share: 0.5, Away: true}}}}
		w.live[0].Fleet = &headway.FleetStatus{Members: 2}
		w.looked(name, 1)
		w.text = name
		q := url.QueryEscape(name)
		for _, path := range []string{
			"", "?q=" + q, "?state=" + q, "connection?name=" + q, "runs", "runs?connection=" + q, "run?id=" + url.QueryEscape("run-"+name), "gaps", "gaps?connection=" + q,
			"gaps?status=" + q, "quotas", "quotas?change=" + q, "quotas?change=" + q + "&model=m", "nowhere" + url.PathEscape(name), "login", "profiles", "calls", "calls?by=tenant&model=" + q, "audit", "fleet", "profile?name=" + q, "profile?name=github", "simulator", "simulator?scenario=" + q, "simulator?member=1&drawn=2&family=" + q,
		} {
			rec := w.get(console.Path + path)
			body := valueField.ReplaceAllString(rec.Body.String(), "") // a form brings back what it was given
			for _, bad := range []string{"\u202e", "<script>", "<img", "<b><b>", " onmouseover='", "</template>"} {
				if strings.Contains(body, bad) {
					t.Errorf("%.40q at %.60q: %q is in the page", name, path, bad)
				}
			}
			if rec.Code >= 500 {
				t.Errorf("%.40q at %.60q: %d %s", name, path, rec.Code, body)
			}
			if csp := rec.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
				t.Errorf("policy %q", csp)
			}
			if rec.Header().Get("Content-Type") == "text/html; charset=utf-8" && (strings.Contains(body, " style=") || strings.Contains(body, " on") && regexp.MustCompile(`<[a-z]+ [^<>"]*\bon[a-z]+=`).MatchString(body)) {
				t.Errorf("%.60q has inline code or style", path)
			}
		}
		if got := w.get(console.Path).Body.String(); !strings.Contains(got, "<bdi>") {
			t.Errorf("the name stands outside a bdi: %s", got)
		}
		if len(name) < 200 {
			if rec := w.get(console.Path + "connection?name=" + q); rec.Code != http.StatusOK {
				t.Errorf("%q: %d %s", name, rec.Code, rec.Body)
			}
		}
	}
}

func TestOnlyAdminsLook(t *testing.T) {
	w := newWorld(t)
	w.key = "canary-secret"
	w.status = []collect.ConnectionStatus{collected("a")}
	for _, path := range []string{"", "runs", "gaps", "quotas?change=x", "connection?name=a"} {
		if rec := w.get(console.Path + path); rec.Code != http.StatusSeeOther || rec.Header().Get("Location") != console.Path+"login" {
			t.Errorf("%q: %d %s", path, rec.Code, rec.Body)
		}
	}
	form := token(t, w.get(console.Path+"login").Body.String())
	for key, status := range map[string]int{"wrong": 401, "data": 403, "": 401, "with space": 401} {
		rec := w.post(console.Path+"login", url.Values{"token": {form}, "key": {key}})
		if rec.Code != status || len(rec.Result().Cookies()) > 0 {
			t.Errorf("key %q: %d %s", key, rec.Code, rec.Body)
		}
	}
	if rec := w.post(console.Path+"login", url.Values{"token": {"no"}, "key": {w.key}}); rec.Code != http.StatusForbidden {
		t.Errorf("a form of another site: %d", rec.Code)
	}
	in := w.post(console.Path+"login", url.Values{"token": {form}, "key": {w.key}})
	if in.Code != http.StatusSeeOther || len(in.Result().Cookies()) != 1 {
		t.Fatalf("%d %s", in.Code, in.Body)
	}
	c := in.Result().Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != console.Path || strings.Contains(c.String(), w.key) {
		t.Errorf("cookie %s", c)
	}
	page := w.get(console.Path, c).Body.String()
	if !strings.Contains(page, "run-a") || strings.Contains(page, w.key) {
		t.Errorf("page %s", page)
	}
	if rec := w.post(console.Path+"logout", url.Values{"token": {form}}, c); rec.Code != http.StatusForbidden {
		t.Errorf("the token of nobody's session passes for another: %d", rec.Code)
	}
	w.key = "revoked-meanwhile"
	if rec := w.get(console.Path+"runs", c); rec.Code != http.StatusSeeOther {
		t.Errorf("a key that was revoked: %d", rec.Code)
	}
	w.key = "canary-secret"
	if rec := w.post(console.Path+"logout", url.Values{"token": {token(t, page)}}, c); rec.Code != http.StatusSeeOther {
		t.Errorf("logout: %d", rec.Code)
	}
	if rec := w.get(console.Path+"runs", c); rec.Code != http.StatusSeeOther {
		t.Errorf("after the logout: %d", rec.Code)
	}
	if strings.Contains(w.log.String(), "canary") {
		t.Errorf("a key is in the log: %s", &w.log)
	}
}

// TestALinkLogsInOnce: without one nobody sees a page; it opens once and for a while, and
// its secret is in no log, header or page.
func TestALinkLogsInOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldWith(t, true)
		w.status = []collect.ConnectionStatus{collected("a")}
		get := func(path string, change func(*http.Request)) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = "127.0.0.1:4040"
			if change != nil {
				change(r)
			}
			rec := httptest.NewRecorder()
			w.ServeHTTP(rec, r)
			for _, all := range w.announced {
				_, secret, _ := strings.Cut(all, "link=")
				if strings.Contains(rec.Body.String()+fmt.Sprint(rec.Header())+w.log.String(), secret) {
					t.Errorf("%s: the secret is in the answer or the log: %v %s %s", path, rec.Header(), rec.Body, &w.log)
				}
			}
			if rec.Header().Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("%s: the next page may get the address", path)
			}
			return rec
		}
		press := func() *httptest.ResponseRecorder {
			form := url.Values{"token": {token(t, get(console.Path+"login", nil).Body.String())}}
			r := httptest.NewRequest(http.MethodPost, console.Path+"login", strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Host = "127.0.0.1:4040"
			rec := httptest.NewRecorder()
			w.ServeHTTP(rec, r)
			return rec
		}
		w.Announce()
		link := w.announced[0]
		if len(link) < 40 {
			t.Fatalf("the link %q can be guessed", link)
		}
		for _, path := range []string{"", "runs", "gaps", "quotas", "calls", "audit", "fleet", "simulator", "profiles", "connection?name=a", "login?link=", "login?link=x"} {
			if rec := get(console.Path+path, nil); strings.Contains(rec.Body.String(), "run-a") || len(rec.Result().Cookies()) > 0 || rec.Code == http.StatusOK && !strings.HasPrefix(path, "login") {
				t.Errorf("without a link, %q: %d %s", path, rec.Code, rec.Body)
			}
		}
		stream := func(r *http.Request) { r.Header.Set("Accept", "text/event-stream") }
		if rec := get(console.Path+"live?page=overview", stream); rec.Code != http.StatusUnauthorized {
			t.Errorf("a stream without a link: %d", rec.Code)
		}
		for name, change := range map[string]func(*http.Request){
			"a look ahead": func(r *http.Request) { r.Header.Set("Sec-Purpose", "prefetch;prerender") },
			"HEAD":         func(r *http.Request) { r.Method = http.MethodHead },
			"another name": func(r *http.Request) { r.Host = "moved.example" },
		} {
			if rec := get(link, change); rec.Code < 400 || len(rec.Result().Cookies()) > 0 {
				t.Errorf("%s: %d", name, rec.Code)
			}
		}
		in := get(link, nil)
		if in.Code != http.StatusSeeOther || in.Header().Get("Location") != console.Path || len(in.Result().Cookies()) != 1 {
			t.Fatalf("opened: %d %v", in.Code, in.Header())
		}
		c := in.Result().Cookies()[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != console.Path || c.Name != "headway_console_4040" {
			t.Errorf("cookie %s", c)
		}
		logged := func(r *http.Request) { r.AddCookie(c) }
		if rec := get(console.Path, logged); rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), "run-a") {
			t.Errorf("logged in: %d %s", rec.Code, rec.Body)
		}
		if rec := get(console.Path+"gaps", logged); !strings.Contains(rec.Body.String(), "admin") {
			t.Errorf("the role is not said: %s", rec.Body)
		}
		if rec := get(link, nil); rec.Code != http.StatusUnauthorized || len(rec.Result().Cookies()) > 0 || !strings.Contains(rec.Body.String(), "was opened before") {
			t.Errorf("again: %d %s", rec.Code, rec.Body)
		}
		if rec := get(link, logged); rec.Code != http.StatusSeeOther || len(rec.Result().Cookies()) > 0 {
			t.Errorf("again, by who is logged in: %d", rec.Code)
		}
		if rec := press(); rec.Code != http.StatusTooManyRequests || len(w.announced) != 1 {
			t.Errorf("another link at once: %d", rec.Code)
		}
		time.Sleep(time.Minute)
		if rec := press(); rec.Code != http.StatusOK || len(w.announced) != 2 {
			t.Errorf("another link: %d %s", rec.Code, rec.Body)
		}
		time.Sleep(15 * time.Minute)
		if rec := get(w.announced[1], nil); rec.Code != http.StatusUnauthorized {
			t.Errorf("a link that expired: %d", rec.Code)
		}
		time.Sleep(12 * time.Hour)
		if rec := get(console.Path, logged); rec.Code != http.StatusSeeOther {
			t.Errorf("a session that expired: %d", rec.Code)
		}
	})
}

func TestLimitsChangeWhenThatIsConfirmed(t *testing.T) {
	w := newWorld(t)
	g := w.budget(t, "openai", quota.Config{Global: quota.Limits{CallsPerMinute: 60}, Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyTokens: 500}}}})
	page := w.get(console.Path + "quotas?change=openai").Body.String()
	form := url.Values{"token": {token(t, page)}, "provider": {"openai"}, "callsPerMinute": {"40"}, "maxDailyCalls": {"1,000"}}
	without := url.Values{"provider": {"openai"}, "callsPerMinute": {"1"}, "step": {"apply"}}
	if rec := w.post(console.Path+"quotas", without); rec.Code != http.StatusForbidden {
		t.Errorf("without a token: %d", rec.Code)
	}
	review := w.post(console.Path+"quotas", form).Body.String()
	if !strings.Contains(review, "This would change") || g.Config().Global.CallsPerMinute != 60 {
		t.Fatalf("not asked first: %s", review)
	}
	digest := regexp.MustCompile(`name="digest" value="([0-9a-f]+)"`).FindStringSubmatch(review)[1]
	form.Set("step", "apply")
	form.Set("digest", "of something else")
	if rec := w.post(console.Path+"quotas", form); rec.Code != http.StatusConflict || g.Config().Global.CallsPerMinute != 60 {
		t.Errorf("limits that were changed meanwhile: %d", rec.Code)
	}
	form.Set("digest", digest)
	done := w.post(console.Path+"quotas", form)
	if !strings.Contains(done.Body.String(), "Limits changed") || g.Config().Global.CallsPerMinute != 40 || g.Config().Global.MaxDailyCalls != 1000 {
		t.Errorf("%d %s: %+v", done.Code, done.Body, g.Config().Global)
	}
	if !strings.Contains(w.log.String(), "limits changed through the API") || !strings.Contains(w.log.String(), "key_id=local") {
		t.Errorf("no line of an audit: %s", &w.log)
	}
	for _, wrong := range []string{"-1", "0", "many", "1e3"} {
		bad := url.Values{"token": form["token"], "provider": {"openai"}, "model": {"m"}, "maxDailyTokens": {wrong}, "step": {"apply"}, "digest": {digest}}
		if rec := w.post(console.Path+"quotas", bad); rec.Code != http.StatusUnprocessableEntity || g.Config().Models["m"].MaxDailyTokens != 500 {
			t.Errorf("%q: %d", wrong, rec.Code)
		}
	}
}

// enter logs in with a key.
func (w *world) enter(t *testing.T, key string) *http.Cookie {
	t.Helper()
	form := token(t, w.get(console.Path+"login").Body.String())
	in := w.post(console.Path+"login", url.Values{"token": {form}, "key": {key}})
	if in.Code != http.StatusSeeOther || len(in.Result().Cookies()) != 1 {
		t.Fatalf("login with %q: %d %s", key, in.Code, in.Body)
	}
	return in.Result().Cookies()[0]
}

// TestEachPageAndFormKeepsToTheRole asks for every page and sends every form as each role.
func TestEachPageAndFormKeepsToTheRole(t *testing.T) {
	w := newWorld(t)
	w.key = "canary-secret"
	w.status, w.live = []collect.ConnectionStatus{collected("a")}, []api.Live{paced("a")}
	w.runs = []collect.Run{*w.status[0].LastRun}
	w.owed = []collect.Gap{{ID: 1, Connection: "a", GapKey: collect.GapKey{Stream: "s", Key: "k"}, Status: collect.GapPending}}
	g := w.budget(t, "openai", quota.Config{Global: quota.Limits{CallsPerMinute: 60}})
	forms := map[string]url.Values{
		"quotas":    {"provider": {"openai"}, "callsPerMinute": {"40"}},
		"simulator": {"source": {"name: x"}, "law": {"cycle"}, "seed": {"1"}},
		"gaps":      {"which": {"all"}, "connection": {"a"}, "action": {"quarantine"}},
	}
	for key, may := range map[string]bool{"screen": false, "shift": true, w.key: true} {
		c := w.enter(t, key)
		for _, path := range []string{"", "connection?name=a", "runs", "run?id=run-a", "gaps", "quotas", "quotas?change=openai", "calls", "audit", "fleet", "profiles", "profile?name=github", "simulator"} {
			rec := w.get(console.Path+path, c)
			if rec.Code != http.StatusOK {
				t.Errorf("%q with %q: %d", path, key, rec.Code)
			}
			_, body, _ := strings.Cut(rec.Body.String(), "<main")
			if !may && (strings.Contains(body, `method="post"`) || strings.Contains(body, "change=openai")) {
				t.Errorf("%q offers a viewer to change something: %s", path, body)
			}
		}
		form := token(t, w.get(console.Path+"quotas", c).Body.String())
		for path, values := range forms {
			if rec := w.post(console.Path+path, values, c); rec.Code != http.StatusForbidden {
				t.Errorf("%s with %q without a token: %d", path, key, rec.Code)
			}
			sent := url.Values{"token": {form}}
			maps.Copy(sent, values)
			rec := w.post(console.Path+path, sent, c)
			if may && rec.Code != http.StatusOK || !may && rec.Code != http.StatusForbidden {
				t.Errorf("%s with %q: %d %s", path, key, rec.Code, rec.Body)
			}
			if !may && !strings.Contains(rec.Body.String(), "operator") {
				t.Errorf("%s: the role is not named: %s", path, rec.Body)
			}
		}
	}
	if n := g.Config().Global.CallsPerMinute; n != 60 || len(w.acted) > 0 {
		t.Errorf("changed to %d, and gaps %v, without a confirmation", n, w.acted)
	}
}

func TestAScenarioIsChangedAndRunFromThePage(t *testing.T) {
	w := newWorld(t)
	w.text = "<script>alert(1)</script>"
	if page := w.get(console.Path + "simulator").Body.String(); !strings.Contains(page, "name: github-primary-1") || strings.Count(page, " checked>") != 2 {
		t.Errorf("at first: %s", page)
	}
	if page := w.get(console.Path + "simulator?member=7&drawn=3").Body.String(); !strings.Contains(page, "name: 7") {
		t.Errorf("drawn: %s", page)
	}
	if rec := w.get(console.Path + "simulator?member=-7&drawn=3"); rec.Code != http.StatusBadRequest {
		t.Errorf("a member that cannot be: %d", rec.Code)
	}
	form := token(t, w.get(console.Path+"simulator").Body.String())
	for _, tt := range []struct {
		form url.Values
		code int
		want string
	}{
		{url.Values{"source": {"name: x\r\nhorizon: 1h"}, "law": {"cycle", "aimd"}, "seed": {"7"}}, 200, `<img class="plot" src="data:image/svg&#43;xml;base64,`},
		{url.Values{"source": {"wrong"}, "law": {"cycle"}, "seed": {"7"}}, 422, "Invalid scenario: scenario:1:1: &lt;script&gt;"},
		{url.Values{"source": {"name: x"}, "seed": {"7"}}, 422, "No law is chosen."},
		{url.Values{"source": {"name: x"}, "law": {"cycle"}, "seed": {"-7"}}, 422, "The seed must be"},
	} {
		tt.form.Set("token", form)
		rec := w.post(console.Path+"simulator", tt.form)
		if page := rec.Body.String(); rec.Code != tt.code || !strings.Contains(page, tt.want) || strings.Contains(page, "<script>a") || strings.Contains(page, "ZgotmplZ") {
			t.Errorf("%v: %d %s", tt.form, rec.Code, page)
		}
	}
	if len(w.simulated) != 2 || w.simulated[0].Source != "name: x\nhorizon: 1h" || w.simulated[0].Seed != 7 || len(w.simulated[0].Laws) != 2 {
		t.Errorf("simulated %+v", w.simulated)
	}
}

func TestGapsAreActedOnFromThePage(t *testing.T) {
	w := newWorld(t)
	w.status = []collect.ConnectionStatus{collected("a")}
	for id := range int64(3) {
		w.owed = append(w.owed, collect.Gap{ID: id + 1, Connection: "a", GapKey: collect.GapKey{Stream: "s", Key: "k"}, Status: collect.GapPending})
	}
	form := token(t, w.get(console.Path+"gaps?connection=a").Body.String())
	for _, tt := range []struct {
		form url.Values
		code int
		want string // where it leads, or what the page says
	}{
		{url.Values{"action": {"retry"}, "which": {"ticked"}, "id": {"1"}, "connection": {"a"}}, 303, "gaps?changed=3&connection=a"},
		{url.Values{"action": {"quarantine"}, "which": {"all"}, "connection": {"a"}}, 200, "This would quarantine all 3 owed gaps of"},
		{url.Values{"action": {"release"}, "which": {"all"}, "connection": {"a"}}, 200, "This would release all 2 quarantined gaps of"},
		{url.Values{"action": {"release"}, "which": {"all"}, "reason": {"rate_limited"}}, 200, "This would release all quarantined gaps for rate limited"},
		{url.Values{"action": {"quarantine"}, "which": {"all"}, "connection": {"a"}, "step": {"apply"}}, 303, "gaps?changed=3&connection=a"},
		{url.Values{"action": {"release"}, "which": {"all"}, "step": {"apply"}}, 303, "gaps?changed=3"},
		{url.Values{"action": {"retry"}, "which": {"ticked"}}, 400, "No gap was chosen"},
		{url.Values{"action": {"retry"}, "id": {"x"}}, 400, "cannot be read"},
		{url.Values{"action": {"drop"}, "id": {"1"}}, 400, "No such action"},
		{url.Values{"action": {"retry"}, "which": {"all"}, "connection": {"nobody"}, "step": {"apply"}}, 404, "No such connection"},
	} {
		tt.form.Set("token", form)
		rec := w.post(console.Path+"gaps", tt.form)
		if got := rec.Header().Get("Location") + rec.Body.String(); rec.Code != tt.code || !strings.Contains(got, tt.want) {
			t.Errorf("%v: %d %s", tt.form, rec.Code, got)
		}
	}
	if want := []collect.GapAction{collect.GapRetry, collect.GapQuarantine, collect.GapRelease}; !slices.Equal(w.acted, want) {
		t.Errorf("done: %v", w.acted)
	}
	if page := w.get(console.Path + "audit").Body.String(); strings.Count(page, ">done<") != 3 || !strings.Contains(page, "gaps of connection a") || !strings.Contains(page, "local") {
		t.Errorf("audit: %s", page)
	}
	if page := w.get(console.Path + "gaps?changed=3").Body.String(); !strings.Contains(page, "Done: 3 changed.") {
		t.Errorf("no word of what was done: %s", page)
	}
}

// flow is a client that reads until it has read so many events.
type flow struct {
	*httptest.ResponseRecorder
	left int
	done context.CancelFunc
}

func (f *flow) Write(b []byte) (int, error) {
	if f.left--; f.left == 0 {
		defer f.done()
	}
	return f.ResponseRecorder.Write(b)
}

func TestALivePageGetsWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.live = []api.Live{paced("a"), paced("b"), paced("<script>\r\n\r\nevent: x")}
		ctx, done := context.WithCancel(t.Context())
		f := &flow{httptest.NewRecorder(), 2, done}
		var ended sync.WaitGroup
		ended.Go(func() {
			w.ServeHTTP(f, httptest.NewRequestWithContext(ctx, http.MethodGet, console.Path+"live?page=overview", nil))
		})
		time.Sleep(2500 * time.Millisecond)
		w.mu.Lock()
		slower := paced("b")
		slower.Rate = event.NewRate(time.Second, 10*time.Millisecond)
		w.live = []api.Live{w.live[0], slower, w.live[2]}
		w.mu.Unlock()
		ended.Wait()
		_, after, _ := strings.Cut(f.Body.String(), "\n\nevent: part\ndata: ")
		first, second, _ := strings.Cut(after, "\n\nevent: part\ndata: ")
		if !strings.Contains(first, `hx-swap-oob="true" id="rows"`) || strings.Contains(f.Body.String(), "\r") || strings.Contains(first, "<script>") {
			t.Errorf("at first: %s", f.Body)
		}
		if strings.Count(second, "<tr") != 1 || !strings.Contains(second, ">1/s<") {
			t.Errorf("then: %s", second)
		}
	})
}

func TestACloseEndsLiveStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var ended sync.WaitGroup
		ended.Go(func() {
			w.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, console.Path+"live?page=overview", nil))
		})
		synctest.Wait()
		w.Close()
		ended.Wait()
	})
}

// many fills a world with connections, half of them live.
func (w *world) many(n int) {
	for i := range n {
		name := fmt.Sprintf("many-%03d", i)
		w.status = append(w.status, collected(name))
		if i%2 == 0 {
			w.live = append(w.live, paced(name))
		}
	}
}

// BenchmarkOverviewOf500 asks for a page of 500 connections.
func BenchmarkOverviewOf500(b *testing.B) {
	w := newWorld(b)
	w.many(500)
	n, began := 0, processorTime(b)
	for b.Loop() {
		n++
		if rec := w.get(console.Path); rec.Code != http.StatusOK {
			b.Fatal(rec.Code)
		}
	}
	b.ReportMetric(float64((processorTime(b)-began).Milliseconds())/float64(n), "cpu-ms/op")
}

// discard is a client that reads all there is and keeps nothing.
type discard struct {
	header http.Header
	parts  int
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     {}
func (d *discard) Flush()              {}
func (d *discard) Write(b []byte) (int, error) {
	d.parts += bytes.Count(b, []byte("<template>"))
	return len(b), nil
}

// BenchmarkLiveOf500 changes each of 500 connections once a second, as long as the stream of
// a page shows them: an operation is a second of it. It reports the processor time that it
// takes, in ms a second, and by how much the heap grows from the tenth second to the last.
func BenchmarkLiveOf500(b *testing.B) {
	w := newWorld(b)
	w.many(500)
	for i := 1; i < 500; i += 2 {
		w.live = append(w.live, paced(fmt.Sprintf("many-%03d", i)))
	}
	slices.SortFunc(w.live, func(a, b api.Live) int { return strings.Compare(a.Connection, b.Connection) })
	ctx, end := context.WithCancel(b.Context())
	client := &discard{header: http.Header{}}
	var ended sync.WaitGroup
	ended.Go(func() {
		w.ServeHTTP(client, httptest.NewRequestWithContext(ctx, http.MethodGet, console.Path+"live?page=overview", nil))
	})
	heap := func() uint64 { // the least of several readings: one may fall into a look, which takes megabytes for a moment
		least := uint64(math.MaxUint64)
		for range 5 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			least = min(least, m.HeapAlloc)
			time.Sleep(70 * time.Millisecond)
		}
		return least
	}
	n, began, early := 0, processorTime(b), uint64(0)
	for b.Loop() {
		n++
		time.Sleep(time.Second)
		w.mu.Lock()
		w.live = slices.Clone(w.live)
		for i := range w.live {
			w.live[i].Rate = event.NewRate(time.Duration(20+n%50)*time.Millisecond, 10*time.Millisecond)
		}
		w.mu.Unlock()
		if n == 10 {
			early = heap()
		}
	}
	b.ReportMetric(float64((processorTime(b)-began).Milliseconds())/float64(n), "cpu-ms/s")
	if n > 10 {
		b.ReportMetric(float64(int64(heap()-early))/1024, "KiB-grown")
	}
	end()
	ended.Wait()
	b.ReportMetric(float64(client.parts)/float64(n), "updates/s")
}

// processorTime is that of this process so far.
func processorTime(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// listen takes an address again that was just given back.
func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
