package quota

import (
	"math"
	"testing"
	"time"
)

func nodeOf(l Limits) *node {
	p := compile(&l, &calendar{zone: time.UTC})
	n := &node{limits: p}
	for k := range n.bucket {
		n.bucket[k].level = p.refill[k].capacity
	}
	if p.soft {
		n.window = newWindow(p.softSpan, 0)
	}
	return n
}

// What a call costs is the time that the slowest budget takes to refill it, in parts of a
// microsecond, and a burst is that of the whole budget.
func TestHowLongABudgetTakesToRefill(t *testing.T) {
	const s = 1_000_000 * costParts
	for name, tt := range map[string]struct {
		limits      Limits
		taken       amount
		windowed    int64
		want, whole int64
	}{
		"none":               {Limits{}, amount{1, 100, 100, 100}, 100, 0, 0},
		"calls":              {Limits{CallsPerMinute: 60, Burst: 10}, amount{1, 100, 100, 100}, 100, s, 10 * s},
		"tokens":             {Limits{CallsPerMinute: 60, Burst: 10, TokensPerMinute: 600}, amount{1, 50, 100, 100}, 100, 5 * s, 60 * s},
		"input":              {Limits{InputTokensPerMinute: 600, InputTokenBurst: 100}, amount{1, 50, 100, 9}, 100, 10 * s, 10 * s},
		"output":             {Limits{OutputTokensPerMinute: 600, OutputTokenBurst: 90}, amount{1, 50, 9, 80}, 100, 8 * s, 9 * s},
		"a window":           {Limits{SoftTokenBudget: 1000, SoftTokenWindowMS: 60_000}, amount{1, 50, 100, 100}, 500, 30 * s, 60 * s},
		"a slower window":    {Limits{TokensPerMinute: 600, SoftTokenBudget: 1000, SoftTokenWindowMS: 60_000}, amount{1, 10, 0, 0}, 100, 6 * s, 60 * s},
		"a millionth second": {Limits{CallsPerMinute: 60_000_000, Burst: 3}, amount{1, 0, 0, 0}, 0, costParts, 3 * costParts},
		"at most":            {Limits{RefillPerSecond: 1e-9, Burst: 2}, amount{1, 0, 0, 0}, 0, 1 << 50, 1 << 50},
		"only a day":         {Limits{MaxDailyTokens: 10}, amount{1, 5, 5, 5}, 5, 0, 0},
	} {
		n := nodeOf(tt.limits)
		if got := n.refills(&tt.taken, tt.windowed); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
		if got := n.refillTime(); got != tt.whole {
			t.Errorf("%s: the whole in %d, want %d", name, got, tt.whole)
		}
	}
}

// From what is there at 10 s: a bucket that holds 100 of 600 tokens, and a window of 100
// tokens of which 60 were charged at 2 s.
func TestHowLongABudgetTakesToServe(t *testing.T) {
	const s = time.Second
	tokensOnly := Limits{TokensPerMinute: 600}
	window := Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}
	advise := window
	advise.SoftPolicy = Advise
	both := window
	both.TokensPerMinute = 600
	for name, tt := range map[string]struct {
		limits   Limits
		tokens   int64
		windowed int64
		want     time.Duration
	}{
		"what is there":              {tokensOnly, 100, 1000, 0},
		"one more":                   {tokensOnly, 101, 1000, s / 10},
		"many":                       {tokensOnly, 700, 0, 60 * s},
		"the most":                   {tokensOnly, math.MaxInt64 / nano, 0, time.Duration(4e17) - 10*s},
		"what the window has":        {window, 1000, 40, 0},
		"one more than it has":       {window, 1000, 41, 53 * s}, // until 63 s
		"a whole window":             {window, 1000, 100, 53 * s},
		"more than a window":         {window, 1000, 101, 60600 * time.Millisecond},
		"two windows":                {window, 1000, 200, 120 * s},
		"advice only":                {advise, 1000, 1000, 0},
		"the bucket takes longer":    {both, 700, 41, 60 * s},
		"the window takes longer":    {both, 101, 41, 53 * s},
		"two windows, bucket longer": {both, 1400, 200, 130 * s},
	} {
		n := nodeOf(tt.limits)
		n.bucket[tokens].level = 100 * nano
		if n.window != nil {
			n.window.advance(2 * s)
			n.window.add(60)
			n.window.advance(10 * s)
		}
		if got := n.serves(10*s, amount{nano, tt.tokens * nano, 0, 0}, tt.windowed); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	n := nodeOf(Limits{CallsPerMinute: 60, Burst: 1})
	if got := n.serves(0, amount{calls: math.MaxInt64}, 0); got != 4e18-1e9 {
		t.Errorf("without end: %d", got)
	}
}

// A cap of 100, of which 50 are used: whether it ends within what is left of the day.
func TestACapOutruns(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		bound, used, n int64
		span, left     time.Duration
		want           bool
	}{
		{100, 50, 1, s, 50 * s, false}, // it ends with the day
		{100, 50, 1, s, 50*s + 1, true},
		{100, 49, 1000, s, 50 * s, false}, // not half
		{100, 50, 0, s, 50 * s, false},
		{100, 100, 1, s, 1, true},
		{100, 101, 1, s, 1, true},
		{100, 100, 1, s, 0, false},
		{1e15, 5e14, 1e9, 60 * s, 3e16, false}, // beyond 64 bits: 3e25 on both sides
		{1e15, 5e14, 1e9, 60 * s, 3e16 + 1, true},
		{1e15, 5e14, 1e9, 60 * s, 3e16 - 1, false},
		{4e9, 2e9, 1, 1 << 34, 1, false}, // far more: the lower half alone is smaller
		{100, 50, 1 << 40, 1, 1 << 40, true},
	} {
		l := limits{}
		if got := l.outruns(tt.bound, tt.used, tt.n, tt.span, tt.left); got != tt.want {
			t.Errorf("%d of %d at %d in %v, %v left: %v", tt.used, tt.bound, tt.n, tt.span, tt.left, got)
		}
	}
}
