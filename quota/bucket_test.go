package quota

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestRatesAreExactFractions(t *testing.T) {
	for name, tt := range map[string]struct{ got, want refill }{
		"a call a second":            {perMinute(60, 5), refill{1, 1, 5 * nano}},
		"7 a minute":                 {perMinute(7, 3), refill{7, 60, 3 * nano}},
		"90 a minute":                {perMinute(90, 1), refill{3, 2, nano}},
		"60 a minute, spread":        {spread(60), refill{49, 50, 5 * nano}},     // 0.98 a second, 5 s' worth
		"61 a minute, spread":        {spread(61), refill{2989, 3000, 6 * nano}}, // 5 s' worth, rounded up
		"12 a minute, spread":        {spread(12), refill{49, 250, nano}},
		"13 a minute, spread":        {spread(13), refill{637, 3000, 2 * nano}},
		"1 a minute, spread":         {spread(1), refill{49, 3000, nano}},
		"half a call a second":       {perSecond(0.5, 2), refill{1, 2, 2 * nano}},
		"the slowest":                {perSecond(1e-9, 1), refill{1, nano, nano}},
		"rounded to nine places":     {perSecond(2.6e-9, 1), refill{3, nano, nano}},
		"a rate of nine places more": {perSecond(1.000000001, 1), refill{1_000_000_001, nano, nano}},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, tt.got, tt.want)
		}
	}
}

func TestABucketFills(t *testing.T) {
	seven := perMinute(7, 3) // 7 nano-calls in 60 ns
	for name, tt := range map[string]struct {
		rate    refill
		from    bucket
		elapsed time.Duration
		want    bucket
	}{
		"less than a part":                   {seven, bucket{0, 0}, 8, bucket{0, 56}},
		"the first part":                     {seven, bucket{0, 0}, 9, bucket{1, 3}},
		"with what flowed in before":         {seven, bucket{5, 53}, 1, bucket{6, 0}},
		"out of debt":                        {seven, bucket{-2, 0}, 60, bucket{5, 0}},
		"just not full":                      {seven, bucket{3*nano - 7, 0}, 59, bucket{3*nano - 1, 53}},
		"full, and nothing over":             {seven, bucket{3*nano - 7, 0}, 60, bucket{3 * nano, 0}},
		"full, the rest runs over":           {seven, bucket{3*nano - 7, 0}, 61, bucket{3 * nano, 0}},
		"it was full":                        {seven, bucket{3 * nano, 0}, 60, bucket{3 * nano, 0}},
		"it held more than it does now":      {seven, bucket{3*nano + 1, 0}, 0, bucket{3 * nano, 0}},
		"whole parts only":                   {perMinute(60, 3), bucket{1, 0}, 17, bucket{18, 0}},
		"a carry":                            {reduced(3, 7, 4e9), bucket{0, 1}, 0x5555555555555555, bucket{2635249153387078802, 2}}, // 2^64 parts of 1/7
		"more than 64 bits, one part a unit": {reduced(4, 1, 4e9), bucket{5, 0}, 1 << 62, bucket{4e9 * nano, 0}},
		"more than 64 bits can say":          {reduced(9, 2, 4e9), bucket{5, 0}, math.MaxInt64, bucket{4e9 * nano, 0}},
	} {
		if tt.from.fill(&tt.rate, tt.elapsed); tt.from != tt.want {
			t.Errorf("%s: %+v, want %+v", name, tt.from, tt.want)
		}
	}
}

func TestABucketGives(t *testing.T) {
	seven := perMinute(7, 3)
	for name, tt := range map[string]struct {
		from bucket
		n    int64
		want bucket
	}{
		"some":                     {bucket{100, 7}, 30, bucket{70, 7}},
		"more than it holds":       {bucket{100, 7}, 130, bucket{-30, 7}},
		"down to the bound":        {bucket{0, 7}, -floor, bucket{floor, 7}},
		"no further":               {bucket{0, 7}, -floor + 1, bucket{floor, 7}},
		"back, not full":           {bucket{3*nano - 10, 7}, -9, bucket{3*nano - 1, 7}},
		"back, full":               {bucket{3*nano - 10, 7}, -10, bucket{3 * nano, 0}},
		"back more than there was": {bucket{3*nano - 10, 7}, -11, bucket{3 * nano, 0}},
	} {
		if tt.from.take(&seven, tt.n); tt.from != tt.want {
			t.Errorf("%s: %+v, want %+v", name, tt.from, tt.want)
		}
	}
	if floor != -8e18 {
		t.Errorf("debt is bounded by %d, want eight thousand million tokens", floor)
	}
}

