package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

const someCall = `{"provider":"openai","model":"m","expected_input_tokens":1000}`

func TestAPermitIsSettledOnceAndAskingAgainChangesNothing(t *testing.T) {
	w := newWorld(t, nil)
	a := w.approved(t, "plain", someCall)
	if !a.Approved || a.Provider != "openai" || a.Scale <= 0 || a.ExpiresInMS != 600_000 || a.Advisories == nil {
		t.Errorf("approval %+v", a)
	}
	settle := fmt.Sprintf(`{"permit":%q,"input_tokens":400,"output_tokens":100}`, a.Permit)
	for _, first := range []bool{true, false, false} {
		if got := into[api.Settled](t, w.do("POST", "/v1/quota/usage", "plain", settle), 200); got.First != first {
			t.Errorf("first %v, want %v", got.First, first)
		}
	}
	if l := w.openai.Snapshot().Models["m"].Ledger; l.Used != 500 || l.Refunded != 500 || l.Held != 0 {
		t.Errorf("ledger %+v", l)
	}
	p := into[api.Problem](t, w.do("POST", "/v1/quota/usage", "plain", fmt.Sprintf(`{"permit":%q,"input_tokens":1}`, a.Permit)), 409)
	if p.Code != quota.CodeApprovalConflict {
		t.Errorf("another usage: %+v", p)
	}
}

func TestACanceledPermitGivesAllBack(t *testing.T) {
	w := newWorld(t, nil)
	a := w.approved(t, "plain", someCall)
	cancel := fmt.Sprintf(`{"permit":%q,"cancel":true}`, a.Permit)
	for _, first := range []bool{true, false} {
		if got := into[api.Settled](t, w.do("POST", "/v1/quota/usage", "plain", cancel), 200); got.First != first {
			t.Errorf("first %v, want %v", got.First, first)
		}
	}
	if m := w.openai.Snapshot().Models["m"]; *m.CallsRemaining != 2 || m.Ledger.Used != 0 || m.Ledger.Held != 0 {
		t.Errorf("model %+v", m)
	}
	into[api.Problem](t, w.do("POST", "/v1/quota/usage", "plain", fmt.Sprintf(`{"permit":%q,"input_tokens":1}`, a.Permit)), 409)
	p := into[api.Problem](t, w.do("POST", "/v1/quota/usage", "plain", fmt.Sprintf(`{"permit":%q,"cancel":true,"input_tokens":1}`, a.Permit)), 400)
	if p.Field != "cancel" {
		t.Errorf("%+v", p)
	}
}

func TestNobodySettlesWhatIsNotTheirs(t *testing.T) {
	w, restarted := newWorld(t, nil), newWorld(t, nil)
	a := w.approved(t, "plain", someCall)
	epoch, secret, _ := strings.Cut(a.Permit, ".")
	other := "A" + secret[1:]
	if other == secret {
		other = "B" + secret[1:]
	}
	use := func(w *world, key, permit string) *httptest.ResponseRecorder {
		return w.do("POST", "/v1/quota/usage", key, fmt.Sprintf(`{"permit":%q,"cancel":true}`, permit))
	}
	for name, c := range map[string]struct {
		rec    *httptest.ResponseRecorder
		status int
		detail string
	}{
		"another key":        {use(w, "team-b", a.Permit), 410, "another key"},
		"a guess":            {use(w, "plain", epoch+"."+other), 410, "ended or expired"},
		"before a restart":   {use(restarted, "plain", a.Permit), 410, "before the daemon restarted"},
		"no permit":          {use(w, "plain", "17"), 400, "must be that of an approval"},
		"an empty one":       {use(w, "plain", ""), 400, "must be that of an approval"},
		"a secret too short": {use(w, "plain", epoch+".x"), 400, "must be that of an approval"},
	} {
		p := into[api.Problem](t, c.rec, c.status)
		if !strings.Contains(p.Detail, c.detail) || strings.Contains(p.Detail, secret) {
			t.Errorf("%s: %q", name, p.Detail)
		}
	}
	if open := w.openai.Snapshot().Statistics.Open; open != 1 {
		t.Fatalf("%d open permits, want the one", open)
	}
	if got := into[api.Settled](t, use(w, "admin", a.Permit), 200); !got.First {
		t.Error("an admin could not")
	}
}

