package provider_test

import (
	"math"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

func TestPenaltyLengthensWhenPushed(t *testing.T) {
	m := model(t, `
  limits: [{kind: fixed_window, limit: 1, window: 1s}]
  throttle: {retry_after: exact}
  penalty: {base: 5s, factor: 2, max: 15s, forgive: 30s}`)
	s := time.Second
	steps := []struct {
		at      time.Duration
		admit   bool
		limit   string
		blocked time.Duration // BlockedUntil afterwards
	}{
		{0, true, "", 0},
		{ms, false, "fixed_window 1/1s", 5*s + ms},
		{3 * s, false, provider.Blocked, 13 * s},         // pushed: 10s from there
		{13*s - 1, false, provider.Blocked, 28*s - 1},    // 20s, bounded by 15s
		{28*s - 1, true, "", 28*s - 1},                   // exactly at the end
		{28*s - 1, false, "fixed_window 1/1s", 43*s - 1}, // not forgiven: still 15s
		{43 * s, true, "", 43*s - 1},
		{73*s - 2, true, "", 43*s - 1},
		{73*s - 2, false, "fixed_window 1/1s", 88*s - 2}, // one nanosecond short of forgiven
		{120 * s, true, "", 88*s - 2},
		{120 * s, false, "fixed_window 1/1s", 125 * s}, // forgiven: the base again
	}
	for i, step := range steps {
		v := m.Arrive(step.at, 0, 1, 0)
		if v.Admitted != step.admit || v.Limit != step.limit || m.BlockedUntil() != step.blocked {
			t.Errorf("step %d at %s: admitted %v by %q, blocked until %s; want %v, %q, %s",
				i, step.at, v.Admitted, v.Limit, m.BlockedUntil(), step.admit, step.limit, step.blocked)
		}
		if v.Throttled && v.RetryAfter < m.BlockedUntil()-step.at {
			t.Errorf("step %d: advertises a wait of %s, which is within the block", i, v.RetryAfter)
		}
	}
}

func TestSuspendedForEver(t *testing.T) {
	m := model(t, `
  limits: [{kind: fixed_window, limit: 1, window: 1h}]
  suspend: {throttles: 3, within: 10s}`)
	m.Arrive(0, 0, 1, 0)
	for i, at := range []time.Duration{1, 2, 12, 13, 21} {
		v := m.Arrive(at*time.Second, 0, 1, 0)
		if !v.Throttled || v.Status != 429 {
			t.Fatalf("attempt %d: %+v, want a throttle", i, v)
		}
		if want := i == 4; m.Suspended() != want { // 12, 13 and 21 lie within 10s
			t.Fatalf("attempt %d: suspended %v, want %v", i, m.Suspended(), want)
		}
	}
	v := m.Arrive(9*time.Hour, 0, 1, 0)
	if !v.Suspended || v.Status != 403 || v.Admitted || v.Throttled {
		t.Errorf("after suspension: %+v, want 403", v)
	}
	if at := m.Free(9*time.Hour, 1, 0); at != provider.Never {
		t.Errorf("a suspended account is free at %s, want never", at)
	}
}

func TestFaults(t *testing.T) {
	m := model(t, `
  limits: [{kind: fixed_window, limit: 2, window: 1h}]
  faults:
    - {at: 10s, for: 5s, kind: outage}
    - {at: 15s, for: 5s, kind: reset}
    - {at: 30s, for: 5s, kind: slow}`)
	tests := []struct {
		at     time.Duration
		status int
		reset  bool
		slow   float64
		free   time.Duration
	}{
		{10*time.Second - 1, 200, false, 1, 10*time.Second - 1},
		{10 * time.Second, 503, false, 1, 20 * time.Second},
		{15 * time.Second, 0, true, 1, 20 * time.Second},
		{30 * time.Second, 200, false, scenario.SlowFactor, 30 * time.Second},
		{35 * time.Second, 429, false, 1, time.Hour},
	}
	for _, tt := range tests {
		if got := m.Free(tt.at, 1, 0); got != tt.free {
			t.Errorf("free at %s for %s, want %s", got, tt.at, tt.free)
		}
		v := m.Arrive(tt.at, 0, 1, 0)
		if v.Status != tt.status || v.Reset != tt.reset || v.Slow != tt.slow {
			t.Errorf("at %s: %+v, want status %d, reset %v, slow %g", tt.at, v, tt.status, tt.reset, tt.slow)
		}
	}
	want := provider.Counts{Admitted: 2, Throttled: 1, Failed: 2}
	if m.Counts() != want || m.Client(0) != want {
		t.Errorf("counts %+v, client %+v, want %+v", m.Counts(), m.Client(0), want)
	}
}

func TestAnOverloadRefusesAShareAtRandom(t *testing.T) {
	m := model(t, `
  limits: [{kind: fixed_window, limit: 9000, window: 1h}]
  faults: [{at: 10s, for: 100s, kind: overload, share: 0.1}]`)
	last, inRow := 0, 0
	for i := range 12_000 {
		at := time.Duration(i) * 10 * ms
		if free := m.Free(at, 1, 0); free != at && m.Counts().Admitted < 9000 {
			t.Fatalf("free at %s for %s: an overload delays nothing", free, at)
		}
		v := m.Arrive(at, 0, 1, 0)
		if v.Overloaded != (v.Status == 503) || v.Overloaded && (v.Admitted || v.Throttled || v.HasRetryAfter || at < 10*time.Second || at >= 110*time.Second) {
			t.Fatalf("at %s: %+v", at, v)
		}
		if v.Overloaded {
			if last == i-1 {
				inRow++
			}
			last = i
		}
	}
	// Of 10,000 a tenth, of which a tenth follows another; refused ones use nothing.
	if c := m.Counts(); c.Failed < 900 || c.Failed > 1100 || inRow < 60 || inRow > 140 || c.Admitted != 9000 || c.Throttled != 12_000-9000-c.Failed {
		t.Errorf("%+v, %d failed after another that had failed", c, inRow)
	}
}

func TestSlowdownAboveTheKneeRefusesNothing(t *testing.T) {
	m := model(t, `
  limits: [{kind: slowdown, knee: 3/s, factor: 4}, {kind: concurrency, limit: 5}]
  changes: [{at: 1m, scale: 2}]`)
	arrive := func(at time.Duration, want ...float64) {
		t.Helper()
		for i, slow := range want {
			if v := m.Arrive(at, 0, 1, 100*ms); !v.Admitted || v.Slow != slow {
				t.Errorf("arrival %d at %s: admitted %v, slow %g, want admitted and %g", i, at, v.Admitted, v.Slow, slow)
			}
		}
	}
	arrive(0, 1, 1, 1, 4)
	// The slow one holds its slot four times as long: 400ms.
	if q := m.Quotas(150*ms, nil); q[0].Remaining != 4 {
		t.Errorf("%g slots free at 150ms, want 4", q[0].Remaining)
	}
	arrive(time.Second-1, 4)
	arrive(time.Second, 1)
	arrive(time.Minute, 1, 1, 1, 1, 1)
	arrive(time.Minute+500*ms, 1, 4)
}

func TestRetryAfterStyles(t *testing.T) {
	// The window ends 1h after the start; the attempt comes 1.7005 s before that.
	at := time.Hour - 1700*ms - 500*time.Microsecond
	start := time.Date(2024, 3, 1, 0, 0, 0, 250e6, time.UTC)
	tests := []struct {
		style string
		has   bool
		wait  time.Duration
		field provider.Field
	}{
		{"seconds", true, 2 * time.Second, provider.Field{Name: "Retry-After", Value: "2"}},
		{"ms", true, 1701 * ms, provider.Field{Name: "Retry-After-Ms", Value: "1701"}},
		{"exact", true, 1700*ms + 500*time.Microsecond, provider.Field{Name: "Retry-After-Ms", Value: "1700.5"}},
		// The window ends at 01:00:00.25, so the date is the second after.
		{"http_date", true, 2450*ms + 500*time.Microsecond, provider.Field{Name: "Retry-After", Value: "Fri, 01 Mar 2024 01:00:01 GMT"}},
		{"none", false, 0, provider.Field{}},
	}
	for _, tt := range tests {
		t.Run(tt.style, func(t *testing.T) {
			m, err := provider.NewAt(parse(t, `
  limits: [{kind: sliding_window, limit: 1, window: 1h}]
  throttle: {status: 403, retry_after: `+tt.style+`}`), 1, start)
			if err != nil {
				t.Fatal(err)
			}
			m.Arrive(0, 0, 1, 0)
			v := m.Arrive(at, 0, 1, 0)
			if v.Status != 403 || v.HasRetryAfter != tt.has || v.RetryAfter != tt.wait {
				t.Errorf("%+v, want status 403, wait %s (%v)", v, tt.wait, tt.has)
			}
			fields := m.Fields(v, nil)
			if !tt.has && len(fields) > 0 || tt.has && (len(fields) != 1 || fields[0] != tt.field) {
				t.Errorf("fields %v, want %v", fields, tt.field)
			}
		})
	}
}

func TestWindowsFollowTheWallClock(t *testing.T) {
	start := time.Date(2024, 3, 1, 10, 59, 30, 0, time.UTC)
	m, err := provider.NewAt(parse(t, `
  limits: [{kind: fixed_window, limit: 1, window: 1h}]`), 1, start)
	if err != nil {
		t.Fatal(err)
	}
	m.Arrive(0, 0, 1, 0)
	if at := m.Free(0, 1, 0); at != 30*time.Second {
		t.Errorf("free after %s, want 30s: at the full hour", at)
	}
}

func TestHeaderDialects(t *testing.T) {
	const limits = `
  limits:
    - {kind: fixed_window, limit: 60, window: 1m}
    - {kind: cost_window, limit: 200000, window: 1m}
    - {kind: concurrency, limit: 5}
    - {kind: token_bucket, rate: 2/s, burst: 4}
  throttle: {headers: `
	tests := []struct {
		dialect string
		want    []provider.Field
	}{
		{"none", nil},
		{"github", []provider.Field{
			{Name: "X-Ratelimit-Limit", Value: "60"}, {Name: "X-Ratelimit-Remaining", Value: "59"},
			{Name: "X-Ratelimit-Used", Value: "1"}, {Name: "X-Ratelimit-Reset", Value: "1709251260"},
			{Name: "X-Ratelimit-Resource", Value: "core"},
		}},
		{"openai", []provider.Field{
			{Name: "X-Ratelimit-Limit-Requests", Value: "60"}, {Name: "X-Ratelimit-Remaining-Requests", Value: "59"},
			{Name: "X-Ratelimit-Reset-Requests", Value: "50s"},
			{Name: "X-Ratelimit-Limit-Tokens", Value: "200000"}, {Name: "X-Ratelimit-Remaining-Tokens", Value: "198766"},
			{Name: "X-Ratelimit-Reset-Tokens", Value: "1m0s"},
		}},
		{"anthropic", []provider.Field{
			{Name: "Anthropic-Ratelimit-Requests-Limit", Value: "60"}, {Name: "Anthropic-Ratelimit-Requests-Remaining", Value: "59"},
			{Name: "Anthropic-Ratelimit-Requests-Reset", Value: "2024-03-01T00:01:00Z"},
			{Name: "Anthropic-Ratelimit-Tokens-Limit", Value: "200000"}, {Name: "Anthropic-Ratelimit-Tokens-Remaining", Value: "198000"},
			{Name: "Anthropic-Ratelimit-Tokens-Reset", Value: "2024-03-01T00:01:10Z"},
		}},
		{"ietf", []provider.Field{
			{Name: "Ratelimit-Policy", Value: `"fixed-window";q=60;w=60, "cost-window";q=200000;qu="tokens";w=60, ` +
				`"concurrency";q=5;qu="concurrent-requests", "token-bucket";q=4;w=2`},
			{Name: "Ratelimit", Value: `"fixed-window";r=59;t=50, "cost-window";r=198766;t=60, "concurrency";r=4, "token-bucket";r=3;t=1`},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.dialect, func(t *testing.T) {
			m, err := provider.NewAt(parse(t, limits+tt.dialect+"}"), 1, time.Date(2024, 3, 1, 0, 0, 0, 0, time.UTC))
			if err != nil {
				t.Fatal(err)
			}
			v := m.Arrive(10*time.Second, 0, 1234, time.Second)
			got := m.Fields(v, nil)
			if len(got) != len(tt.want) {
				t.Fatalf("fields %v, want %v", got, tt.want)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("field %d is %v, want %v", i, got[i], tt.want[i])
				}
			}
		})
	}
}

func TestNewRefusesWhatItCannotModel(t *testing.T) {
	if _, err := provider.New(nil, 1); err == nil {
		t.Error("no scenario was accepted")
	}
	if _, err := provider.NewAt(parse(t, "\n  limits: []"), 1, time.Unix(-1, 0)); err == nil {
		t.Error("a start before the epoch was accepted")
	}
	s := parse(t, "\n  limits: []")
	s.Provider.Limits = []scenario.Limit{{Kind: "leaky"}}
	if _, err := provider.New(s, 1); err == nil {
		t.Error("an unknown kind of limit was accepted")
	}
}

func TestTimeDoesNotRunBackwards(t *testing.T) {
	m := model(t, "\n  limits: [{kind: token_bucket, rate: 1/s, burst: 1}]")
	if !m.Arrive(10*time.Second, 0, 1, 0).Admitted {
		t.Fatal("the first was refused")
	}
	if m.Arrive(0, 0, 1, 0).Admitted {
		t.Error("an earlier instant admitted more")
	}
}

func TestARetryAfterThatIsWrong(t *testing.T) {
	tests := []struct {
		throttle string
		wait     time.Duration
		field    provider.Field
	}{
		{"retry_after: seconds, retry_after_factor: 1000", 90_000 * time.Second, provider.Field{Name: "Retry-After", Value: "90000"}},
		{"retry_after: ms, retry_after_factor: 0.001", 90 * ms, provider.Field{Name: "Retry-After-Ms", Value: "90"}},
		{"retry_after: seconds, retry_after_constant: 7s", 7 * time.Second, provider.Field{Name: "Retry-After", Value: "7"}},
		{"retry_after: seconds, retry_after_factor: 1000000", scenario.MaxHorizon, provider.Field{Name: "Retry-After", Value: "2678400"}},
	}
	for _, tt := range tests {
		m := model(t, "\n  limits: [{kind: sliding_window, limit: 1, window: 100s}]\n  throttle: {"+tt.throttle+"}")
		m.Arrive(0, 0, 1, 0)
		v := m.Arrive(10*time.Second, 0, 1, 0)
		if fields := m.Fields(v, nil); v.RetryAfter != tt.wait || len(fields) != 1 || fields[0] != tt.field {
			t.Errorf("%s: %s and %v, want %s and %v", tt.throttle, v.RetryAfter, fields, tt.wait, tt.field)
		}
	}
}

func TestAFixedBlockIsNotLengthenedByCalls(t *testing.T) {
	m := model(t, `
  limits: [{kind: token_bucket, rate: 1/s, burst: 1}]
  penalty: {base: 10s, factor: 1, max: 10s, forgive: 0s, fixed: true}`)
	m.Arrive(0, 0, 1, 0)
	for _, at := range []time.Duration{100 * ms, 5 * time.Second, 9 * time.Second} {
		if v := m.Arrive(at, 0, 1, 0); !v.Throttled || m.BlockedUntil() != 10*time.Second+100*ms {
			t.Errorf("at %s: %+v, blocked until %s, want 10.1s", at, v, m.BlockedUntil())
		}
	}
	if v := m.Arrive(10*time.Second+100*ms, 0, 1, 0); !v.Admitted {
		t.Errorf("after the block: %+v", v)
	}
	if started, pushed := m.Blocks(); started != 1 || pushed != 1 {
		t.Errorf("%d blocks, %d of them pushed, want 1 and 1", started, pushed)
	}
}

func TestBlocksThatWereMet(t *testing.T) {
	m := model(t, `
  limits: [{kind: sliding_window, limit: 1, window: 1m}]
  penalty: {base: 10s, factor: 2, max: 1h, forgive: 5s}`)
	for _, at := range []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 2 * time.Minute, 121 * time.Second} {
		m.Arrive(at, 0, 1, 0)
	}
	if started, pushed := m.Blocks(); started != 2 || pushed != 1 {
		t.Errorf("%d blocks, %d of them pushed, want 2 and 1", started, pushed)
	}
}

