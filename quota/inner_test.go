package quota

import (
	"math"
	"math/big"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/longtest"
)

// The table of moves, spelt out: every pair that is not in it is illegal.
func TestTheTableOfMoves(t *testing.T) {
	type move struct {
		from State
		t    Trigger
	}
	want := map[move]State{
		{Normal, SoftReached}: Soft, {Soft, SoftRelieved}: Normal,
		{Normal, BucketEmpty}: Throttle, {Soft, BucketEmpty}: Throttle, {Normal, HeldBack}: Throttle, {Soft, HeldBack}: Throttle, {Throttle, Resume}: Normal,
		{Normal, CapReached}: Exhausted, {Soft, CapReached}: Exhausted, {Throttle, CapReached}: Exhausted,
		{Exhausted, DayTurned}: Normal, {Exhausted, CapRaised}: Normal, {Exhausted, RoomMade}: Normal,
	}
	for from := range states {
		for trigger := range triggers {
			to, legal := want[move{from, trigger}]
			got, ok := next(from, trigger)
			if ok != legal || ok && got != to {
				t.Errorf("%v by %v: %v, %v; want %v, %v", from, trigger, got, ok, to, legal)
			}
		}
	}
}

func TestTheDiagramShowsTheTableOfMoves(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var drawn, legalMoves []string
	for _, m := range regexp.MustCompile(`(\w+) --> (\w+): (\w+)`).FindAllStringSubmatch(string(doc), -1) {
		drawn = append(drawn, m[1]+" "+m[2]+" "+m[3])
	}
	for trigger := range triggers {
		for _, from := range legal[trigger].from {
			legalMoves = append(legalMoves, from.String()+" "+legal[trigger].to.String()+" "+trigger.String())
		}
	}
	slices.Sort(drawn)
	slices.Sort(legalMoves)
	if !slices.Equal(drawn, legalMoves) {
		t.Errorf("drawn %q\nlegal %q", drawn, legalMoves)
	}
}

func TestAnIllegalMoveIsAProgrammersError(t *testing.T) {
	g, err := New(Config{}, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	g.transition(g.root.node, Resume, 0)
}

// Against exact rationals: levels, waits, and no drift however time is cut up.
func TestBucketsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r refill
		capacity := rapid.Int64Range(1, 1e9).Draw(t, "capacity")
		if rapid.Bool().Draw(t, "by the minute") {
			r = perMinute(rapid.Int64Range(1, 1e9).Draw(t, "rate"), capacity)
		} else {
			r = perSecond(float64(rapid.Int64Range(1, 1e15).Draw(t, "nanos"))/1e9, capacity)
		}
		rate := new(big.Rat).SetFrac(new(big.Int).SetUint64(r.num), new(big.Int).SetUint64(r.den))
		exact := new(big.Rat).SetInt64(r.capacity)
		b := bucket{level: r.capacity}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			n := rapid.Int64Range(0, 2*capacity).Draw(t, "taken")
			b.take(&r, n*nano)
			exact.Sub(exact, new(big.Rat).SetInt64(n*nano))
			if exact.Cmp(new(big.Rat).SetInt64(floor)) < 0 {
				exact.SetInt64(floor)
			}
			d := rapid.SampledFrom([]int64{1, 7, 1e3, 1e6, 1e9, 6e10, 3e16}).Draw(t, "scale")
			elapsed := rapid.Int64Range(0, d).Draw(t, "elapsed")

			need := rapid.Int64Range(1, capacity).Draw(t, "need") * nano
			if wait := b.wait(&r, need); wait != Never {
				before, after := b, b
				after.fill(&r, wait)
				if after.level < need {
					t.Fatalf("after a wait of %v the level is %d of %d", wait, after.level, need)
				}
				if before.fill(&r, wait-1); wait > 0 && before.level >= need {
					t.Fatalf("the wait of %v is longer than needed", wait)
				}
			}

			b.fill(&r, time.Duration(elapsed))
			exact.Add(exact, new(big.Rat).Mul(rate, new(big.Rat).SetInt64(elapsed)))
			if exact.Cmp(new(big.Rat).SetInt64(r.capacity)) > 0 {
				exact.SetInt64(r.capacity)
			}
			got := new(big.Rat).SetInt64(b.level)
			got.Add(got, new(big.Rat).SetFrac(new(big.Int).SetUint64(b.rem), new(big.Int).SetUint64(r.den)))
			if got.Cmp(exact) != 0 {
				t.Fatalf("level %v, exactly %v", got, exact)
			}
		}
	})
}