func TestEveryRefusalHasItsStatusCodeAndTimeToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		config := limits()
		config.Models["soft"] = quota.Model{Limits: quota.Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}}
		config.Global = quota.Limits{CallsPerMinute: 60, Burst: 5}
		if err := w.openai.Replace(config); err != nil {
			t.Fatal(err)
		}
		ask := func(model string, tokens int) *httptest.ResponseRecorder {
			return w.do("POST", "/v1/quota/approve", "plain", fmt.Sprintf(`{"provider":"openai","model":%q,"expected_input_tokens":%d}`, model, tokens))
		}
		for _, model := range []string{"m", "m", "soft"} {
			into[api.Approval](t, ask(model, 100), 200)
		}
		for _, c := range []struct {
			model  string
			tokens int
			status int
			code   quota.Code
			reason quota.Reason
			ms     int64
			after  string
		}{
			{"m", 1, 429, quota.CodeThrottled, quota.Throttled, 1000, "1"},
			{"soft", 50, 429, quota.CodeSoftLimit, quota.SoftLimit, 60_000, "60"},
			{"small", 101, 429, quota.CodeHardLimit, quota.HardLimit, 0, ""},
			{"nobody", 1, 404, quota.CodeModelNotConfigured, quota.HardLimit, 0, ""},
			{"free", 1_000_000_001, 400, quota.CodeInvalidConfig, "", 0, ""},
		} {
			rec := ask(c.model, c.tokens)
			p := into[api.Problem](t, rec, c.status)
			want := api.Problem{
				Type: "urn:headway:problem:" + strings.ToLower(string(c.code)), Title: p.Title, Status: c.status, Detail: p.Detail,
				Code: c.code, Reason: string(c.reason), Scope: p.Scope, RetryInMS: p.RetryInMS, Field: p.Field, Errors: p.Errors,
			}
			if d := cmp.Diff(want, p); d != "" || p.Title == "" || p.Detail == "" {
				t.Errorf("%s: %s", c.model, d)
			}
			// The window of a soft budget frees in small steps.
			if p.RetryInMS != c.ms && (c.model != "soft" || p.RetryInMS < 55_000 || p.RetryInMS > 66_000) {
				t.Errorf("%s: retry in %d ms, want %d", c.model, p.RetryInMS, c.ms)
			}
			if got := rec.Header().Get("Retry-After"); (got == "") != (c.after == "") || c.model == "m" && got != c.after {
				t.Errorf("%s: Retry-After %q, want %q", c.model, got, c.after)
			}
			if d, ok := p.RetryIn(); ok != (c.ms > 0) || d != time.Duration(p.RetryInMS)*time.Millisecond {
				t.Errorf("%s: RetryIn %v %v", c.model, d, ok)
			}
		}
		for range 2 {
			into[api.Approval](t, ask("free", 1), 200)
		}
		if p := into[api.Problem](t, ask("free", 1), 429); p.Code != quota.CodeGlobalLimit || p.Scope != "global" {
			t.Errorf("%+v", p)
		}
	})
}

func TestWithoutAProviderTheUsualQuotaIsAsked(t *testing.T) {
	w := newWorld(t, nil)
	const call = `{"model":"m"}`
	p := into[api.Problem](t, w.do("POST", "/v1/quota/approve", "plain", call), 400)
	if d := cmp.Diff([]string{"gemini", "openai"}, p.Choices); d != "" || p.Field != "provider" {
		t.Errorf("%+v", p)
	}
	// A key for one provider has no choice to make.
	if a := w.approved(t, "team-a", call); a.Provider != "openai" {
		t.Errorf("the only one a key may use: %+v", a)
	}
	w.quotas = map[string]api.Quota{"gemini": w.gemini}
	if a := w.approved(t, "plain", call); a.Provider != "gemini" {
		t.Errorf("the only one: %+v", a)
	}
	w.quotas = map[string]api.Quota{"gemini": w.gemini, "default": w.openai}
	if a := w.approved(t, "plain", call); a.Provider != "default" {
		t.Errorf("the default: %+v", a)
	}
	if v := into[api.Index](t, w.do("GET", "/v1", "plain", ""), 200); v.Default != "default" || len(v.Quotas) != 2 || v.Version != "v1.2.3" {
		t.Errorf("index %+v", v)
	}
	w.quotas = nil
	if p := into[api.Problem](t, w.do("POST", "/v1/quota/approve", "plain", call), 404); p.Choices != nil {
		t.Errorf("none: %+v", p)
	}
}

