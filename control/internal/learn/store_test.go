package learn

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheUseOfAdvertisedLimits(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    provider
		want [3]Use // after ten attempts in ten seconds, half a window later, and a whole one
	}{
		{"a fixed window", provider{shape: fixed, units: 10, length: time.Minute, round: ms}, [3]Use{{10, 60 * sec}, {10, 60 * sec}, {0, 0}}},
		{"a sliding window", provider{shape: sliding, units: 10, length: time.Minute, round: ms}, [3]Use{{10, 60 * sec}, {10, 60 * sec}, {0, 0}}},
		{"a bucket", provider{shape: bucket, units: 10, length: time.Minute, round: ms, named: true}, [3]Use{{9, 0}, {4, 0}, {0, 0}}},
	} {
		l := New(Config{Ceiling: ms, Initial: ms, Slowest: time.Hour})
		now := time.Duration(0)
		for i := range 10 {
			now = time.Duration(i) * sec
			l.Sent(now, 1)
			f, _ := tt.p.arrives(now)
			l.Advertise(now, now+ms, false, f)
			l.Observe(Outcome{Sent: now, Now: now + ms, Class: Admitted, Estimate: 1, Cost: 1})
		}
		for i, want := range tt.want {
			at := now + 100*ms + time.Duration(i)*32*sec
			uses := l.Uses(at, nil)
			if len(uses) != 1 {
				t.Fatalf("%s: %d limits are in use", tt.name, len(uses))
			}
			got := uses[0]
			if wait := max(0, want.Free-at); math.Abs(got.Used-want.Used) > 1 || (max(0, got.Free-at)-wait).Abs() > sec {
				t.Errorf("%s: at %v %.1f are in use and room in %v, want %.0f and %v", tt.name, at, got.Used, got.Free-at, want.Used, wait)
			}
		}
	}
}

func TestWhichStoredStatesAreTaken(t *testing.T) {
	const day = 24 * time.Hour
	rate, window := Found{Kind: Rate, Size: 2, High: 3}, Found{Kind: Window, Size: 2, Window: sec}
	with := func(f Found, do func(*Found)) Stored { do(&f); return Stored{Found: []Found{f}} }
	for _, tt := range []struct {
		s    Stored
		want bool
	}{
		{Stored{}, true},
		{Stored{Found: []Found{rate, rate, window, window}}, true},
		{Stored{Found: []Found{rate, rate, window, window, rate}}, false},
		{Stored{Penalty: day}, true}, {Stored{Penalty: day + 1}, false}, {Stored{Penalty: -1}, false},
		{Stored{WaitUnit: 1}, true}, {Stored{WaitUnit: 1000}, true}, {Stored{WaitUnit: 2}, false}, {Stored{WaitUnit: -1}, false},
		{Stored{Trip: time.Minute}, true}, {Stored{Trip: time.Minute + 1}, false}, {Stored{Trip: -1}, false},
		{with(rate, func(f *Found) { f.Size = slowest }), true}, {with(rate, func(f *Found) { f.Size = 0.99 * slowest }), false},
		{with(rate, func(f *Found) { f.High = 1e15 }), true}, {with(rate, func(f *Found) { f.High = 1.01e15 }), false},
		{with(rate, func(f *Found) { f.High = 2 }), true}, {with(rate, func(f *Found) { f.High = 1.99 }), false},
		{with(rate, func(f *Found) { f.Confidence = 1 }), true}, {with(rate, func(f *Found) { f.Confidence = 1.01 }), false}, {with(rate, func(f *Found) { f.Confidence = -0.01 }), false},
		{with(window, func(f *Found) { f.Size = 1e15 }), true}, {with(window, func(f *Found) { f.Size = 1.01e15 }), false},
		{with(window, func(f *Found) { f.Window = 1 }), true}, {with(window, func(f *Found) { f.Window = 0 }), false},
		{with(window, func(f *Found) { f.Window = 2 * day }), true}, {with(window, func(f *Found) { f.Window = 2*day + 1 }), false},
		{with(window, func(f *Found) { f.Unit = 2 }), true}, {with(window, func(f *Found) { f.Unit = 3 }), false},
		{with(window, func(f *Found) { f.Kind = Unknown }), false}, {with(window, func(f *Found) { f.Kind = Flight }), true},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		err := l.Restore(tt.s, 5*ms)
		for _, bound := range []struct {
			broken bool
			text   string
		}{
			{len(tt.s.Found) > maxLimits, "5 limits are stored, must be at most 4"},
			{tt.s.Penalty > day || tt.s.Penalty < 0, "must be from 0 to 24h0m0s"},
			{tt.s.Trip > time.Minute || tt.s.Trip < 0, "must be from 0 to 1m0s"},
			{tt.s.WaitUnit == 2, "wait unit is 2, must be 0, 1 or 1000"},
		} {
			if bound.broken && (err == nil || !strings.Contains(err.Error(), bound.text)) {
				t.Errorf("%+v: %v, want %q", tt.s, err, bound.text)
			}
		}
		if (err == nil) != tt.want {
			t.Errorf("%+v: %v", tt.s, err)
		} else if err == nil {
			again := l.Store()
			if len(again.Found) != len(tt.s.Found) || again.Penalty != tt.s.Penalty || again.WaitUnit != tt.s.WaitUnit || again.Trip != tt.s.Trip || l.Interval() != 5*ms || l.meanLong != tt.s.Penalty || l.ramp.every != 5e6 {
				t.Errorf("%+v: restored %+v", tt.s, again)
			}
		} else if len(l.limits) > 0 || l.penalty.on() || l.Interval() != sec {
			t.Errorf("%+v was refused and changed the law", tt.s)
		}
	}
}