func TestABucketNamesTheShortestWait(t *testing.T) {
	seven := perMinute(7, 3)
	for name, tt := range map[string]struct {
		rate refill
		from bucket
		need int64
		want time.Duration
	}{
		"it is there":             {seven, bucket{5, 0}, 5, 0},
		"more than that is":       {seven, bucket{6, 0}, 5, 0},
		"one part":                {seven, bucket{4, 0}, 5, 9}, // 60/7 ns, rounded up
		"all but a seventh":       {seven, bucket{4, 4}, 5, 8},
		"the rest of that":        {seven, bucket{4, 53}, 5, 1},
		"seven parts":             {seven, bucket{-2, 0}, 5, 60},
		"a borrow and a carry":    {refill{3, 1 << 32, math.MaxInt64}, bucket{0, 1}, 1 << 32, 6148914691236517205}, // a third of 2^64-1
		"the end of time":         {refill{1, 1 << 31, math.MaxInt64}, bucket{0, 1}, 1 << 32, math.MaxInt64},
		"just beyond it":          {refill{1, 1 << 31, math.MaxInt64}, bucket{0, 0}, 1 << 32, Never},
		"beyond 64 bits":          {refill{1, 1 << 32, math.MaxInt64}, bucket{0, 0}, 1 << 32, Never},
		"the last within 64 bits": {refill{1, 1 << 32, math.MaxInt64}, bucket{0, 0}, 1<<32 - 1, Never},
	} {
		if got := tt.from.wait(&tt.rate, tt.need); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestWholeRoundsDown(t *testing.T) {
	for level, want := range map[int64]int64{
		0: 0, nano - 1: 0, nano: 1, 2*nano - 1: 1, -1: -1, -nano: -1, -nano - 1: -2, -2 * nano: -2,
	} {
		if got := whole(level); got != want {
			t.Errorf("%d nano-units are %d, want %d", level, got, want)
		}
	}
	for wait, want := range map[time.Duration]int64{0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, -1: 0} {
		if got := milliseconds(wait); got != want {
			t.Errorf("%v are %d ms, want %d", wait, got, want)
		}
	}
}

// A ring of three, after each value that is added: what it keeps, what is newest, and
// what a reader takes who comes now and then.
func TestARingKeepsTheNewest(t *testing.T) {
	r := ring[int]{bound: 3}
	for _, tt := range []struct {
		add   int
		kept  []int
		take  bool
		taken []int
		lost  uint64
	}{
		{add: 1, kept: []int{1}},
		{add: 2, kept: []int{1, 2}, take: true, taken: []int{1, 2}},
		{add: 3, kept: []int{1, 2, 3}, take: true, taken: []int{3}},
		{add: 4, kept: []int{2, 3, 4}},
		{add: 5, kept: []int{3, 4, 5}, take: true, taken: []int{4, 5}},
		{add: 6, kept: []int{4, 5, 6}},
		{add: 7, kept: []int{5, 6, 7}},
		{add: 8, kept: []int{6, 7, 8}, take: true, taken: []int{6, 7, 8}},
		{add: 9, kept: []int{7, 8, 9}},
		{add: 10, kept: []int{8, 9, 10}},
		{add: 11, kept: []int{9, 10, 11}},
		{add: 12, kept: []int{10, 11, 12}, take: true, taken: []int{10, 11, 12}, lost: 1},
	} {
		r.add(tt.add)
		if got := r.all(nil); !slices.Equal(got, tt.kept) {
			t.Errorf("with %d it keeps %v, want %v", tt.add, got, tt.kept)
		}
		if last := r.newest(); last == nil || *last != tt.add {
			t.Errorf("with %d the newest is %v", tt.add, last)
		}
		if !tt.take {
			continue
		}
		if got, lost := r.take([]int{0}); !slices.Equal(got[1:], tt.taken) || got[0] != 0 || lost != tt.lost {
			t.Errorf("with %d one takes %v, %d lost, want %v, %d lost", tt.add, got, lost, tt.taken, tt.lost)
		}
		if got, lost := r.take(nil); len(got) != 0 || lost != 0 || r.newest() != nil {
			t.Errorf("with %d one takes %v again, %d lost; the newest is %v", tt.add, got, lost, r.newest())
		}
	}
	for _, tt := range []struct {
		bound      int
		kept, then []int
	}{
		{5, []int{10, 11, 12}, []int{10, 11, 12, 13}},
		{3, []int{11, 12, 13}, []int{12, 13, 14}},
		{2, []int{13, 14}, []int{14, 15}},
	} {
		r.resize(tt.bound)
		if got := r.all(nil); !slices.Equal(got, tt.kept) {
			t.Errorf("of %d it keeps %v, want %v", tt.bound, got, tt.kept)
		}
		r.add(tt.then[len(tt.then)-1])
		if got := r.all(nil); !slices.Equal(got, tt.then) {
			t.Errorf("of %d it then keeps %v, want %v", tt.bound, got, tt.then)
		}
	}
}

func TestAnEventInOneLine(t *testing.T) {
	for want, e := range map[string]Event{
		"rate:resume global":                            {Type: EventResume},
		"rate:throttle model m THROTTLED":               {Type: EventThrottle, Scope: Scope{Model: "m"}, Reason: Throttled},
		"rate:denied tenant t, agent a RATE_SOFT_LIMIT": {Type: EventDenied, Scope: Scope{Tenant: "t", Agent: "a"}, Reason: SoftLimit, Code: CodeSoftLimit},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
