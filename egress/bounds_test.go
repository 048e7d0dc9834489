package egress

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/quota"
)

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