func TestWhatARestoredLawHolds(t *testing.T) {
	found := []Found{{Kind: Rate, Size: 0.5, High: 0.8}, {Kind: Flight, Size: 4.9}, {Kind: Window, Unit: 1, Size: 60, Window: time.Minute, Counted: true}, {Kind: Flight, Size: 0.5}}
	l := New(Config{Ceiling: 10 * ms, Initial: 1500 * ms, Slowest: time.Hour})
	if err := l.Restore(Stored{Found: found}, time.Hour); err != nil || l.Interval() != 1500*ms {
		t.Fatal(err, l.Interval())
	}
	if got, want := held(l), "0.67-0.80/s, 4 in flight, 60 of unit 1 in 60.0s-60.0s, 1 in flight"; got != want {
		t.Errorf("holds %q, want %q: no rate is slower than the initial interval", got, want)
	}
	if err := l.Resume(Stored{Found: found}, ms); err != nil || l.Interval() != 10*ms {
		t.Fatal(err, l.Interval())
	}
	if got, want := held(l), "0.50-0.80/s, 4 in flight, 60 of unit 1 in 60.0s-60.0s, 1 in flight"; got != want {
		t.Errorf("goes on with %q, want %q", got, want)
	}
	w, x := l.limits[2].(*window), l.limits[1].(*flight)
	if !w.counted || w.raise != 1 || w.testAfter != 1 || w.hits != sureHits || w.off != doubtUnit || w.slack != 0 || w.published || x.testAfter != firstTest {
		t.Errorf("%+v, %+v", w, x)
	}
	if l.penalty.length, l.named.unit, l.trip = time.Minute, 1000, 7e6; l.Assume(found) != nil {
		t.Fatal("not taken")
	}
	w, x = l.limits[2].(*window), l.limits[1].(*flight)
	if !w.published || w.slack != 600*ms || !math.IsInf(x.testAfter, 1) || l.penalty.length != time.Minute || l.named.unit != 1000 || l.trip != 7e6 || l.Interval() != 10*ms {
		t.Errorf("assumed %+v, %+v, a penalty of %v, waits in 1/%v s, %v", w, x, l.penalty.length, l.named.unit, l.Interval())
	}
	if !l.likely.has(time.Minute) {
		t.Error("blocks are not expected to end with a published window")
	}
	if err := l.Assume([]Found{{Kind: Window}}); err == nil {
		t.Error("an impossible limit is assumed")
	}
	l.limits, l.penalty.length = []limit{newWindow(0, amounts{9, 9, 0}, sec, sec, sec, sec, 1), &flight{size: 3}}, 30*time.Hour
	if s := l.Store(); len(s.Found) != 1 || s.Found[0].Kind != Flight || s.Penalty != 24*time.Hour {
		t.Errorf("stored %+v, want no guess and a day's penalty", s)
	}
}

