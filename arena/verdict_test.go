package arena

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// won is a field in which law "ours" meets every target, over the rehearsals.
func won(t *testing.T) *Field {
	t.Helper()
	f := &Field{
		Seeds: []uint64{1}, RivalSeeds: []uint64{1}, Laws: []string{"ours"},
		Rivals:    []Rival{{Name: "theirs", Origin: OwnCode}, {Name: "told", Origin: Cheat}},
		Scenarios: rehearsals(t), Frontiers: make(map[string]Frontier),
	}
	for _, s := range f.Scenarios {
		f.Put(s, "ours", []Entry{entry(s, 0.98, 1)})
		f.Put(s, "theirs", []Entry{entry(s, 0.95, 20)})
		f.Put(s, "told", []Entry{entry(s, 1, 0)})
		if Inherent(s) {
			f.Frontiers[s.Name] = Frontier{{Goodput: 0.9, Per1000: 0.1}, {Goodput: 0.99, Per1000: 5}}
		}
	}
	return f
}

// entry is a run with 1000 admitted for each throttle per 1000.
func entry(s *scenario.Scenario, goodput, per1000 float64) Entry {
	e := Entry{Result: sim.Result{GoodputRatio: new(goodput), Admitted: 10_000, Throttled: int64(10 * per1000)}}
	if len(s.Provider.Changes) > 0 {
		e.ThrottlesPerChange = new(3.0)
	}
	if s.Clients > 1 {
		e.FairnessJain = new(0.99)
	}
	return e
}

func TestAVerdictCanBeWon(t *testing.T) {
	v := Judge(won(t), "ours")
	if v.Met() != len(v.Targets) {
		t.Errorf("%d of %d targets met:\n%s", v.Met(), len(v.Targets), v)
	}
}

func TestEveryTargetCanBeMissed(t *testing.T) {
	const bucket, ban, clients = 0, 2, 3
	change := func(i int, who string, change func(*Entry)) func(*Field) {
		return func(f *Field) {
			s := f.Scenarios[i]
			e := entry(s, 0.98, 1)
			if who == "theirs" {
				e = entry(s, 0.95, 20)
			}
			change(&e)
			f.Put(s, who, []Entry{e})
		}
	}
	for what, spoil := range map[string]func(*Field){
		"mean goodput":          change(bucket, "ours", func(e *Entry) { e.GoodputRatio = new(0.8) }),
		"mean throttled":        change(bucket, "ours", func(e *Entry) { e.Throttled = 20 }),
		"goodput >= 0.9 ":       change(bucket, "ours", func(e *Entry) { e.GoodputRatio = new(0.89) }),
		"throttled per 1000":    change(bucket, "ours", func(e *Entry) { e.Throttled = 31 }),
		"burst 1 and strangers": change(clients, "ours", func(e *Entry) { e.GoodputRatio = new(0.88) }),
		"under a ban":           change(ban, "ours", func(e *Entry) { e.GoodputRatio = new(0.84) }),
		"never suspended":       change(ban, "ours", func(e *Entry) { e.Suspended = true }),
		"each change":           change(bucket, "ours", func(e *Entry) { e.ThrottlesPerChange = new(5.5) }),
		"Jain":                  change(clients, "ours", func(e *Entry) { e.FairnessJain = new(0.9) }),
		"ceiling":               change(bucket, "ours", func(e *Entry) { e.CeilingViolations = 1 }),
		"no rival has":          change(bucket, "theirs", func(e *Entry) { e.GoodputRatio, e.Throttled = new(0.99), 9 }),
		"in the means, throttles": func(f *Field) {
			for _, s := range f.Scenarios {
				f.Put(s, "theirs", []Entry{entry(s, 0.95, 9)})
			}
		},
	} {
		f := won(t)
		spoil(f)
		missed := false
		for _, target := range Judge(f, "ours").Targets {
			if strings.Contains(target.What, what) && !target.Met {
				missed = true
			}
		}
		if !missed {
			t.Errorf("target %q was met all the same:\n%s", what, Judge(f, "ours"))
		}
	}
}

func TestFewThrottlesAreEnoughWhereFewAreAdmitted(t *testing.T) {
	f := won(t)
	e := entry(f.Scenarios[0], 0.98, 0)
	e.Admitted, e.Throttled = 100, 8
	f.Put(f.Scenarios[0], "ours", []Entry{e})
	for _, target := range Judge(f, "ours").Targets {
		if strings.HasPrefix(target.What, "throttled per 1000") && !target.Met {
			t.Errorf("8 throttles of 100 admitted: %s", target.Figure)
		}
	}
}