func TestStrangersThatComeAndGo(t *testing.T) {
	s := parse(t, "\n  strangers: {rate: 2/s, on: 30s, off: 90s}")
	s.Horizon = 10 * 24 * time.Hour
	m, err := provider.New(s, 7)
	if err != nil {
		t.Fatal(err)
	}
	// Of seconds with a stranger in the minute around them, an always-on stream of
	// 2/s has all; this one about a half.
	quiet, minutes := 0, int(s.Horizon/time.Minute)
	last := int64(0)
	for i := 1; i <= minutes; i++ {
		m.Advance(time.Duration(i) * time.Minute)
		if n := m.Strangers().Admitted; n == last {
			quiet++
		} else {
			last = n
		}
	}
	if mean := float64(last) / s.Horizon.Seconds(); math.Abs(mean-2) > 0.15 {
		t.Errorf("mean rate %g/s, want 2", mean)
	}
	if part := float64(quiet) / float64(minutes); part < 0.25 || part > 0.5 {
		t.Errorf("%g of the minutes are quiet, want about a third", part)
	}
}

func TestADriftMovesTheLimitInSteps(t *testing.T) {
	m := model(t, `
  limits: [{kind: fixed_window, limit: 1000, window: 1s}]
  changes: [{at: 1h, over: 2h, scale: 0.25}]`)
	for at, want := range map[time.Duration]float64{59 * time.Minute: 1, 3 * time.Hour: 0.25} {
		c := m.Clone()
		if c.Advance(at); math.Abs(c.Factor()-want) > 1e-9 {
			t.Errorf("at %s the limits are times %g, want %g", at, c.Factor(), want)
		}
	}
	if m.Advance(2 * time.Hour); m.Factor() < 0.45 || m.Factor() > 0.5 {
		t.Errorf("in the middle of the drift the limits are times %g, want a little under 0.5", m.Factor())
	}
}

func TestWorkArrivesInBursts(t *testing.T) {
	s, err := scenario.Parse("burst.yaml", []byte("name: burst\nworkload: {kind: open, rate: 5/s, burst: 50}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p := provider.NewSampler(s, 3, 0)
	var sum time.Duration
	gaps := 0
	const n = 50_000
	for range n {
		gap := p.Gap()
		if sum += gap; gap > 0 {
			gaps++
		}
	}
	if gaps != n/50 || math.Abs(n/sum.Seconds()-5) > 0.5 {
		t.Errorf("%d gaps and %g/s, want %d and 5", gaps, n/sum.Seconds(), n/50)
	}
}
