package daemon

import (
	"fmt"
	"testing"

	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// TestAPlanThatFailsHalfWayIsUndone: budgets that had their new limits have the
// old ones again, whichever step fails.
func TestAPlanThatFailsHalfWayIsUndone(t *testing.T) {
	limits := func(calls int64) quota.Config {
		return quota.Config{PermitTTLMS: 600_000, Global: quota.Limits{CallsPerMinute: calls}, Models: map[string]quota.Model{"m": {}}}
	}
	description, ok := provider.Builtin(provider.OpenAI)
	if !ok {
		t.Fatal("there is no OpenAI")
	}
	for name, c := range map[string]struct {
		second   int64
		provider config.Provider
	}{
		"a budget":  {-1, config.Provider{Name: "p", Description: description}},
		"the proxy": {20, config.Provider{Name: "not a name", Description: description}},
	} {
		var lines []*line
		for range 2 {
			g, err := governor.New(governor.Options{Config: limits(1)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = g.Close() })
			lines = append(lines, &line{name: "p", quota: g})
		}
		proxy, err := egress.New(egress.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := &Daemon{proxy: proxy, lines: map[string]*line{}}
		p := &plan{config: config.Config{Providers: []config.Provider{c.provider}}, lines: lines[:1], pacing: nil}
		p.pacing = append(p.pacing, nil)
		for i, to := range []int64{10, c.second} {
			p.changes = append(p.changes, change{lines[i], quotafile.Settings{Quota: limits(to)}, lines[i].quota.Config()})
		}
		if err := d.carryOut(p); err == nil {
			t.Errorf("%s: no error", name)
		}
		for i, l := range lines {
			if got := l.quota.Config().Global.CallsPerMinute; got != 1 {
				t.Errorf("%s: budget %d has %d calls a minute, want those of before", name, i, got)
			}
		}
		if len(d.lines) != 0 || len(proxy.Status()) != 0 {
			t.Errorf("%s: %d lines and %d providers are in force", name, len(d.lines), len(proxy.Status()))
		}
	}
}

// TestTokenizersAreLoadedBeforeTheFirstCall: for providers whose calls are
// estimated, those that their models may need.
func TestTokenizersAreLoadedBeforeTheFirstCall(t *testing.T) {
	var got []string
	before := loadTokenizers
	defer func() { loadTokenizers = before }()
	loadTokenizers = func(models ...string) { got = append(got, fmt.Sprint(models)) }
	for api, want := range map[provider.API]string{
		provider.OpenAI: "[[gpt-5 gpt-4]]", provider.AzureOpenAI: "[[gpt-5 gpt-4]]", provider.Anthropic: "[[]]", provider.Gemini: "[[]]", provider.HTTP: "[]",
	} {
		for _, estimated := range []bool{true, false} {
			c, err := config.Read("h.yaml", fmt.Appendf(nil, "providers: {x: {api: %s, upstream: http://127.0.0.1:1, pass_through: true, pacing: %v}}",
				api, map[bool]string{true: "{}", false: "off"}[estimated]), func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			c.State = t.TempDir()
			d, err := New(c, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			p, err := d.plan(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.abandon(); err != nil {
				t.Error(err)
			}
			if !estimated {
				want = "[]"
			}
			if fmt.Sprint(got) != want {
				t.Errorf("%s, estimated %v: loaded %v, want %s", api, estimated, got, want)
			}
		}
	}
}
