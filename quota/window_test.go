package quota

import (
	"math"
	"testing"
	"time"
)

// A window of a minute has parts of a second: what is charged in the second s leaves
// at s + 61.
func TestWhenWhatWasChargedLeavesTheWindow(t *testing.T) {
	const s = time.Second
	charged := func(more func(w *window)) *window {
		w := newWindow(60*s, 5*s/2)
		w.add(10)
		w.advance(7*s - 1)
		w.add(20)
		w.advance(7 * s)
		w.add(40)
		if more != nil {
			more(w)
		}
		return w
	}
	for name, tt := range map[string]struct {
		more func(w *window)
		at   time.Duration
		want int64
	}{
		"all of it":                     {nil, 7 * s, 70},
		"before the first leaves":       {nil, 63*s - 1, 70},
		"the first leaves":              {nil, 63 * s, 60},
		"before the second leaves":      {nil, 67*s - 1, 60},
		"the second leaves":             {nil, 67 * s, 40},
		"the last leaves":               {nil, 68 * s, 0},
		"long after":                    {nil, time.Hour, 0},
		"the same part a window later":  {func(w *window) { w.advance(63 * s); w.add(5) }, 67 * s, 45},
		"some of the first given back":  {func(w *window) { w.giveBack(4, 2*s) }, 7 * s, 66},
		"and it leaves":                 {func(w *window) { w.giveBack(4, 2*s) }, 63 * s, 60},
		"more than there was":           {func(w *window) { w.giveBack(11, 3*s-1) }, 7 * s, 60},
		"given back while it counts":    {func(w *window) { w.advance(63*s - 1); w.giveBack(4, 2*s) }, 63*s - 1, 66},
		"given back when it has left":   {func(w *window) { w.advance(63 * s); w.add(5); w.giveBack(4, 2*s) }, 63 * s, 65},
		"given back where nothing was":  {func(w *window) { w.giveBack(4, 4*s) }, 7 * s, 70},
		"given back of what is newest":  {func(w *window) { w.giveBack(4, 7*s) }, 7 * s, 66},
		"a span of which all is gone":   {func(w *window) { w.advance(100 * s); w.add(1) }, 100 * s, 1},
		"a second before all is gone":   {func(w *window) { w.advance(66 * s); w.add(1) }, 67 * s, 41},
		"exactly as many parts as hold": {func(w *window) { w.advance(67 * s); w.add(1) }, 67 * s, 41},
	} {
		w := charged(tt.more)
		w.advance(tt.at)
		sum := int64(0)
		for _, n := range w.part {
			sum += n
		}
		if w.sum != tt.want || sum != tt.want {
			t.Errorf("%s: at %v the sum is %d, of its parts %d, want %d", name, tt.at, w.sum, sum, tt.want)
		}
	}
	w := charged(nil)
	for limit, want := range map[int64]time.Duration{
		100: 7 * s, 70: 7 * s, 69: 63 * s, 60: 63 * s, 59: 67 * s, 40: 67 * s, 39: 68 * s, 0: 68 * s, -1: math.MaxInt64,
	} {
		if got := w.falls(limit, 7*s); got != want {
			t.Errorf("it falls to %d at %v, want %v", limit, got, want)
		}
	}
	if got := w.falls(69, 64*s); got != 64*s { // not brought up to now
		t.Errorf("it falls at %v, before now", got)
	}
}

// A part of a window whose span is no multiple of 60 is a nanosecond longer.
func TestPartsAreRoundedUp(t *testing.T) {
	for span, want := range map[time.Duration]time.Duration{1: 1, 60: 1, 61: 2, 120: 2, time.Minute: time.Second} {
		if got := newWindow(span, 0).width; got != want {
			t.Errorf("parts of %d ns are %d ns wide, want %d", span, got, want)
		}
	}
	w := newWindow(60, 90)
	if w.head != 90 || w.turn != 91 {
		t.Errorf("at 90 ns the part is %d until %d", w.head, w.turn)
	}
}

// Widened, what a part holds counts as charged at its end.
func TestAnotherSpanKeepsWhatIsCharged(t *testing.T) {
	const s = time.Second
	w := newWindow(60*s, 0)
	w.add(1)
	w.advance(30 * s)
	w.add(2)
	w.advance(60 * s)
	w.add(4)
	for name, tt := range map[string]struct {
		span time.Duration
		sums map[time.Duration]int64
	}{
		"the same":    {60 * s, map[time.Duration]int64{60 * s: 7, 61*s - 1: 7, 61 * s: 6, 91 * s: 4, 121*s - 1: 4, 121 * s: 0}},
		"ten minutes": {600 * s, map[time.Duration]int64{60 * s: 7, 610*s - 1: 7, 610 * s: 6, 640*s - 1: 6, 640 * s: 4, 670*s - 1: 4, 670 * s: 0}},
		"half":        {30 * s, map[time.Duration]int64{60 * s: 6, 61*s - 1: 6, 61*s + s/2: 4, 91 * s: 0}},
		"a tenth":     {6 * s, map[time.Duration]int64{60 * s: 4, 66 * s: 4, 66*s + s/10: 0}},
	} {
		for at, want := range tt.sums {
			to := w.widened(tt.span, 60*s)
			if to.advance(at); to.sum != want {
				t.Errorf("%s: %d at %v, want %d", name, to.sum, at, want)
			}
		}
	}
}

