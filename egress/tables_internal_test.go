package egress

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

func TestLengthsOfTimeInHeaders(t *testing.T) {
	for v, want := range map[string]time.Duration{
		"1": time.Second, "0.5": time.Second / 2, "1e-3": time.Millisecond, "90000": maxSpan, "1e300": maxSpan,
		"250ms": time.Second / 4, " 2s ": 2 * time.Second, "1ns": 1, "25h": maxSpan,
		"0": 0, "-1": 0, "NaN": 0, "Inf": 0, "-Inf": 0, "0s": 0, "-2s": 0, "": 0, "soon": 0,
		strings.Repeat("0", 31) + "1":   time.Second,
		strings.Repeat("0", 32) + "1":   0,
		strings.Repeat("0", 31) + "1s":  0,
		strings.Repeat("0", 30) + "1s":  time.Second,
		strings.Repeat(" ", 30) + "1\t": 0,
	} {
		if got, ok := span(v); ok != (want > 0) || ok && got != want {
			t.Errorf("%q is %v, %v, want %v", v, got, ok, want)
		}
	}
}

// The address by which a client reached the proxy is that of its connection, or of the one
// to a proxy before.
func TestHere(t *testing.T) {
	for want, r := range map[string]*http.Request{
		"http://h":      {Host: "h"},
		"https://h":     {Host: "h", TLS: &tls.ConnectionState{}},
		"https://front": {Host: "front", Header: http.Header{"X-Forwarded-Proto": {"HTTPS"}}},
	} {
		if got := (&call{accepted: accepted{r: r}}).here(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A wait counts from a millisecond on.
func TestWaitsThatCount(t *testing.T) {
	var c call
	c.waited(reason.BoundCeiling, time.Millisecond-1)
	if n := c.log.BoundBy[reason.BoundCeiling]; n != 0 {
		t.Errorf("%v", n)
	}
	c.waited(reason.BoundCeiling, time.Millisecond)
	if n := c.log.BoundBy[reason.BoundCeiling]; n != time.Millisecond {
		t.Errorf("%v", n)
	}
}

func TestTracesOfClients(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	change := func(at int, c byte) string {
		b := []byte(good)
		b[at] = c
		return string(b)
	}
	for v, want := range map[string]bool{
		good: true, "": false, good + "0": false, good[:54]: false, "01" + good[2:]: false,
		change(2, '0'): false, change(35, '0'): false, change(52, '0'): false,
		change(3, '/'): false, change(3, '0'): true, change(3, '9'): true, change(3, ':'): false,
		change(54, '`'): false, change(54, 'a'): true, change(54, 'f'): true, change(54, 'g'): false, change(54, 'A'): false,
		change(34, '-'): false, change(36, '-'): false, change(51, '-'): false, change(53, '-'): false,
	} {
		if got := traceParent(http.Header{"Traceparent": {v}}); (got == v && v != "") != want || !want && got != "" {
			t.Errorf("%q gives %q", v, got)
		}
	}
}

func TestFirstSegments(t *testing.T) {
	for path, want := range map[string][2]string{
		"/openai/v1/x": {"openai", "/v1/x"}, "/openai": {"openai", ""}, "/openai/": {"openai", "/"}, "/": {"", ""}, "": {"", ""}, "//x": {"", "/x"},
	} {
		if name, rest := cut(path); name != want[0] || rest != want[1] {
			t.Errorf("%q is %q and %q", path, name, rest)
		}
	}
	for path, want := range map[string]bool{
		"/v1/x": false, "/v1/../x": true, "/v1/.": true, `/v1\..\x`: true, "/..;a=b/x": true, "/...": false, "/.a": false, "/a;..": false,
	} {
		if got := escapes(path); got != want {
			t.Errorf("%q escapes: %v", path, got)
		}
	}
	for path, want := range map[string]string{
		"/v1/files/file-9/content": "/v1/files/*/content", "/v1beta/models/m": "/v1beta/models/m", "/v/x": "/v/x",
		"/v12345678/x": "/*/x", "/v1234567/x": "/v1234567/x", "/w1/x": "/*/x", "/v/1": "/v/*", "/va1": "/*", "/v0": "/v0", "/v9": "/v9", "/v:1": "/*", "/v-1": "/*", "/v/": "/v/",
	} {
		if got := starred(path); got != want {
			t.Errorf("%q is shown as %q, want %q", path, got, want)
		}
	}
	for p, want := range map[part]string{{}: "the whole provider", {"", "/v1/a/9"}: "/v1/a/*", {"m", "/v1/chat"}: "m at /v1/chat"} {
		if got := p.String(); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
	for name, want := range map[string]bool{
		"a": true, "0": true, "z9.-_": true, "": false, ".a": false, "-a": false, "_a": false, "A": false, "a/": false, "a{": false, "a`": false,
		strings.Repeat("a", 64): true, strings.Repeat("a", 65): false,
	} {
		if got := validName(name); got != want {
			t.Errorf("%q is a name: %v", name, got)
		}
	}
}

func TestWhatGoesIntoLogsIsBounded(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "m": "m", strings.Repeat("a", 128): strings.Repeat("a", 128), strings.Repeat("a", 129): strings.Repeat("a", 128), "a\xffb": "ab",
	} {
		if got := clip(s); got != want {
			t.Errorf("%q is cut to %q", s, got)
		}
	}
	for d, want := range map[time.Duration]string{0: "0", 1: "1", time.Millisecond: "1", time.Millisecond + 1: "2", 3 * time.Millisecond: "3", time.Minute: "60000"} {
		if got := milliseconds(d); got != want {
			t.Errorf("%v is %s ms, want %s", d, got, want)
		}
	}
	var c counters
	for i := range 2 * maxCodes {
		c.refuse(fmt.Sprint(i))
	}
	if c.refuse("0"); len(c.refused) != maxCodes || c.refused["0"] != 2 || c.refused[fmt.Sprint(maxCodes-1)] != 1 {
		t.Errorf("%d codes are counted, the first %d times", len(c.refused), c.refused["0"])
	}
}

func TestRefusalsOfABudgetInTheWordsOfHTTP(t *testing.T) {
	for name, c := range map[string]struct {
		d    quota.Denial
		want provider.Refusal
	}{
		"the day": {
			quota.Denial{Reason: quota.HardLimit, Code: quota.CodeHardLimit, Scope: quota.Scope{Model: "m"}, RetryIn: time.Hour},
			provider.Refusal{Status: 429, Code: "RATE_HARD_LIMIT", Reason: reason.QuotaExhausted, RetryIn: time.Hour, Message: "The budget of the day is used up for model m, or too little of it is left for this call."},
		},
		"the window": {
			quota.Denial{Reason: quota.SoftLimit, Code: quota.CodeSoftLimit, Scope: quota.Scope{Tenant: "t"}, RetryIn: time.Second},
			provider.Refusal{Status: 429, Code: "RATE_SOFT_LIMIT", Reason: reason.Pacing, RetryIn: time.Second, Retry: true, Message: "The window of tokens is full for tenant t."},
		},
		"the rate": {
			quota.Denial{Reason: quota.Throttled, Code: quota.CodeThrottled, Scope: quota.Scope{Model: "m"}, RetryIn: time.Second},
			provider.Refusal{Status: 429, Code: "RATE_THROTTLED", Reason: reason.Pacing, RetryIn: time.Second, Retry: true, Message: "No room in time within the limits for model m."},
		},
		"never": {
			quota.Denial{Reason: quota.Throttled, Code: quota.CodeGlobalLimit, RetryIn: quota.Never},
			provider.Refusal{Status: 429, Code: "RATE_GLOBAL_LIMIT_EXCEEDED", Reason: reason.Pacing, RetryIn: -1, Message: "No room in time within the limits for global."},
		},
		"no such model": {
			quota.Denial{Reason: quota.HardLimit, Code: quota.CodeModelNotConfigured, RetryIn: quota.Never},
			provider.Refusal{Status: 404, Code: "RATE_MODEL_NOT_CONFIGURED", Reason: reason.ClientError, RetryIn: -1, Message: "The model is not configured here."},
		},
		"nonsense": {
			quota.Denial{Reason: quota.HardLimit, Code: quota.CodeInvalidConfig, RetryIn: time.Second},
			provider.Refusal{Status: 400, Code: "RATE_INVALID_CONFIG", Reason: reason.ClientError, RetryIn: -1, Message: "The call is out of the bounds of what a quota can count."},
		},
	} {
		if diff := cmp.Diff(c.want, budget(&c.d)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPoliciesOfLimits(t *testing.T) {
	all := quota.Limits{
		CallsPerMinute: 1, TokensPerMinute: 2, InputTokensPerMinute: 3, OutputTokensPerMinute: 4,
		SoftTokenBudget: 5, SoftTokenWindowMS: 1001, MaxDailyCalls: 6, MaxDailyTokens: 7,
	}
	for why, want := range map[quota.Reason][]policy{
		quota.Throttled: {{"calls", 1, 60, ""}, {"tokens", 2, 60, "tokens"}, {"input-tokens", 3, 60, "tokens"}, {"output-tokens", 4, 60, "tokens"}},
		quota.SoftLimit: {{"soft-tokens", 5, 2, "tokens"}},
		quota.HardLimit: {{"daily-calls", 6, 86_400, ""}, {"daily-tokens", 7, 86_400, "tokens"}},
	} {
		if got := policies(all, why); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", why, got, want)
		}
		if got := policies(quota.Limits{SoftTokenBudget: 5}, why); len(got) != 0 {
			t.Errorf("%s: %v without limits", why, got)
		}
	}
	limit := func(n int64) quota.Limits { return quota.Limits{CallsPerMinute: n} }
	c := quota.Config{
		Global: limit(1), Models: map[string]quota.Model{"m": {Limits: limit(2)}},
		Tenants: map[string]quota.Tenant{"t": {
			Limits: limit(3), Models: map[string]quota.Limits{"m": limit(4)},
			Agents:       map[string]quota.Agent{"a": {Limits: limit(5), Models: map[string]quota.Limits{"m": limit(6)}}},
			AgentDefault: quota.Agent{Limits: limit(7), Models: map[string]quota.Limits{"m": limit(8)}},
		}},
		TenantDefault: quota.Tenant{Limits: limit(9), Models: map[string]quota.Limits{"m": limit(10)}},
	}
	for s, want := range map[quota.Scope]int64{
		{}: 1, {Model: "m"}: 2, {Tenant: "t"}: 3, {Tenant: "t", Model: "m"}: 4, {Tenant: "t", Agent: "a"}: 5, {Tenant: "t", Agent: "a", Model: "m"}: 6,
		{Tenant: "t", Agent: "b"}: 7, {Tenant: "t", Agent: "b", Model: "m"}: 8, {Tenant: "u"}: 9, {Tenant: "u", Model: "m"}: 10,
	} {
		if got := scoped(&c, s).CallsPerMinute; got != want {
			t.Errorf("%+v: the limits are those of %d, want %d", s, got, want)
		}
	}
}

func TestSpentModelsAreAskedAgain(t *testing.T) {
	var s spent
	now := time.Unix(1_800_000_000, 0)
	for after, want := range map[time.Duration]time.Duration{0: 0, time.Second: time.Second, 4 * time.Minute: 4 * time.Minute, time.Hour: spentMost} {
		s.note(now, fmt.Sprint(after), &signal.Signal{HasRetryAfter: true, RetryAfter: after})
		if got := s.left(now, fmt.Sprint(after)); got != want {
			t.Errorf("after Retry-After %v: left alone for %v, want %v", after, got, want)
		}
	}
	s.note(now, "m", &signal.Signal{})
	for after, want := range map[time.Duration]time.Duration{0: spentFor, spentFor - 1: 1, spentFor: 0, spentFor + 1: 0} {
		if got := s.left(now.Add(after), "m"); got != want {
			t.Errorf("after %v: left alone for another %v, want %v", after, got, want)
		}
	}
	for i := range 2 * maxSpent {
		s.note(now, fmt.Sprint("model ", i), &signal.Signal{})
	}
	if len(s.models) != maxSpent {
		t.Errorf("%d models are remembered, want %d", len(s.models), maxSpent)
	}
	later := now.Add(spentMost) // when all of them are over
	if s.note(later, "another", &signal.Signal{}); s.left(later, "another") != spentFor || len(s.models) != 1 {
		t.Errorf("%d models are remembered later", len(s.models))
	}
}

func TestWhichModelsTakeToBeAsked(t *testing.T) {
	var j injection
	at := time.Unix(1_800_000_000, 0)
	if _, known := j.of("m"); known {
		t.Error("known from the start")
	}
	j.note("m", false, at)
	j.note("m", false, at.Add(time.Hour)) // says nothing new
	if takes, known := j.of("m"); takes || !known || !j.refused["m"].Equal(at) {
		t.Errorf("%v, %v, refused since %v", takes, known, j.refused["m"])
	}
	j.note("m", true, at)
	if takes, known := j.of("m"); !takes || !known || len(j.refused) != 0 {
		t.Errorf("%v, %v, refused %v", takes, known, j.refused)
	}
	j.note(strings.Repeat("m", maxInjectedName+1), true, at)
	j.note(strings.Repeat("m", maxInjectedName), true, at)
	if len(j.takes) != 2 {
		t.Errorf("%d models are known, want 2", len(j.takes))
	}
	for i := range maxInjected - 2 {
		j.note(fmt.Sprint(i), false, at)
	}
	if len(j.takes) != maxInjected {
		t.Errorf("%d models are known, want %d", len(j.takes), maxInjected)
	}
	if j.note("one more", false, at); len(j.takes) != 1 || len(j.refused) != 1 {
		t.Errorf("%d models are known and %d refused, want that it begins from the start", len(j.takes), len(j.refused))
	}
}

// TestWhatIsRememberedOfModelsOutlivesAProxy: for providers that are still there, and
// for as long as it may hold.
func TestWhatIsRememberedOfModelsOutlivesAProxy(t *testing.T) {
	d, _ := provider.Builtin(provider.OpenAI)
	p, err := New(Options{Providers: []Provider{{Name: "a", Description: d}, {Name: "b", Description: d}}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	young, old := now.Add(-unaskedFor+1), now.Add(-unaskedFor)
	p.RestoreUnasked(now, map[string]map[string]time.Time{"a": {"young": young, "old": old}, "gone": {"m": young}})
	for range 2 { // it gives its locks back
		want := map[string]map[string]time.Time{"a": {"young": young}}
		if diff := cmp.Diff(want, p.Unasked()); diff != "" {
			t.Error(diff)
		}
	}
	if takes, known := p.table.Load().upstreams["a"].injection.of("young"); takes || !known {
		t.Errorf("%v, %v", takes, known)
	}
}

func TestUpstreamURLs(t *testing.T) {
	for _, c := range []struct{ base, rest, query, want string }{
		{"https://h", "/v1/x", "", "https://h/v1/x"},
		{"https://h/", "/v1/x", "a=b", "https://h/v1/x?a=b"},
		{"https://h/base/", "/v1/x", "", "https://h/base/v1/x"},
		{"https://h/base", "", "", "https://h/base"},
		{"https://h/base", "/a%2Fb", "", "https://h/base/a%2Fb"},
		{"https://h/b%2Fc", "/a", "", "https://h/b%2Fc/a"},
		{"https://h", "/a%20b", "", "https://h/a%20b"},
	} {
		base, err := url.Parse(c.base)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := target(base, c.rest, c.query); err != nil || got.String() != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
	if _, err := target(&url.URL{}, "/%zz", ""); err == nil {
		t.Error("a percent sign that stands for nothing is passed")
	}
}

func TestMaxWaitOfACall(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
		bad         bool
	}{
		{"X-Nothing", "", 15 * time.Second, false},
		{headerTimeout, "2s", 2 * time.Second, false},
		{headerTimeout, "2", 2 * time.Second, false},
		{headerTimeout, "0.5", 500 * time.Millisecond, false},
		{headerTimeout, "1h", 15 * time.Second, false},
		{headerTimeout, "0", 0, true},
		{headerTimeout, "-1s", 0, true},
		{headerTimeout, "NaN", 0, true},
		{headerTimeout, "Inf", 0, true},
		{headerTimeout, "soon", 0, true},
		{headerTimeout, "1e300", 15 * time.Second, false},
		{headerDeadline, "2026-01-01T00:00:03Z", 3 * time.Second, false},
		{headerDeadline, "2026-01-01T01:00:03+01:00", 3 * time.Second, false},
		{headerDeadline, "2025-12-31T23:59:59Z", -time.Second, false},
		{headerDeadline, "3", 0, true},
		{"X-Stainless-Timeout", "5", 5 * time.Second, false},
		{"X-Stainless-Timeout", "5.0", 5 * time.Second, false},
		{"X-Stainless-Timeout", "none", 15 * time.Second, false},
		{"X-Stainless-Read-Timeout", "4", 4 * time.Second, false},
		{"X-Server-Timeout", "6", 6 * time.Second, false},
	} {
		h := http.Header{c.name: {c.value}}
		until, err := waitUntil(began, 15*time.Second, h)
		if (err != nil) != c.bad || !c.bad && until.Sub(began) != c.want {
			t.Errorf("%s: %s gives %v, %v, want %v", c.name, c.value, until.Sub(began), err, c.want)
		}
		if err != nil && c.value != "3" && strings.Contains(err.Error(), "is "+c.value) {
			t.Errorf("the error repeats the value: %v", err)
		}
	}
}

func FuzzMaxWait(f *testing.F) {
	golden.Seeds(f)
	f.Add("2s", "2026-01-01T00:00:03Z", "5")
	f.Add("1e309", "", "-0")
	f.Fuzz(func(t *testing.T, timeout, deadline, sdk string) {
		began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		until, _ := waitUntil(began, time.Minute, http.Header{headerTimeout: {timeout}, headerDeadline: {deadline}, "X-Stainless-Timeout": {sdk}})
		if until.After(began.Add(time.Minute)) {
			t.Errorf("it waits until %v", until)
		}
	})
}

func FuzzTarget(f *testing.F) {
	golden.Seeds(f)
	for _, path := range []string{"/p/v1/x", "/p/a%2Fb", "/p/..%2f", "/p//evil.example/x", "/p/%5c..", "/p?", "/p/@evil.example"} {
		f.Add(path, "a=b")
	}
	base := &url.URL{Scheme: "https", Host: "upstream", Path: "/base"}
	f.Fuzz(func(t *testing.T, path, query string) {
		in, err := url.ParseRequestURI(path)
		if err != nil || in.Host != "" || escapes(in.Path) {
			return
		}
		_, rest := cut(in.EscapedPath())
		to, err := target(base, rest, query)
		if err != nil {
			return
		}
		again, err := url.Parse("https://upstream" + to.EscapedPath())
		if err != nil || to.Host != "upstream" || to.Scheme != "https" || again.Host != "upstream" || !strings.HasPrefix(again.Path, "/base") || escapes(again.Path) {
			t.Errorf("%q leads to %v", path, to)
		}
	})
}

func FuzzRelocate(f *testing.F) {
	golden.Seeds(f)
	for _, location := range []string{"/base/x", "https://upstream/base/x?key=1", "//evil.example", "https://upstream@evil.example/base", "../x"} {
		f.Add(location)
	}
	base := &url.URL{Scheme: "https", Host: "upstream", Path: "/base"}
	asked := &url.URL{Scheme: "https", Host: "upstream", Path: "/base/v1/x"}
	f.Fuzz(func(t *testing.T, location string) {
		to := relocate(location, "p", base, asked)
		if u, err := url.Parse(to); to != "" && (err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(to, "/p")) {
			t.Errorf("%q leads to %q, %v", location, to, err)
		}
	})
}

func TestMistakesInAProviderAreNamed(t *testing.T) {
	good, err := provider.New(provider.Settings{API: provider.OpenAI, Upstream: "https://upstream"})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := provider.New(provider.Settings{API: provider.HTTP, Upstream: "https://upstream"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (Provider{Name: strings.Repeat("a", 64), Description: plain, Retries: 10, Circuit: Circuit{Max: 1 << 16}}).resolve(); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	with := func(f func(*Provider)) Provider {
		p := Provider{Name: "p", Description: good}
		f(&p)
		return p
	}
	secret := good
	secret.Upstream = &url.URL{Scheme: "https", Host: "h", User: url.UserPassword("u", "CANARY")}
	for want, p := range map[string]Provider{
		`provider "": name is "", must be`:                      with(func(p *Provider) { p.Name = "" }),
		`name is "A", must be`:                                  with(func(p *Provider) { p.Name = "A" }),
		`name is "-a", must be`:                                 with(func(p *Provider) { p.Name = "-a" }),
		`name is "a/b", must be`:                                with(func(p *Provider) { p.Name = "a/b" }),
		`upstream is missing`:                                   {Name: "p"},
		`upstream is a URL with user`:                           with(func(p *Provider) { p.Description = secret }),
		`upstream is a URL with user, query`:                    with(func(p *Provider) { p.Description.Upstream = &url.URL{Scheme: "https", Host: "h", RawQuery: "a=CANARY"} }),
		`upstream is a URL with user, query or fragment`:        with(func(p *Provider) { p.Description.Upstream = &url.URL{Scheme: "https", Host: "h", Fragment: "CANARY"} }),
		`upstream is a URL of scheme "ftp" and host "h"`:        with(func(p *Provider) { p.Description.Upstream = &url.URL{Scheme: "ftp", Host: "h"} }),
		`upstream is a URL of scheme "http" and host ""`:        with(func(p *Provider) { p.Description.Upstream = &url.URL{Scheme: "http", Path: "/x"} }),
		`circuit: max is 65537, must be from 1 to 65536, or 0`:  with(func(p *Provider) { p.Circuit.Max = 1<<16 + 1 }),
		`circuit: max is -1, must be from 1`:                    with(func(p *Provider) { p.Circuit.Max = -1 }),
		`retries is -1, must be from 0 to 10`:                   with(func(p *Provider) { p.Retries = -1 }),
		`max upload is -1, must be above 0`:                     with(func(p *Provider) { p.MaxUpload = -1 }),
		`name is "` + strings.Repeat("a", 64) + `", must be`:    with(func(p *Provider) { p.Name = strings.Repeat("a", 65) }),
		`retries is 11, must be from 0 to 10`:                   with(func(p *Provider) { p.Retries = 11 }),
		`max wait is -1s, must be above 0`:                      with(func(p *Provider) { p.MaxWait = -time.Second }),
		`max body is -1, must be above 0`:                       with(func(p *Provider) { p.MaxBody = -1 }),
		`idle timeout is -1ns, must be above 0`:                 with(func(p *Provider) { p.IdleTimeout = -1 }),
		`call timeout is 11m0s, must be at most 10m0s, as long`: with(func(p *Provider) { p.CallTimeout, p.Approver = 11*time.Minute, limited{} }),
	} {
		_, err := New(Options{Providers: []Provider{p}})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := New(Options{Providers: []Provider{with(func(*Provider) {}), with(func(*Provider) {})}}); err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Errorf("a name that is there twice: %v", err)
	}
	p, err := with(func(p *Provider) { p.Approver = limited{} }).resolve()
	if err != nil || p.CallTimeout != 10*time.Minute-time.Second {
		t.Errorf("call timeout %v, %v, want just below the life of a permit", p.CallTimeout, err)
	}
}

// limited is a quota that shows its limits.
type limited struct{ Approver }

func (limited) Config() quota.Config { return quota.Config{PermitTTLMS: 600_000} }