// Against a plain list of charges: what is charged counts for the whole window
// and leaves within one part after it.
func TestTheWindowForgetsNothingEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := time.Duration(rapid.Int64Range(1e6, 1e12).Draw(t, "span"))
		w := newWindow(span, 0)
		type charge struct {
			at time.Duration
			n  int64
		}
		var all []charge
		now := time.Duration(0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, int64(span)).Draw(t, "later")) / time.Duration(rapid.IntRange(1, 20).Draw(t, "finer"))
			w.advance(now)
			n := rapid.Int64Range(0, 100).Draw(t, "n")
			w.add(n)
			all = append(all, charge{now, n})
			if len(all) > 1 && rapid.Bool().Draw(t, "give back") {
				c := &all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
				w.giveBack(c.n, c.at)
				c.n = 0
			}
			var least, most int64
			for _, c := range all {
				if c.at > now-span {
					least += c.n
				}
				if c.at > now-(parts+1)*w.width {
					most += c.n
				}
			}
			if w.sum < least || w.sum > most {
				t.Fatalf("at %v the sum is %d, want %d to %d", now, w.sum, least, most)
			}
			limit := rapid.Int64Range(0, 200).Draw(t, "limit")
			at := w.falls(limit, now)
			before, after := *w, *w
			after.advance(at)
			if before.advance(at - 1); after.sum > limit || at > now && before.sum <= limit {
				t.Fatalf("falls to %d at %v: then %d, just before %d", limit, at, after.sum, before.sum)
			}
			wider := w.widened(span*time.Duration(rapid.IntRange(1, 3).Draw(t, "wider")), now)
			if wider.sum != w.sum {
				t.Fatalf("a wider window holds %d, not %d", wider.sum, w.sum)
			}
		}
	})
}

func TestDaysTurnOnceInEveryZone(t *testing.T) {
	for _, name := range []string{"UTC", "America/Los_Angeles", "America/Sao_Paulo", "America/Havana", "Asia/Beirut", "America/St_Johns", "Pacific/Apia", "Pacific/Kiritimati", "Asia/Kathmandu"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for year := 2005; year < 2027; year++ {
			first := civilDay(time.Date(year, 1, 1, 12, 0, 0, 0, zone), zone)
			for day := first; day < first+365; day++ {
				at := turnOf(day, zone)
				if civilDay(at, zone) < day || civilDay(at.Add(-1), zone) >= day {
					t.Fatalf("%s: day %s turns at %v", name, dayName(day), at.In(zone))
				}
				leftOut := name == "Pacific/Apia" && dayName(day) == "2011-12-30"
				if got := civilDay(at, zone); got != day && !leftOut {
					t.Fatalf("%s: day %s begins on day %s", name, dayName(day), dayName(got))
				}
			}
		}
	}
}

func TestShareIsExact(t *testing.T) {
	if got := share(1<<62, 4, 1); got != math.MaxInt64 { // the first that has no room
		t.Errorf("2^64 is %d", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		n, part, whole := rapid.Int64Min(0).Draw(t, "n"), rapid.Int64Min(0).Draw(t, "part"), rapid.Int64Min(1).Draw(t, "whole")
		exact := new(big.Int).Mul(big.NewInt(n), big.NewInt(part))
		exact.Quo(exact, big.NewInt(whole))
		want := int64(math.MaxInt64)
		if exact.IsInt64() {
			want = exact.Int64()
		}
		if got := share(n, part, whole); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	})
}