// The rate is that of ten parts, five of which must have been used: heading for the
// end means that the sum would exceed the budget before as much has left.
func TestAWindowHeadsForItsEnd(t *testing.T) {
	fill := func(from, until, n int64) *window {
		w := newWindow(time.Minute, 0)
		for at := from; at <= until; at++ {
			w.advance(time.Duration(at) * time.Second)
			w.add(n)
		}
		return w
	}
	idle := func(w *window, seconds int64) *window {
		w.advance(time.Duration(w.head+seconds) * time.Second)
		return w
	}
	for name, tt := range map[string]struct {
		w      *window
		budget int64
		want   bool
	}{
		"four parts used":             {fill(20, 23, 10), 60, false},
		"five parts used":             {fill(20, 24, 10), 60, true},
		"the first five of all":       {fill(0, 4, 10), 60, true},
		"a steady rate that fits":     {fill(0, 99, 10), 610, false}, // 61 parts count
		"one that is one too much":    {fill(0, 99, 10), 609, true},
		"the first ten of all":        {fill(0, 9, 10), 610, false}, // 100, and 51 parts of 10 before one leaves
		"one too much":                {fill(0, 9, 10), 609, true},
		"idle for four of ten":        {idle(fill(0, 9, 10), 5), 300, true},
		"idle for five and one":       {idle(fill(0, 9, 10), 6), 300, false},
		"the tenth part back counts":  {idle(fill(20, 24, 10), 5), 60, true},
		"the eleventh does not count": {idle(fill(20, 24, 10), 6), 60, false},
	} {
		if got := tt.w.heads(tt.budget); got != tt.want {
			t.Errorf("%s, of %d: %v", name, tt.budget, got)
		}
		if got := tt.w.heads(tt.budget); got != tt.want {
			t.Errorf("%s, asked again: %v", name, got)
		}
	}
	w := fill(20, 24, 10)
	if !w.heads(60) || !w.heads(1000) {
		t.Error("it is worked out once a part")
	}
	if idle(w, 1); w.heads(1000) {
		t.Error("it is worked out again in the next part")
	}
}

func TestDaysAreNumbered(t *testing.T) {
	for name, want := range map[string]int64{"1970-01-01": 0, "1970-01-02": 1, "2026-03-04": 20516, "2250-01-01": 102268, "2400-01-01": 157054} {
		got, err := dayNumber(name)
		if err != nil || got != want || dayName(want) != name {
			t.Errorf("%s is %d, %v, want %d; that is %s", name, got, err, want, dayName(want))
		}
		day, _ := time.Parse(time.DateOnly, name)
		for _, at := range []time.Duration{0, 12 * time.Hour, 24*time.Hour - 1} {
			if got := civilDay(day.Add(at), time.UTC); got != want {
				t.Errorf("%s and %v is of day %d, want %d", name, at, got, want)
			}
		}
		if got := turnOf(want, time.UTC); !got.Equal(day) {
			t.Errorf("%s begins at %v", name, got)
		}
	}
	for _, bad := range []string{"", "2026-3-4", "2026-03-32", "2026-03-04T00:00"} {
		if _, err := dayNumber(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// A calendar anchored again, for a clock that was set and for an instant at which it
// turns.
func TestACalendarOnlyGoesForward(t *testing.T) {
	midday := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	day, hour := 24*time.Hour, time.Hour
	c := calendar{zone: time.UTC}
	for _, tt := range []struct {
		what       string
		origin     time.Time
		now        time.Duration
		day        string
		start, end time.Duration
	}{
		{"at first", midday, 0, "2026-03-04", -12 * hour, 12 * hour},
		{"just before midnight", midday, 12*hour - 1, "2026-03-04", -12 * hour, 12 * hour},
		{"at midnight", midday, 12 * hour, "2026-03-05", 12 * hour, 36 * hour},
		{"set back by an hour", midday.Add(-hour), 12*hour + 1, "2026-03-05", 13 * hour, 37 * hour},
		{"set back by two days", midday.Add(-2 * day), 13 * hour, "2026-03-05", 60 * hour, 84 * hour},
		{"set right again", midday, 14 * hour, "2026-03-05", 12 * hour, 36 * hour},
		{"set forward by a week", midday.Add(7 * day), 14 * hour, "2026-03-12", 12 * hour, 36 * hour},
	} {
		c.anchor(tt.origin, tt.now)
		if dayName(c.day) != tt.day || c.start != tt.start || c.end != tt.end {
			t.Errorf("%s: %s from %v to %v, want %s from %v to %v", tt.what, dayName(c.day), c.start, c.end, tt.day, tt.start, tt.end)
		}
	}
}

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
