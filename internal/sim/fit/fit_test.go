package fit_test

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/fit"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// traceOf returns the trace of a client without pacing: it sends at one rate for a while,
// then at another, and pauses after some refusals.
func traceOf(t *testing.T, seed uint64, text string) []fit.Attempt {
	t.Helper()
	s, err := scenario.Parse("x.yaml", []byte("name: x\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	model, err := provider.New(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	draws := provider.NewSampler(s, seed, 0)
	allowed, ok := s.Provider.Limits[0].PerSecond()
	if !ok {
		allowed = float64(s.Provider.Limits[0].Count) / s.Provider.Latency.P50.Seconds()
	}
	type sent struct {
		at time.Duration
		a  fit.Attempt
	}
	var all []sent
	now, until, gap := time.Duration(0), time.Duration(0), 0.0
	for now < s.Horizon {
		if now >= until {
			until = now + time.Duration((5+40*rng.Float64())*float64(time.Second))
			gap = 1 / (allowed * (0.5 + 2*rng.Float64()))
		}
		uplink, total := draws.Latency()
		all = append(all, sent{now + uplink, fit.Attempt{Sent: now, Answered: now + total}})
		now += time.Duration(gap * (0.5 + rng.Float64()) * float64(time.Second))
	}
	slices.SortStableFunc(all, func(a, b sent) int { return cmp.Compare(a.at, b.at) })
	trace := make([]fit.Attempt, len(all))
	for i, o := range all {
		a := o.a
		uplink := o.at - a.Sent
		v := model.Arrive(o.at, 0, 1, a.Answered-a.Sent-2*uplink)
		a.Status, a.RetryAfter, a.Fate = v.Status, v.RetryAfter, fit.Admitted
		if v.Throttled {
			a.Fate, a.Answered = fit.Refused, a.Sent+2*uplink
		}
		trace[i] = a
	}
	return trace
}

func TestKindAndSizeAreFound(t *testing.T) {
	for _, tt := range []struct{ name, text string }{
		{"bucket", "horizon: 5m\nprovider: {limits: [{kind: token_bucket, rate: 10/s, burst: 20}]}\n"},
		{"bucket without a burst", "horizon: 5m\nprovider: {limits: [{kind: token_bucket, rate: 90/min}]}\n"},
		{"bucket with a large burst", "horizon: 5m\nprovider: {limits: [{kind: token_bucket, rate: 130/min, burst: 60}]}\n"},
		{"fixed window of the clock", "horizon: 5m\nprovider: {limits: [{kind: fixed_window, limit: 600, window: 1m}]}\n"},
		{"fixed window from the first", "horizon: 5m\nprovider: {limits: [{kind: fixed_window, limit: 100, window: 42s, align: first}]}\n"},
		{"sliding window", "horizon: 5m\nprovider: {limits: [{kind: sliding_window, limit: 450, window: 1m}]}\n"},
		{"sliding window of an odd length", "horizon: 5m\nprovider: {limits: [{kind: sliding_window, limit: 37, window: 17s}]}\n"},
		{"sliding window that counts refused attempts", "horizon: 5m\nprovider: {throttle: {counts_rejected: true}, limits: [{kind: sliding_window, limit: 100, window: 10s}]}\n"},
		{"concurrency", "horizon: 2m\nprovider: {latency: {p50: 300ms, p99: 2s, uplink_p50: 20ms, uplink_p99: 24ms}, limits: [{kind: concurrency, limit: 12}]}\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(longtest.Size(1, 2)) {
				r, err := fit.Fit(traceOf(t, seed, tt.text))
				if err != nil {
					t.Fatal(err)
				}
				want, err := scenario.Parse("w.yaml", []byte("name: w\n"+tt.text))
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("seed %d: %s", seed, r)
				if len(r.Limits) != 1 || !near(r.Limits[0].Limit, want.Provider.Limits[0]) || r.Limits[0].Confidence < 0.6 {
					t.Errorf("want %s alone, surely", want.Provider.Limits[0])
				}
			}
		})
	}
}