func TestWhatRemainsLasts(t *testing.T) {
	for _, tt := range []struct {
		remaining, n int64
		span, want   time.Duration
	}{
		{0, 1, time.Minute, 0},
		{-1, 1, time.Minute, 0},
		{1, 0, time.Minute, Never},
		{1, -1, time.Minute, Never},
		{1, 1, time.Minute, time.Minute},
		{3, 2, time.Minute, 90 * time.Second},
		{1 << 62, 1, 4, Never}, // the first that has no room
		{1 << 62, 1, 3, Never},
		{1 << 62, 8, 4, 1 << 61},
	} {
		if got := lasts(tt.remaining, tt.n, tt.span); got != tt.want {
			t.Errorf("%d at %d in %v last %v, want %v", tt.remaining, tt.n, tt.span, got, tt.want)
		}
	}
}

func TestTheHeapKeepsItsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &Governor{}
		nodes := make([]*node, 20)
		for i := range nodes {
			nodes[i] = &node{id: uint64(i), heap: -1, limits: &limits{calendar: &calendar{}}}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "node")]
			n.stepAt = time.Duration(rapid.Int64Range(0, 30).Draw(t, "due"))
			g.reschedule(n, 0)
			in := 0
			for i, n := range g.schedule {
				if n.heap != i || i > 0 && g.before(i, (i-1)/2) {
					t.Fatalf("node %d at %d", n.heap, i)
				}
			}
			for _, n := range nodes {
				if n.heap >= 0 {
					in++
				}
				if (n.heap >= 0) != (n.stepAt > 0) {
					t.Fatalf("node %d, due %v, is at %d", n.id, n.stepAt, n.heap)
				}
			}
			if in != len(g.schedule) {
				t.Fatalf("%d of %d", in, len(g.schedule))
			}
		}
	})
}

func TestApproveAndSettleDoNotAllocate(t *testing.T) {
	l := Limits{CallsPerMinute: 1e9, TokensPerMinute: 1e9, SoftTokenBudget: 1e12, SoftTokenWindowMS: 60_000, MaxDailyTokens: 1e12}
	g, err := New(Config{Global: l, Models: map[string]Model{"m": {Limits: l}}, TenantDefault: Tenant{Limits: l}}, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Duration(0)
	for _, tenant := range []string{"", "t"} {
		if n := testing.AllocsPerRun(1000, func() {
			now += time.Millisecond
			d := g.Approve(now, Request{Model: "m", Tenant: tenant, InputTokens: 10, OutputTokens: 5})
			if first, err := g.RecordUsage(now, d.Permit, Usage{Input: 10, Output: 2}); !first || err != nil {
				t.Fatal(first, err)
			}
		}); n != 0 {
			t.Errorf("%v allocations, want 0", n)
		}
	}
}

func TestMemoryStaysBoundedWhenNobodyTakesWhatChanged(t *testing.T) {
	g, err := New(Config{Models: map[string]Model{"m": {}}, MaxTenants: 10, MaxAgents: 2}, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	name := []byte("tenant-000000")
	for i := range longtest.Size(20_000, 100_000) {
		for at, n := len(name)-1, i; n > 0; at, n = at-1, n/10 {
			name[at] = byte('0' + n%10)
		}
		d := g.Approve(time.Duration(i), Request{Model: "m", Tenant: string(name), Agent: string(name[8:]), InputTokens: 1})
		if first, err := g.RecordUsage(time.Duration(i), d.Permit, Usage{}); !first || err != nil {
			t.Fatal(first, err)
		}
	}
	if len(g.changed) > 2000 || len(g.root.children) > 11 || len(g.permits.slots) != 1 || len(g.schedule) != 0 {
		t.Errorf("%d changed, %d tenants, %d slots, %d scheduled", len(g.changed), len(g.root.children), len(g.permits.slots), len(g.schedule))
	}
}

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