// spy keeps what it was asked.
type spy struct {
	*governor.Governor
	asked quota.Request
}

func (s *spy) Approve(r quota.Request) (quota.Decision, error) {
	s.asked = r
	return s.Governor.Approve(r)
}

func TestAKeyAsksOnlyForWhomItIs(t *testing.T) {
	w := newWorld(t, nil)
	s := &spy{Governor: w.openai}
	w.quotas = map[string]api.Quota{"openai": s}
	for _, c := range []struct {
		name, key, body string
		want            quota.Request
	}{
		{"filled in", "team-a", `{"model":"m"}`, quota.Request{Model: "m", Tenant: "a", Agent: "planner", Priority: 1}},
		{"its own", "team-a", `{"model":"m","tenant":"a","agent":"planner","priority":9}`, quota.Request{Model: "m", Tenant: "a", Agent: "planner", Priority: 1}},
		{"free to name", "plain", `{"model":"free","tenant":"x","priority":9}`, quota.Request{Model: "free", Tenant: "x", Priority: 5}},
		{"lower is fine", "plain", `{"model":"free","priority":-9}`, quota.Request{Model: "free", Priority: -9}},
		{"an admin", "admin", `{"model":"free","tenant":"x","priority":9}`, quota.Request{Model: "free", Tenant: "x", Priority: 9}},
	} {
		w.approved(t, c.key, c.body)
		if d := cmp.Diff(c.want, s.asked); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
	for field, body := range map[string]string{
		"tenant": `{"model":"m","tenant":"b"}`, "agent": `{"model":"m","agent":"coder"}`, "model": `{"model":"free"}`,
	} {
		if p := into[api.Problem](t, w.do("POST", "/v1/quota/approve", "team-a", body), 403); p.Field != field {
			t.Errorf("%s: %+v", field, p)
		}
	}
}

// broken is a client to whom nothing can be written.
type broken struct{ http.ResponseWriter }

func (broken) Write([]byte) (int, error) { return 0, errors.New("connection reset") }

// unflushed is one to whom nothing arrives, though writing seems to work.
type unflushed struct{ http.ResponseWriter }

func (unflushed) FlushError() error { return errors.New("connection reset") }

func TestAnApprovalThatDoesNotArriveIsGivenBack(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	for name, send := range map[string]func(*world){
		"gone": func(w *world) {
			w.ServeHTTP(httptest.NewRecorder(), request("POST", "/v1/quota/approve", "plain", someCall).WithContext(gone))
		},
		"broken": func(w *world) {
			w.ServeHTTP(broken{httptest.NewRecorder()}, request("POST", "/v1/quota/approve", "plain", someCall))
		},
		"unflushed": func(w *world) {
			w.ServeHTTP(unflushed{httptest.NewRecorder()}, request("POST", "/v1/quota/approve", "plain", someCall))
		},
	} {
		w := newWorld(t, nil)
		send(w)
		s := w.openai.Snapshot()
		if s.Statistics.Approved != 1 || s.Statistics.Open != 0 || *s.Models["m"].CallsRemaining != 2 || s.Models["m"].Ledger.Held != 0 {
			t.Errorf("%s: %+v, %d calls", name, s.Statistics, *s.Models["m"].CallsRemaining)
		}
	}
}

func TestKnownPermitsAreBoundedAndThoseThatEndedMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *api.Options) { o.Permits = 2 })
		const call = `{"provider":"openai","model":"free"}`
		first := w.approved(t, "plain", call)
		w.approved(t, "plain", call)
		rec := w.do("POST", "/v1/quota/approve", "plain", call)
		if p := into[api.Problem](t, rec, 503); p.RetryInMS != 600_000 || rec.Header().Get("Retry-After") != "600" {
			t.Errorf("%+v", p)
		}
		if n := w.openai.Snapshot().Statistics.Approved; n != 2 {
			t.Errorf("%d approved, want 2: what cannot be kept must not be asked for", n)
		}
		settle := fmt.Sprintf(`{"permit":%q}`, first.Permit)
		into[api.Settled](t, w.do("POST", "/v1/quota/usage", "plain", settle), 200)
		w.approved(t, "plain", call)
		into[api.Problem](t, w.do("POST", "/v1/quota/usage", "plain", settle), 410)
		into[api.Problem](t, w.do("POST", "/v1/quota/approve", "plain", call), 503)
		time.Sleep(10*time.Minute + time.Second)
		w.approved(t, "plain", call) // the others have expired
	})
}