func TestSeveralLimitsAreFound(t *testing.T) {
	const text = "horizon: 8m\nprovider: {limits: [{kind: fixed_window, limit: 300, window: 1m}, {kind: token_bucket, rate: 7/s, burst: 3}]}\n"
	want, err := scenario.Parse("w.yaml", []byte("name: w\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := fit.Fit(traceOf(t, 1, text))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want.Provider.Limits {
		if len(r.Limits) != 2 || !slices.ContainsFunc(r.Limits, func(l fit.Limit) bool { return near(l.Limit, w) }) {
			t.Errorf("want %s, as one of two; got %s", w, r)
		}
	}
}

// record is what a law records in the simulator.
func record(t *testing.T, law, text string) []fit.Attempt {
	t.Helper()
	s, err := scenario.Parse("x.yaml", []byte("name: x\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	var all []fit.Attempt
	if _, err := sim.Run(s, sim.Options{Law: law, Seed: 1, OnAttempt: func(a fit.Attempt) { all = append(all, a) }}); err != nil {
		t.Fatal(err)
	}
	return all
}

// near reports whether two limits are of one kind and within 5 % of each other.
func near(got, want scenario.Limit) bool {
	if got.Kind != want.Kind {
		return false
	}
	within := func(a, b float64) bool { return math.Abs(a-b) <= 0.05*b }
	if rate, ok := want.PerSecond(); ok {
		had, _ := got.PerSecond()
		return within(had, rate) && within(got.Window.Seconds(), want.Window.Seconds()) && math.Abs(float64(got.Burst-want.Burst)) <= 2
	}
	return within(float64(got.Count), float64(want.Count))
}

func TestTheScenarioOfATraceIsOne(t *testing.T) {
	r, err := fit.Fit(record(t, "", "horizon: 20m\nowner: {ceiling: 5ms}\nprovider: {throttle: {status: 503, retry_after: seconds}, limits: [{kind: token_bucket, rate: 5/s, burst: 5}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	file := r.Scenario("fitted")
	s, err := scenario.Parse("fitted.yaml", file)
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	if p := s.Provider; p.Throttle.Status != 503 || p.Throttle.RetryAfter != scenario.RetrySeconds || len(p.Limits) != 1 || !near(p.Limits[0], scenario.Limit{Kind: scenario.TokenBucket, Rate: scenario.Rate{Count: 5, Per: time.Second}, Burst: 5}) {
		t.Errorf("the scenario is\n%s", file)
	}
}

func TestATraceThatShowsNothing(t *testing.T) {
	ok, no := fit.Attempt{Fate: fit.Admitted, Status: 200}, fit.Attempt{Fate: fit.Refused, Status: 429}
	if _, err := fit.Fit([]fit.Attempt{ok, ok}); !errors.Is(err, fit.ErrNoRefusal) {
		t.Errorf("without a refusal: %v", err)
	}
	if _, err := fit.Fit([]fit.Attempt{no, no}); !errors.Is(err, fit.ErrAllRefused) {
		t.Errorf("without an admission: %v", err)
	}
	// All attempts at one instant, and attempts at irregular intervals, are traces too.
	for _, all := range [][]fit.Attempt{{ok, no}, {ok, {Sent: time.Second, Answered: time.Second, Fate: fit.Refused}}} {
		if _, err := fit.Fit(all); err != nil {
			t.Errorf("%v", err)
		}
	}
}

func TestLinesAreReadBackAsTheyWereWritten(t *testing.T) {
	for _, a := range []fit.Attempt{
		{Sent: 1500 * time.Millisecond, Answered: 1700*time.Millisecond + 1, Status: 200, Fate: fit.Admitted},
		{Sent: 0, Answered: time.Hour, Arrived: time.Minute, Status: 429, Fate: fit.Refused, RetryAfter: 2500 * time.Millisecond, Pool: `m"1`},
		{Sent: 1, Answered: 2, Fate: fit.Unclear},
	} {
		all, err := fit.Parse("t.jsonl", a.Line())
		if err != nil || len(all) != 1 || all[0] != a {
			t.Errorf("%s is read as %+v, %v; want %+v", a.Line(), all, err, a)
		}
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{`{"sent":1,"answered":2,"status":200}`, "1s 2s 200 1 0s"},
		{`{"answered":1763978400.25,"took":0.05,"status":429,"uri":"/x"}`, "489994h0m0.2s 489994h0m0.25s 429 2 0s"},
		{`{"sent":"2026-11-22T10:00:00Z","took":1,"status":503,"retry_after":2}`, "498706h0m0s 498706h0m1s 503 2 2s"},
		{`{"at":3,"admitted":false,"status":429,"retry_after_ms":1500,"model":"m1"}`, "3s 3s 429 2 1.5s"},
		{`{"at":3,"admitted":false,"status":503,"limit":"outage"}`, "3s 3s 503 0 0s"},
		{`{"sent":3,"status":0}`, "3s 3s 0 0 0s"},
		{`{"sent":3,"status":500}`, "3s 3s 500 0 0s"},
		{`{"sent":3,"refused":true}`, "3s 3s 0 2 0s"},
		{`{"sent":3,"status":404}`, "3s 3s 404 1 0s"},
	} {
		all, err := fit.Parse("t.jsonl", []byte(tt.line))
		if err != nil {
			t.Errorf("%s: %v", tt.line, err)
			continue
		}
		a := all[0]
		if got := strings.Join([]string{a.Sent.String(), a.Answered.String()}, " "); !strings.HasPrefix(tt.want, got) {
			t.Errorf("%s is %+v, want %s", tt.line, a, tt.want)
		}
	}
	for _, tt := range []struct{ text, want string }{
		{"", "t.jsonl: is empty: it needs an attempt a line, such as"},
		{"{}\n", "t.jsonl:1:1: says no instant; want sent and answered, or one of them and took"},
		{"\n[1]\n", "t.jsonl:2:1: is not an attempt as a JSON object"},
		{`{"sent":"now","status":200}`, `t.jsonl:1:1: sent is "\"now\""; want seconds, such as 12.5, or a time such as "2026-11-22T10:00:00.25Z"`},
		{`{"sent":2,"answered":1,"status":200}`, "t.jsonl:1:1: answered is before sent"},
		{`{"sent":2,"answered":3}`, "t.jsonl:1:1: says neither status nor refused"},
		{`{"sent":2,"took":-1,"status":200}`, "t.jsonl:1:1: took is -1; want seconds, such as 0.25"},
		{`{"sent":2,"status":2000}`, "t.jsonl:1:1: status is 2000; want an HTTP status"},
		{`{"sent":2,"status":429,"retry_after":-2}`, "t.jsonl:1:1: retry_after is -2; want seconds"},
	} {
		_, err := fit.Parse("t.jsonl", []byte(tt.text))
		if _, ok := errors.AsType[*configfile.Error](err); !ok || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.text, err, tt.want)
		}
	}
}

func TestStatusesThatAreRefusalsCanBeNamed(t *testing.T) {
	all, err := fit.Parse("t.jsonl", []byte(`{"sent":1,"status":403}`+"\n"+`{"sent":2,"status":503}`), 403)
	if err != nil || all[0].Fate != fit.Refused || all[1].Fate != fit.Unclear {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestARateThatTheTraceDoesNotTellIsSaid: if attempts come at one rate and every other one
// is admitted, many limits explain the trace.
func TestARateThatTheTraceDoesNotTellIsSaid(t *testing.T) {
	const gap = 340 * time.Millisecond
	var all []fit.Attempt
	level, last := 1.0, time.Duration(0)
	for at := time.Duration(0); at < time.Minute; at += gap {
		a := fit.Attempt{Sent: at, Answered: at + time.Millisecond, Status: 503, Fate: fit.Refused}
		level = min(1, level+2*(at-last).Seconds())
		last = at
		if level >= 1 {
			level--
			a.Status, a.Fate = 200, fit.Admitted
		}
		all = append(all, a)
	}
	r, err := fit.Fit(all)
	if err != nil {
		t.Fatal(err)
	}
	l := r.Limits[0]
	if l.Kind != scenario.TokenBucket || l.RatePerMin != 120 || l.LeastPerMin > 110 || l.LeastPerMin <= 0 || l.MostPerMin < 130 || l.Confidence > 0.7 {
		t.Errorf("%+v", l)
	}
	if text := r.String(); !strings.Contains(text, "a minute explains the trace as well") {
		t.Error(text)
	}
}

// A server that delays attempts to a rate, and refuses those for which its queue has no place,
// bounds those under way. Its rate is said too.
func TestAQueueIsDistinguishedFromALimitOnConcurrency(t *testing.T) {
	const places, ms = 10, time.Millisecond
	for name, tt := range map[string]struct {
		took  func(before int) time.Duration
		queue float64 // a minute
	}{
		"a queue of 20/s":       {func(before int) time.Duration { return time.Duration(before+1) * 50 * ms }, 1200},
		"each takes as long":    {func(int) time.Duration { return 300 * ms }, 0},
		"some take longer":      {func(before int) time.Duration { return time.Duration(200+before%3*150) * ms }, 0},
		"twice as long at most": {func(before int) time.Duration { return time.Duration(200+20*before) * ms }, 0},
	} {
		rng := rand.New(rand.NewPCG(7, 1))
		var trace []fit.Attempt
		var ends []time.Duration
		for now := time.Duration(0); now < 2*time.Minute; {
			ends = slices.DeleteFunc(ends, func(end time.Duration) bool { return end <= now })
			a := fit.Attempt{Sent: now, Answered: now, Arrived: now, Status: 429, Fate: fit.Refused}
			if n := len(ends); n < places {
				a.Answered, a.Status, a.Fate = now+tt.took(n), 200, fit.Admitted
				ends = append(ends, a.Answered)
			}
			trace = append(trace, a)
			pause := 10 + rng.IntN(60)
			if int(now.Seconds())%20 < 5 {
				pause += 150
			}
			now += time.Duration(pause) * ms
		}
		r, err := fit.Fit(trace)
		if err != nil {
			t.Fatal(err)
		}
		l := r.Limits[0]
		if l.Kind != scenario.Concurrency || l.Size != places || math.Abs(l.QueuePerMin-tt.queue) > tt.queue/20 {
			t.Errorf("%s: %+v, want %d places and %v a minute", name, l, places, tt.queue)
		}
		if said := strings.Contains(r.String(), "wait for a rate of"); said != (tt.queue > 0) {
			t.Errorf("%s: %s", name, r)
		}
	}
}