// A member of a fleet goes on with what it knew when the server is away, long after the law was made.
func TestARestoredRateCountsFromTheFirstAttempt(t *testing.T) {
	l := New(Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Hour})
	if err := l.Restore(Stored{Found: []Found{{Kind: Rate, Size: 1, High: 1}}, Penalty: 8 * sec}, sec); err != nil {
		t.Fatal(err)
	}
	now := time.Hour
	send := func(class Class) {
		l.Sent(now, 1)
		l.Observe(Outcome{Sent: now, Now: now + 20*ms, Class: class, Estimate: 1})
	}
	for range 60 {
		send(Admitted)
		now += sec
	}
	send(Refused)
	now = l.Hold(now, 1)
	send(Admitted)
	if got := l.rate().low; got < 0.7 {
		t.Errorf("after a minute at one a second it goes on with %.3f", got)
	}
}

func TestTheLimitsThatAreShown(t *testing.T) {
	v := &view{now: time.Hour, latency: 1e9, mean: amounts{1, 4, 0}, h: &history{}}
	alike := func(since float64) *rate { // without a burst
		return &rate{low: 2, high: 3, stretch: 100, since: since, price: firstPrice, spaced: true, off: cycleRates{top: 0.01, mean: 0.5}}
	}
	mixed := alike(200)
	mixed.spaced = false
	sized := func(w window) *window { w.size, w.raise = amounts{60, 0, 0}, 1; return &w }
	for _, tt := range []struct {
		x    limit
		want Found
	}{
		{&rate{low: 2, high: 3}, Found{Kind: Rate, Size: 2, High: 3, Confidence: 0.5}},
		{&rate{low: 2, high: 5}, Found{Kind: Rate, Size: 2, High: 5}},
		{alike(99), Found{Kind: Rate, Size: 2, High: 3, Confidence: 0.5}},
		{alike(150), Found{Kind: Rate, Size: 2.5, High: 3, Confidence: 0.8}},
		{alike(200), Found{Kind: Rate, Size: 3, High: 3, Confidence: 1}},
		{alike(230), Found{Kind: Rate, Size: 3 * math.Exp(firstBeyond), High: 3 * math.Exp(firstBeyond), Confidence: 1}},
		{mixed, Found{Kind: Rate, Size: 2, High: 3, Confidence: 0.5}},
		{&flight{size: 7}, Found{Kind: Flight, Size: 7, Confidence: 0.8}},
		{sized(window{low: time.Minute, high: time.Minute}), Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 0.5}},
		{sized(window{low: time.Minute, high: time.Minute, hits: 4, counted: true}), Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 0.9, Counted: true}},
		{sized(window{low: 30 * sec, high: time.Minute, hits: 4, from: time.Hour}), Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 0.45}},
		{nil, Found{}},
	} {
		if got := found(v, tt.x); got != tt.want {
			t.Errorf("%+v is shown as %+v, want %+v", tt.x, got, tt.want)
		}
	}
	header := advertised{shaper: newShaper(fixed), name: "h", quota: 60, window: 90 * sec, at: 0, share: 1}
	for _, tt := range []struct {
		name   string
		limits []limit
		header func(*advertised)
		want   Found
	}{
		{"nothing", nil, nil, Found{}},
		{"what delays most", []limit{newRate(0, 2, 3), sized(window{low: time.Minute, high: time.Minute, hits: 4}), &flight{size: 4}}, nil, Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 0.9}},
		{"an advertised one", []limit{sized(window{low: time.Minute, high: time.Minute, hits: 4})}, func(*advertised) {}, Found{Kind: Window, Size: 60, Window: 90 * sec, Confidence: 1, Advertised: true, Name: "h"}},
		{"one that delays less", []limit{sized(window{low: time.Minute, high: time.Minute, hits: 4})}, func(a *advertised) { a.window = time.Minute }, Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 0.9}},
		{"the first of two that delay as much", []limit{sized(window{low: time.Minute, high: time.Minute, hits: 4}), sized(window{low: time.Minute, high: time.Minute, hits: 4, counted: true})}, nil, Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 0.9}},
		{"one whose resets say how long it is", nil, func(a *advertised) { a.window, a.resets = 0, known(time.Minute, 0) }, Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 1, Advertised: true, Name: "h"}},
		{"a bucket, whose resets do not", nil, func(a *advertised) {
			a.shaper = newShaper(bucket)
			a.slow, a.window, a.resets = 0.1, 0, known(time.Minute, 0)
		}, Found{Kind: Window, Size: 60, Confidence: 1, Advertised: true, Name: "h", Refills: true}},
		{"a sliding one that is uncertain", nil, func(a *advertised) { a.shaper = newShaper(sliding); a.wrong = 1 }, Found{Kind: Window, Size: 60, Window: 90 * sec, Confidence: 0.5, Advertised: true, Name: "h", Slides: true}},
		{"a bucket", nil, func(a *advertised) { a.shaper = newShaper(bucket); a.slow = 0.1 }, Found{Kind: Window, Size: 60, Window: 90 * sec, Confidence: 1, Advertised: true, Name: "h", Refills: true}},
	} {
		l := &Law{limits: tt.limits, clock: time.Hour, view: view{latency: 1e9, mean: amounts{1, 1, 0}}}
		if tt.header != nil {
			a := header
			tt.header(&a)
			l.headers = []advertised{a}
		}
		if got := l.Binding(); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
		if got := l.Limits(nil); len(got) != len(l.limits)+len(l.headers) || len(l.Uses(0, nil)) != len(got) {
			t.Errorf("%s: %d limits and %d uses are shown", tt.name, len(got), len(l.Uses(0, nil)))
		}
		if len(l.headers) > 0 {
			if l.headers[0].at = -1; len(l.Limits(nil)) != len(l.limits) || len(l.Uses(0, nil)) != len(l.limits) {
				t.Errorf("%s: it is shown before a response", tt.name)
			}
			if l.headers[0].at, l.headers[0].gone = 0, true; len(l.Limits(nil)) != len(l.limits) || len(l.Uses(0, nil)) != len(l.limits) {
				t.Errorf("%s: it is shown when it is gone", tt.name)
			}
		}
	}
	for _, tt := range []struct {
		name string
		do   func(*advertised)
		used float64
		free time.Duration // from 100 s on, for one of cost 4
	}{
		{"half of it", func(a *advertised) { a.left, a.spent = 40, 10 }, 30, 0},
		{"all", func(a *advertised) { a.left, a.spent = 10, 10 }, 60, 20 * sec},
		{"all but the last", func(a *advertised) { a.left, a.spent = 11, 10 }, 59, 0},
		{"more than all", func(a *advertised) { a.left, a.spent = 0, 10 }, 60, 20 * sec},
		{"less than nothing", func(a *advertised) { a.left = 70 }, 0, 0},
		{"of cost, what does not fit", func(a *advertised) { a.left, a.perCost = 3, true }, 57, 20 * sec},
		{"of an unknown size", func(a *advertised) { a.quota = 0 }, -1, 0},
		{"it is over", func(a *advertised) { a.whole, a.left = 100*sec, 20 }, 0, 0},
		{"nobody says when it is over", func(a *advertised) { a.whole, a.left, a.at = 110*sec, 20, 110*sec }, 0, 0},
		{"a bucket refills", func(a *advertised) { a.shape, a.left, a.slow = bucket, 10, 2 }, 30, 0},
		{"an empty one does", func(a *advertised) { a.shape, a.left, a.slow, a.at = bucket, 0, 0.5, 100*sec }, 60, 2 * sec},
		{"of which no rate is known", func(a *advertised) { a.shape, a.left = bucket, 0 }, 60, 20 * sec},
		{"a sliding one, with others", func(a *advertised) { a.shape, a.resets, a.others, a.window = sliding, known(10*sec, 0), 5, 10*sec }, 15, 0},
		{"a full one", func(a *advertised) { a.shape, a.resets, a.others, a.window = sliding, known(10*sec, 0), 50, 10*sec }, 60, sec + 10*ms},
		{"one of which no reset is known", func(a *advertised) { a.shape, a.left = sliding, 20 }, 40, 0},
	} {
		a := header
		a.at, a.whole, a.left = 90*sec, 120*sec, 60
		tt.do(&a)
		u := a.use(&view{now: 100 * sec, h: sentEvenly(100*sec, sec, 100), mean: amounts{1, 4, 0}})
		if math.Abs(u.Used-tt.used) > 1e-6 || (max(0, u.Free-100*sec)-tt.free).Abs() > ms {
			t.Errorf("%s: %.2f in use, free in %v, want %v and %v", tt.name, u.Used, u.Free-100*sec, tt.used, tt.free)
		}
	}
}

