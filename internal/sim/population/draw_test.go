package population_test

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/population"
	"github.com/headway-go/headway/internal/sim/scenario"
)

func draw(t *testing.T, seed uint64, number int, family population.Family) population.Member {
	t.Helper()
	m, err := population.Draw(seed, number, family)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestADrawnMemberIsWhatItsFileSays(t *testing.T) {
	for number := range longtest.Size(200, 20_000) {
		m := draw(t, 99, number, "")
		again, err := scenario.Parse("member.yaml", m.File())
		if err != nil {
			t.Fatalf("%v\n%s", err, m.File())
		}
		if diff := cmp.Diff(m.Scenario, again, cmpopts.IgnoreUnexported(scenario.Rate{})); diff != "" {
			t.Errorf("member %d: -drawn +read\n%s", number, diff)
		}
		if second := draw(t, 99, number, ""); !bytes.Equal(m.File(), second.File()) || second.Seed != m.Seed {
			t.Errorf("member %d differs when it is drawn again", number)
		}
	}
}

func TestEveryFamilyTakesItsTurnAndHasWhatItIsDrawnFor(t *testing.T) {
	seen := make(map[population.Family]int)
	n := len(population.Mixed())
	for number := range 20 * n {
		m := draw(t, 5, number, "")
		seen[m.Family]++
		if !has(m) {
			t.Errorf("member %d lacks what its family has:\n%s", number, m.File())
		}
	}
	for _, f := range population.Families() {
		if slices.Contains(population.Mixed(), f) && seen[f] != 20 || seen[population.Pools]+seen[population.Fleet] > 0 {
			t.Errorf("%d members of %s among %d, want 20", seen[f], f, 20*n)
		}
		if m := draw(t, 5, 3, f); m.Family != f || !has(m) {
			t.Errorf("a member drawn for %s is of %s:\n%s", f, m.Family, m.File())
		}
	}
	if _, err := population.Draw(5, 3, "leaky"); err == nil {
		t.Error("an unknown family was drawn")
	}
}

// has reports whether a member has the property of its family.
func has(m population.Member) bool {
	p := m.Scenario.Provider
	var first scenario.Limit
	if len(p.Limits) > 0 {
		first = p.Limits[0]
	}
	switch m.Family {
	case population.Pools:
		return len(p.Pools) > 1 && len(p.Pools[0].Limits) > 0
	case population.Fleet:
		return m.Scenario.Fleet && m.Scenario.Link != nil && m.Scenario.Clients > 1
	case population.Ban:
		return p.Penalty != nil && !p.Penalty.Fixed && p.Penalty.Factor > 1
	case population.FixedBlock:
		return p.Penalty != nil && p.Penalty.Fixed
	case population.Bucket:
		return first.Kind == scenario.TokenBucket && first.Burst > 1
	case population.BurstOne:
		return first.Kind == scenario.TokenBucket && first.Burst == 1
	case population.BusyTime:
		return first.Kind == scenario.BusyTime
	case population.Changes:
		return len(p.Changes) > 0
	case population.ClientsApart:
		return m.Scenario.Clients > 1 && !m.Scenario.Fleet
	case population.Concurrency:
		return first.Kind == scenario.Concurrency
	case population.Cost:
		return first.Kind == scenario.CostWindow
	case population.FixedWindow:
		return first.Kind == scenario.FixedWindow
	case population.SeveralLimits:
		return len(p.Limits) > 1
	case population.OpenArrivals:
		return m.Scenario.Workload.Kind == scenario.Open
	case population.Outage:
		return len(p.Faults) > 0
	case population.SlidingWindow:
		return first.Kind == scenario.SlidingWindow
	case population.SlowDown:
		return first.Kind == scenario.Slowdown
	case population.Strangers:
		return p.Strangers != nil
	}
	return false
}

// The generator draws everything that it should draw, and nothing else.
func TestThePopulationIsAsWideAsItSays(t *testing.T) {
	minRate, maxRate := math.Inf(1), 0.0
	seen := make(map[string]int)
	note := func(is bool, what string) {
		if is {
			seen[what]++
		}
	}
	for number := range 1000 {
		s := draw(t, 17, number, "").Scenario
		p, w := s.Provider, s.Workload
		for _, l := range p.Limits {
			if r, ok := l.PerSecond(); ok {
				minRate, maxRate = min(minRate, r), max(maxRate, r)
				if n := r * s.Horizon.Seconds(); n > 1e6 {
					t.Errorf("%s admits %g in %s", s.Name, n, s.Horizon)
				}
			}
			if l.Window > 0 && s.Horizon < 4*l.Window {
				t.Errorf("%s: a horizon of %s for %s", s.Name, s.Horizon, l)
			}
			note(l.Window > 0 && l.Window < 2*time.Second, "short window")
			note(l.Window > 20*time.Hour, "long window")
			note(l.Window%time.Second != 0, "odd window")
			note(l.Kind == scenario.Concurrency && l.Count == 1, "concurrency of 1")
			note(l.Kind == scenario.Concurrency && l.Count > 50, "concurrency above 50")
			note(l.Align == scenario.AlignFirst, "aligned to the first")
			note(l.Align == scenario.AlignEpoch, "aligned to the clock")
		}
		note(len(p.Limits) == 3, "three limits")
		note(p.Throttle.Status == 403, "403")
		note(p.Throttle.Status == 503, "503")
		note(p.Throttle.CountsRejected, "refused attempts count")
		note(p.Throttle.RetryAfterFactor == 1000, "another unit")
		note(p.Throttle.RetryAfterConstant > 0, "a constant wait")
		note(p.Throttle.RetryAfter == scenario.RetryDate, "a date")
		note(p.Throttle.Headers != scenario.HeadersNone, "headers")
		note(p.Suspend != nil, "suspension")
		note(p.Strangers != nil && p.Strangers.On > 0, "strangers that come and go")
		note(len(p.Changes) > 0 && p.Changes[0].Over > 0, "drift")
		note(len(p.Changes) > 1, "down and up")
		note(w.Burst > 1, "bursts")
		note(w.Pause >= time.Hour, "pauses")
		note(s.Clients > 8, "many clients")
		note(p.Latency.P50 < 10*time.Millisecond, "fast")
		note(p.Latency.P50 > time.Second, "slow")
		note(p.Latency.P99 > 8*p.Latency.P50, "long tail")
	}
	if minRate > 0.12 || maxRate < 80 || maxRate > 250 {
		t.Errorf("rates from %g/s to %g/s", minRate, maxRate)
	}
	for _, what := range []string{
		"short window", "long window", "odd window", "concurrency of 1", "concurrency above 50", "aligned to the first",
		"aligned to the clock", "three limits", "403", "503", "refused attempts count", "another unit", "a constant wait",
		"a date", "headers", "suspension", "strangers that come and go", "drift", "down and up", "bursts", "pauses",
		"many clients", "fast", "slow", "long tail",
	} {
		if seen[what] == 0 {
			t.Errorf("nothing has: %s", what)
		}
	}
}

// Whatever is drawn, the default law keeps the ceiling and gives the same result again, and
// a run of the member's file alone gives the result of the population.
func TestTheDefaultLawKeepsTheCeilingOfEveryMember(t *testing.T) {
	n := longtest.Size(8, 500)
	r, err := population.Run(population.Options{Seed: 31, N: n})
	if err != nil {
		t.Fatal(err)
	}
	if r.All.Law.Violations != 0 {
		t.Errorf("%d violations of the ceiling", r.All.Law.Violations)
	}
	for _, o := range r.Members[:n/4] {
		m := draw(t, 31, o.Number, "")
		s, err := scenario.Parse("member.yaml", m.File())
		if err != nil {
			t.Fatal(err)
		}
		alone, err := sim.Run(s, sim.Options{Law: control.DefaultLaw, Seed: o.Seed})
		if err != nil {
			t.Fatal(err)
		}
		if alone.Admitted != o.Admitted || alone.Throttled != o.Throttled || *alone.GoodputRatio != o.Goodput {
			t.Errorf("member %d: alone %d admitted, %d refused, %g, in the population %+v", o.Number, alone.Admitted, alone.Throttled, *alone.GoodputRatio, o.Figures)
		}
	}
}

// The default law does with each member what the archive says: a change of the law that is
// not meant shows in some of them. A run without -long leaves out those of more than 10,000
// attempts. After a change that is meant: make golden, and read the difference.
func TestGoldenMembers(t *testing.T) {
	const seed, n = 2027, 320
	archive := golden.Open(t, filepath.Join("testdata", "members.txtar"))
	var names []string
	for number := range n {
		m := draw(t, seed, number, "")
		name := fmt.Sprintf("%d-%s.txt", number, m.Family)
		names = append(names, name)
		before, _ := archive.File(name)
		var attempts int64
		if _, err := fmt.Sscan(before, &attempts); err == nil && attempts > 10_000 && !longtest.Long() && !golden.Updating() {
			continue
		}
		r, err := sim.Run(m.Scenario, sim.Options{Law: control.DefaultLaw, Seed: m.Seed})
		if err != nil {
			t.Fatal(err)
		}
		archive.Check(t, name, fmt.Sprintf("%d attempts, %d refused, max block %.3f s\n", r.Attempts, r.Throttled, r.LongestBlockS))
	}
	archive.Only(t, names)
}

// Until an answer is back, attempts are the initial interval apart.
func TestStartsAreCarefulInEveryMember(t *testing.T) {
	for number := range longtest.Size(100, 2000) {
		m := draw(t, 41, number, "")
		s := *m.Scenario
		s.Provider = scenario.Provider{
			Latency:  scenario.Latency{P50: time.Hour, P99: time.Hour, UplinkP50: time.Millisecond, UplinkP99: time.Millisecond},
			Throttle: s.Provider.Throttle,
		}
		s.Horizon = 10 * s.Owner.Initial
		p, err := sim.NewPlayer(&s, m.Seed)
		if err != nil {
			t.Fatal(err)
		}
		law, err := p.Run(control.DefaultLaw)
		if err != nil {
			t.Fatal(err)
		}
		informed, _, err := p.Informed()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []sim.Result{law, informed} {
			if most := int64(10 * s.Clients); r.Attempts > most {
				t.Errorf("member %d, %s: %d attempts in 10 initial intervals of %d clients without an answer", number, r.Law, r.Attempts, s.Clients)
			}
		}
	}
}

// Whatever is drawn, the informed client, which knows the penalty, is never suspended, and
// the bounds of a law hold for it too.
func TestTheInformedClientKeepsTheRulesInEveryMember(t *testing.T) {
	for _, family := range []population.Family{population.Ban, ""} {
		for number := range longtest.Size(150, 400) {
			m := draw(t, 51, number, family)
			if first := m.Scenario.Provider.Limits[0]; !longtest.Long() && (first.Kind != scenario.TokenBucket || first.Rate.PerSecond() > 1) {
				continue // the small ones take no time
			}
			p, err := sim.NewPlayer(m.Scenario, m.Seed)
			if err != nil {
				t.Fatal(err)
			}
			r, margin, err := p.Informed()
			if err != nil {
				t.Fatal(err)
			}
			if r.Suspended || r.CeilingViolations > 0 || *r.GoodputRatio > 1 || *r.GoodputRatio <= 0 {
				t.Errorf("member %d of %s under %+v: suspended %v, %d violations, goodput %g", number, m.Family, margin, r.Suspended, r.CeilingViolations, *r.GoodputRatio)
			}
		}
	}
}

func TestSameSeedSameBytesHoweverManyWorkers(t *testing.T) {
	var all [2][]byte
	for i, workers := range []int{1, 4} {
		r, err := population.Run(population.Options{Seed: 3, N: 4, Law: "aimd", Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		all[i] = append(b, text.Bytes()...)
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("the same seed gave other bytes")
	}
}

func TestAPopulationOfOneFamily(t *testing.T) {
	done := 0
	r, err := population.Run(population.Options{Seed: 3, N: 3, Family: population.FixedWindow, Law: "aimd", Progress: func(n int) { done = n }})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Families) != 1 || r.Families[0].Members != 3 || done != 3 {
		t.Errorf("%+v, %d done", r.Families, done)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text.String(), "\n"); n != 4 || strings.Contains(text.String(), "\nall") {
		t.Errorf("one family is said twice:\n%s", text.String())
	}
}

func TestWhatCannotBeRunIsAnError(t *testing.T) {
	for _, o := range []population.Options{{N: 0}, {N: population.MaxMembers + 1}, {N: 2, Family: "leaky"}, {N: 1, Law: "magic"}} {
		if r, err := population.Run(o); err == nil || r != nil {
			t.Errorf("%+v gave no error", o)
		}
	}
}

// A member a round, of all families in turn: its oracle, its law and, with Bound,
// the informed client.
func benchmarkMembers(b *testing.B, o population.Options) {
	o.N, o.Workers = b.N, 1
	b.ReportAllocs()
	if _, err := population.Run(o); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkMember(b *testing.B)     { benchmarkMembers(b, population.Options{Seed: 8}) }
func BenchmarkMemberAIMD(b *testing.B) { benchmarkMembers(b, population.Options{Seed: 8, Law: "aimd"}) }
func BenchmarkMemberWithBound(b *testing.B) {
	benchmarkMembers(b, population.Options{Seed: 8, Bound: true})
}

func TestPoolsAreDrawnApart(t *testing.T) {
	if slices.Contains(population.Mixed(), population.Pools) || !slices.Contains(population.Families(), population.Pools) {
		t.Error("the family pools must not be one of the mixed: the others' members would change")
	}
	r, err := population.Run(population.Options{Seed: 4, N: 2, Family: population.Pools, Law: "aimd"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Members {
		if m.Violations > 0 || m.Admitted == 0 || m.Goodput == 0 {
			t.Errorf("%+v", m)
		}
	}
}

func TestFleetsAreDrawnApart(t *testing.T) {
	if slices.Contains(population.Mixed(), population.Fleet) || !slices.Contains(population.Families(), population.Fleet) {
		t.Error("the family fleet must not be one of the mixed: the others' members would change")
	}
	r, err := population.Run(population.Options{Seed: 4, N: 2, Family: population.Fleet, Law: "aimd"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Members {
		if m.Violations > 0 || m.Admitted == 0 || m.Alone == nil || m.Alone.Admitted == 0 || m.Overshoot == nil {
			t.Errorf("%+v", m)
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "overshoot") || r.All.Alone == nil || r.All.Overshoot == nil {
		t.Errorf("%v:\n%s", err, &text)
	}
}