func TestAPermitThatExpiredIsAConflictAndLaterForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		settle := fmt.Sprintf(`{"permit":%q,"input_tokens":1}`, w.approved(t, "plain", someCall).Permit)
		time.Sleep(10*time.Minute + time.Second)
		into[api.Problem](t, w.do("POST", "/v1/quota/usage", "plain", settle), 409)
		time.Sleep(10 * time.Minute)
		w.approved(t, "plain", someCall) // what cannot be asked for is forgotten when the next one comes
		into[api.Problem](t, w.do("POST", "/v1/quota/usage", "plain", settle), 410)
	})
}

func TestAReloadLeavesPermitsWithWhoGaveThemOut(t *testing.T) {
	w := newWorld(t, nil)
	a := w.approved(t, "plain", someCall)
	w.quotas = map[string]api.Quota{"openai": newGovernor(t, w.hub, "openai")}
	into[api.Settled](t, w.do("POST", "/v1/quota/usage", "plain", fmt.Sprintf(`{"permit":%q,"input_tokens":7}`, a.Permit)), 200)
	if used := w.openai.Snapshot().Models["m"].Ledger.Used; used != 7 {
		t.Errorf("used %d, want 7", used)
	}
}

func TestAClosedQuotaSaysSo(t *testing.T) {
	w := newWorld(t, nil)
	if err := w.openai.Close(); err != nil {
		t.Fatal(err)
	}
	rec := w.do("POST", "/v1/quota/approve", "plain", someCall)
	if p := into[api.Problem](t, rec, 503); p.Reason != "closed" || rec.Header().Get("Retry-After") != "1" {
		t.Errorf("%+v", p)
	}
}