func TestTheIntervalThatIsReported(t *testing.T) {
	minute := func(n float64) *window {
		return &window{size: amounts{n, 0, 0}, low: time.Minute, high: time.Minute, raise: 1}
	}
	header := []advertised{{shaper: newShaper(fixed), quota: 30, window: time.Minute}}
	for _, tt := range []struct {
		name    string
		state   state
		limits  []limit
		headers []advertised
		shown   time.Duration
		o       Outcome
		want    time.Duration
	}{
		{"nothing is known", ramping, nil, nil, sec, Outcome{Class: Admitted}, 700 * ms},
		{"only a success shortens it", ramping, nil, nil, sec, Outcome{Class: Failed}, sec},
		{"that may speed up", ramping, nil, nil, sec, Outcome{Class: Admitted, Steady: true}, sec},
		{"a window", holding, []limit{minute(10)}, nil, sec, Outcome{Class: Failed}, 6 * sec},
		{"of much", holding, []limit{minute(600)}, nil, sec, Outcome{Class: Admitted}, 100 * ms},
		{"of much, before an answer", starting, []limit{minute(600)}, nil, ms, Outcome{Class: Lost}, 700 * ms},
		{"of much, in the ramp", ramping, []limit{minute(600)}, nil, sec, Outcome{Class: Admitted}, 700 * ms},
		{"the longer one", holding, []limit{minute(600), minute(20), minute(60)}, nil, sec, Outcome{Class: Admitted}, 3 * sec},
		{"an advertised one", holding, []limit{minute(600)}, header, sec, Outcome{Class: Admitted}, 2 * sec},
		{"an advertised one alone", holding, nil, []advertised{{shaper: newShaper(fixed), quota: 600, window: time.Minute}}, sec, Outcome{Class: Admitted}, 700 * ms},
		{"no longer than the longest", holding, []limit{minute(1e-3)}, nil, sec, Outcome{Class: Failed}, time.Minute},
		{"no shorter than the ceiling", holding, []limit{minute(1e6)}, nil, sec, Outcome{Class: Admitted}, 10 * ms},
	} {
		l := New(Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Minute})
		l.h, l.clock, l.state, l.limits, l.headers, l.shown, l.flying = *sentEvenly(100*sec, time.Hour, 1), 100*sec, tt.state, tt.limits, slices.Clone(tt.headers), tt.shown, 1
		l.ramp = ramp{every: 7e8, at: 100 * sec}
		tt.o.Sent, tt.o.Now = 100*sec, 100*sec
		if l.Observe(tt.o); l.Interval() != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, l.Interval(), tt.want)
		}
	}
}