func TestATargetThatNothingWasHeldAgainstIsMissed(t *testing.T) {
	f := won(t)
	f.Scenarios = f.Scenarios[:1] // no ban, no strangers
	missed := 0
	for _, target := range Judge(f, "ours").Targets {
		if strings.Contains(target.Figure, "no such scenario") && !target.Met {
			missed++
		}
	}
	if missed != 3 {
		t.Errorf("%d targets without a scenario were missed, want frontier, ban and fairness", missed)
	}
}

func TestTheBestLawMeetsMostTargets(t *testing.T) {
	f := won(t)
	f.Laws = []string{"worse", "ours"}
	for _, s := range f.Scenarios {
		f.Put(s, "worse", []Entry{entry(s, 0.5, 1)})
	}
	if v := Best(f); v.Law != "ours" {
		t.Errorf("the best law is %q", v.Law)
	}
}

func TestFrontierIsTheMostAtALevelOfThrottles(t *testing.T) {
	f := Frontier{
		{Goodput: 0.5, Per1000: 0}, {Goodput: 0.8, Per1000: 0}, {Goodput: 0.9, Per1000: 2},
		{Goodput: 0.85, Per1000: 3}, {Goodput: 1, Per1000: 6},
	}
	for level, want := range map[float64]float64{0: 0.8, 1: 0.85, 2: 0.9, 4: 0.95, 6: 1, 100: 1} {
		if got := f.At(level); math.Abs(got-want) > 1e-9 {
			t.Errorf("at %g per 1000 it is %g, want %g", level, got, want)
		}
	}
}

func TestConstantPacingDrawsTheFrontier(t *testing.T) {
	s := parse(t, strings.Replace(tiny, "burst: 5", "burst: 1", 1))
	f, err := Draw(s, []uint64{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if slow := f[0]; slow.Goodput < 0.35 || slow.Goodput > 0.45 || slow.Per1000 != 0 {
		t.Errorf("at %g of the right rate: %+v", slow.Part, slow)
	}
	if fast := f[len(f)-1]; fast.Per1000 < 100 {
		t.Errorf("at %g of the right rate only %g per 1000 are throttled", fast.Part, fast.Per1000)
	}
}

func TestRightRate(t *testing.T) {
	for name, c := range map[string]struct {
		provider string
		want     float64
	}{
		"the tightest limit":  {"  limits: [{kind: token_bucket, rate: 9/s}, {kind: fixed_window, limit: 120, window: 1m}]", 2},
		"less the strangers":  {"  limits: [{kind: token_bucket, rate: 9/s}]\n  strangers: {rate: 4/s}", 5},
		"no faster than told": {"  limits: [{kind: token_bucket, rate: 900/s}]", 100},
		"cost":                {"  limits: [{kind: cost_window, limit: 60, window: 1m}]", 1},
		"concurrency":         {"  latency: {p50: 100ms, uplink_p50: 10ms, uplink_p99: 10ms}\n  limits: [{kind: concurrency, limit: 4}]", 50},
		"busy time":           {"  latency: {p50: 100ms, uplink_p50: 10ms, uplink_p99: 10ms}\n  limits: [{kind: busy_time, limit: 8s, window: 10s}]", 10},
	} {
		s := parse(t, "name: x\nowner: {ceiling: 10ms}\nprovider:\n"+c.provider+"\n")
		if got := RightRate(s); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %g a second, want %g", name, got, c.want)
		}
	}
	if s := parse(t, tiny); busyTime(s.Provider.Latency) < float64(30*time.Millisecond) {
		t.Error("a request keeps the provider busy for less than it can")
	}
}

func TestVersionsAreThoseOfGoMod(t *testing.T) {
	for _, r := range Rivals() {
		if v := r.Version(); r.Origin == Described && v != "-" || r.Origin != Described && !strings.ContainsAny(v, ".") {
			t.Errorf("%s is of version %q", r.Name, v)
		}
	}
	if v := (Rival{Module: "example.com/none"}).Version(); v != "unknown" {
		t.Errorf("a module that is not required has version %q", v)
	}
}