func TestConcurrentClientsNeverGetMoreThanThereIs(t *testing.T) {
	w := newWorld(t, nil)
	if err := w.openai.UpdateConfig([]byte(`{"models":{"free":{"maxDailyCalls":50}}}`)); err != nil {
		t.Fatal(err)
	}
	var approved, settled sync.Map
	var clients sync.WaitGroup
	for client := range 16 {
		clients.Go(func() {
			for call := range 20 {
				rec := w.do("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"free","expected_input_tokens":3}`)
				if rec.Code != 200 {
					continue
				}
				a := into[api.Approval](t, rec, 200)
				if _, twice := approved.LoadOrStore(a.Permit, client*100+call); twice {
					t.Errorf("permit given out twice")
				}
				s := into[api.Settled](t, w.do("POST", "/v1/quota/usage", "plain", fmt.Sprintf(`{"permit":%q,"input_tokens":2}`, a.Permit)), 200)
				settled.Store(a.Permit, s.First)
			}
		})
	}
	clients.Wait()
	n := 0
	settled.Range(func(_, first any) bool {
		n++
		return first.(bool)
	})
	if l := w.openai.Snapshot().Models["free"].Ledger; n != 50 || l.Approved != 50 || l.Used != 100 || l.Held != 0 {
		t.Errorf("%d settled first, ledger %+v", n, l)
	}
}

func TestABadPatchChangesNothingAndAGoodOneLeavesALine(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, func(o *api.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	const path = "/v1/quota/config?provider=openai"
	before, err := w.openai.Config().Digest()
	if err != nil {
		t.Fatal(err)
	}
	for body, field := range map[string]string{
		`{"models":{"m":{"burst":-3}}}`:            "models.m.burst",
		`{"models":{"m":{"burst":3,"brust":3}}}`:   "patch",
		`{"models":{"m":{"burst":"many"}}}`:        "patch",
		`[]`:                                       "patch",
		`{"scaleMax":0.5,"models":{"n":{}}`:        "patch",
		`{"scaleMax":0.5,"eventBuffer":-1}`:        "scaleMax",
		`{"scaleMax":3} {"scaleMax":2}`:            "patch",
		``:                                         "patch",
		`{"tenants":{"a":{"softTokenBudget":10}}}`: "tenants.a.softTokenWindowMs",
	} {
		p := into[api.Problem](t, w.do("PATCH", path, "admin", body), 400)
		found := false
		for _, e := range p.Errors {
			found = found || e.Field == field
		}
		if !found || p.Code != quota.CodeInvalidConfig || p.Field != p.Errors[0].Field {
			t.Errorf("%s: want field %s, got %+v", body, field, p)
		}
	}
	into[api.Problem](t, w.do("PATCH", path, "plain", `{"scaleMax":3}`), 403)
	if after, err := w.openai.Config().Digest(); after != before || err != nil || log.Len() > 0 {
		t.Errorf("digest %s, want %s; %v; log %s", after, before, err, log.String())
	}
	got := into[api.Patched](t, w.do("PATCH", path, "admin", `{"models":{"m":{"burst":7}}}`), 200)
	if got.ConfigDigest == before || got.ConfigDigest != w.openai.Snapshot().ConfigDigest || *w.openai.Snapshot().Models["m"].CallsCapacity != 7 {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{"[RG][CONFIG]", "provider=openai", "key_id=ops", "digest_before=" + before, "config_digest=" + got.ConfigDigest} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log has no %s: %s", want, log.String())
		}
	}
}

func TestASnapshotShowsAKeyNothingOfOtherTenants(t *testing.T) {
	w := newWorld(t, nil)
	for _, key := range []string{"team-a", "team-b"} {
		for range 3 {
			w.do("POST", "/v1/quota/approve", key, `{"provider":"openai","model":"m"}`)
		}
	}
	w.do("POST", "/v1/quota/approve", "admin", `{"provider":"openai","model":"nobody","tenant":"b"}`)
	see := func(key string) (models int, tenants map[string]bool) {
		s := into[quota.Snapshot](t, w.do("GET", "/v1/quota/snapshot?provider=openai", key, ""), 200)
		tenants = map[string]bool{}
		for _, e := range s.RecentEvents {
			tenants[e.Tenant] = true
		}
		return len(s.Models), tenants
	}
	if models, tenants := see("team-a"); models != 1 || tenants["b"] {
		t.Errorf("team-a sees %d models, events of %v", models, tenants)
	}
	if models, tenants := see("admin"); models != 3 || !tenants["b"] {
		t.Errorf("admin sees %d models, events of %v", models, tenants)
	}
}

func TestAForecastIsInMillisecondsAndNullWhenItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.approved(t, "plain", `{"provider":"openai","model":"m","expected_input_tokens":10000}`)
		budgets := map[string]api.Forecast{}
		for _, f := range into[[]api.Forecast](t, w.do("GET", "/v1/quota/forecast?provider=openai&model=m", "plain", ""), 200) {
			budgets[f.Budget] = f
		}
		if f := budgets["dailyTokens"]; f.Remaining != 990_000 || f.PerMinute != 10_000 || f.RunsOutInMS == nil || *f.RunsOutInMS != 99*60_000 || !f.Early {
			t.Errorf("%+v", f)
		}
		if f := budgets["calls"]; f.RunsOutInMS != nil || f.Early {
			t.Errorf("%+v", f)
		}
		if none := w.do("GET", "/v1/quota/forecast?provider=openai&model=nobody", "plain", ""); strings.TrimSpace(none.Body.String()) != "[]" {
			t.Errorf("an unknown scope: %s", none.Body)
		}
	})
}

// late is a quota whose waits end with their context, as when it and the
// approval come at the same instant.
type late struct{ *governor.Governor }

func (l late) ApproveWait(ctx context.Context, _ quota.Request) (quota.Decision, error) {
	<-ctx.Done()
	return quota.Decision{}, &reason.Refusal{Reason: reason.Deadline, Err: ctx.Err()}
}