func TestTheUseOfHeldLimits(t *testing.T) {
	now := 100 * sec
	l := New(Config{Ceiling: ms, Initial: ms, Slowest: time.Hour})
	l.h, l.clock, l.last, l.flying = *sentEvenly(now, sec, 10), now, now, 3
	w := &window{low: 60 * sec, high: 60 * sec, raise: 1, hits: 9}
	w.size = amounts{10, 10, 0}
	r := newRate(now, 0.5, 0.5)
	l.limits = []limit{w, &flight{size: 3}, &flight{size: 4}, r}
	for _, tt := range []struct {
		at   time.Duration
		want []Use
	}{
		{now, []Use{{10, 151 * sec}, {3, never}, {3, now}, {-1, 102 * sec}}},
		{now + 55*sec, []Use{{5, now + 55*sec}, {3, never}, {3, now + 55*sec}, {-1, now + 55*sec}}},
	} {
		got := l.Uses(tt.at, nil)
		for i := range tt.want {
			if math.Abs(got[i].Used-tt.want[i].Used) > 1 || (got[i].Used < 0 || tt.want[i].Used < 0) && got[i].Used != tt.want[i].Used || (got[i].Free-tt.want[i].Free).Abs() > sec {
				t.Errorf("at %v limit %d: %+v, want %+v", tt.at, i, got[i], tt.want[i])
			}
		}
	}
	if held := l.Limits(nil); len(held) != len(l.Uses(now, nil)) {
		t.Errorf("uses of %d limits", len(held))
	}
}

// Work is the time of a response beyond the round trip.
func TestAWarmStartMeasuresWorkAsBefore(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: ms, Slowest: time.Hour})
	if err := l.Restore(Stored{Found: []Found{{Kind: Window, Unit: uint8(busy), Size: 0.08, Window: 10 * sec}}, Trip: 90 * ms}, ms); err != nil {
		t.Fatal(err)
	}
	n, now := 0, time.Duration(0)
	for ; now < 100*sec; n++ {
		now = l.Hold(now, 1)
		l.Sent(now, 1)
		now += 100 * ms
		l.Observe(Outcome{Sent: now - 100*ms, Now: now, Class: Admitted})
	}
	if n < 70 || n > 120 { // it is tested, too
		t.Errorf("%d attempts in 100 s, want 80 or some more: each works for 10 ms", n)
	}
	if got := l.Store().Trip; got != 90*ms {
		t.Errorf("a trip of %v is stored", got)
	}
}
