package quota_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

const (
	ms     = time.Millisecond
	sec    = time.Second
	minute = time.Minute
)

// origin is midday, so that no day turns in a test that does not want it.
var origin = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func governor(t testing.TB, c quota.Config) *quota.Governor {
	t.Helper()
	return governorAt(t, c, origin)
}

func governorAt(t testing.TB, c quota.Config, at time.Time) *quota.Governor {
	t.Helper()
	if c.LoadZone == nil {
		c.LoadZone = time.LoadLocation
	}
	g, err := quota.New(c, at)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// oneModel is a configuration with limits for the model "m" only.
func oneModel(l quota.Limits) quota.Config {
	return quota.Config{Models: map[string]quota.Model{"m": {Limits: l}}}
}

// ask is a request for the model "m".
func ask(tokens int64) quota.Request { return quota.Request{Model: "m", InputTokens: tokens} }

// approve fails the test on a refusal.
func approve(t testing.TB, g *quota.Governor, at time.Duration, r quota.Request) quota.Decision {
	t.Helper()
	d := g.Approve(at, r)
	if !d.Approved {
		t.Fatalf("at %v: refused: %+v", at, d)
	}
	return d
}

// refused fails the test on an approval or another code.
func refused(t testing.TB, g *quota.Governor, at time.Duration, r quota.Request, code quota.Code) quota.Decision {
	t.Helper()
	d := g.Approve(at, r)
	if d.Approved || d.Code != code {
		t.Fatalf("at %v: %+v, want a refusal with %s", at, d, code)
	}
	return d
}

// settle fails the test when it was not the permit's end.
func settle(t testing.TB, g *quota.Governor, at time.Duration, p quota.Permit, tokens int64) {
	t.Helper()
	if first, err := g.RecordUsage(at, p, quota.Usage{Input: tokens}); !first || err != nil {
		t.Fatalf("settling: %v, %v", first, err)
	}
}

// eventsOf takes the events but those of denial and scale, as lines.
func eventsOf(g *quota.Governor) []string {
	events, _ := g.TakeEvents(nil)
	lines := []string{}
	for _, e := range events {
		if e.Type != quota.EventDenied && e.Type != quota.EventAdaptiveScale {
			lines = append(lines, fmt.Sprintf("%v %s %s", e.Instant, e.Type, e.Scope))
		}
	}
	return lines
}

// moved takes the transition log, as lines.
func moved(g *quota.Governor) []string {
	moves, _ := g.TakeMoves(nil)
	lines := []string{}
	for _, m := range moves {
		lines = append(lines, fmt.Sprintf("%v %s: %v>%v %v", m.Instant, m.Scope, m.From, m.To, m.Trigger))
	}
	return lines
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// model reads the model "m".
func model(t testing.TB, g *quota.Governor, at time.Duration) quota.ModelSnapshot {
	t.Helper()
	s, ok := g.Inspect(at, quota.Scope{Model: "m"})
	if !ok {
		t.Fatal("no model m")
	}
	return s
}