func TestTheEndOfAWaitIsAnAnswerAndNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.quotas = map[string]api.Quota{"openai": late{w.openai}}
		const call = `{"model":"m","wait_ms":100}`
		for range 2 { // became free at the last instant
			w.approved(t, "plain", call)
		}
		if p := into[api.Problem](t, w.do("POST", "/v1/quota/approve", "plain", call), 429); p.Code != quota.CodeThrottled {
			t.Errorf("%+v", p)
		}
	})
}

func TestRefusalsTakeNoRoomForPermits(t *testing.T) {
	w := newWorld(t, func(o *api.Options) { o.Permits = 1 })
	for range 3 {
		into[api.Problem](t, w.do("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"small","expected_input_tokens":101}`), 429)
	}
	w.approved(t, "plain", `{"provider":"openai","model":"small","expected_input_tokens":1}`)
}

func TestAWaitMayBeLongerThanABodyMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := governor.New(governor.Options{
			Config:  quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 1}}}},
			MaxWait: 2 * time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = g.Close() }()
		w := newWorld(t, nil)
		w.quotas = map[string]api.Quota{"slow": g}
		w.approved(t, "plain", `{"model":"m"}`)
		conn := serve(t, w)()
		defer func() { _ = conn.Close() }()
		const body = `{"model":"m","wait_ms":90000}`
		if _, err := fmt.Fprintf(conn, "POST /v1/quota/approve HTTP/1.1\r\nHost: headway\r\nAuthorization: Bearer plain\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		var a api.Approval
		if err := json.NewDecoder(res.Body).Decode(&a); err != nil || res.StatusCode != 200 || a.WaitedMS != 60_000 {
			t.Errorf("%s: %+v, %v", res.Status, a, err)
		}
	})
}

func TestAWaitEndsWithTheApprovalOrAtOnceWhenItCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		for range 2 {
			w.approved(t, "plain", `{"provider":"openai","model":"m"}`)
		}
		began := time.Now()
		a := w.approved(t, "plain", `{"provider":"openai","model":"m","wait_ms":2000}`)
		if waited := time.Since(began); waited != time.Second || a.WaitedMS != 1000 {
			t.Errorf("waited %v, said %d ms, want 1 s", waited, a.WaitedMS)
		}
		began = time.Now()
		p := into[api.Problem](t, w.do("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"m","wait_ms":900}`), 429)
		if p.Code != quota.CodeThrottled || p.RetryInMS != 1000 || time.Since(began) != 0 {
			t.Errorf("after %v: %+v", time.Since(began), p)
		}
	})
}

func TestAWaitThatOthersOvertakeEndsInTimeWithWhatStandsInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		for range 2 {
			w.approved(t, "plain", `{"provider":"openai","model":"m"}`)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			began := time.Now()
			p := into[api.Problem](t, w.do("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"m","wait_ms":1500}`), 429)
			if p.Code != quota.CodeThrottled || p.RetryInMS < 1 || time.Since(began) > 1500*time.Millisecond {
				t.Errorf("after %v: %+v", time.Since(began), p)
			}
		})
		synctest.Wait()
		for range 2 { // both have the greater priority
			waiting.Go(func() { w.approved(t, "plain", `{"provider":"openai","model":"m","wait_ms":5000,"priority":5}`) })
		}
		waiting.Wait()
	})
}

func TestAClientThatGoesAwayTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		for range 2 {
			w.approved(t, "plain", `{"provider":"openai","model":"m"}`)
		}
		ctx, leave := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() {
			r := request("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"m","wait_ms":5000}`).WithContext(ctx)
			w.ServeHTTP(httptest.NewRecorder(), r)
		})
		synctest.Wait()
		if n := w.openai.Snapshot().Statistics.Waiting; n != 1 {
			t.Errorf("%d wait, want 1", n)
		}
		leave()
		waiting.Wait()
		time.Sleep(time.Second)
		s := w.openai.Snapshot()
		if s.Statistics.Waiting != 0 || s.Statistics.Open != 2 || *s.Models["m"].CallsRemaining != 1 {
			t.Errorf("%+v, %d calls", s.Statistics, *s.Models["m"].CallsRemaining)
		}
	})
}
