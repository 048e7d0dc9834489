package learn

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAClockWindowIsFoundInTheBlocksThatItEnds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		admits func(time.Duration) bool
		length time.Duration // 0: none
		size   float64
	}{
		{"a minute of the clock", fixedOf(200, time.Minute, false), time.Minute, 200},
		{"a bucket ends its blocks at no fixed instants", bucketAt(7, 10), 0, 0},
		{"nor does a sliding window that is used evenly", slidingOf(100, 14*sec), 0, 0},
	} {
		h, blocks := played(4*time.Minute, wavering, tt.admits)
		var s spans
		var found clockWindow
		for i := range blocks[:min(len(blocks), 5)] {
			s.add(&blocks[i], 1)
			if p, ok := s.clockWindow(&view{now: blocks[i].release, h: h, mean: amounts{1, 1, 0}}); ok {
				found = p
			}
		}
		if math.Abs(float64(found.length-tt.length)) > 0.1*float64(tt.length) || math.Abs(found.size-tt.size) > 0.03*tt.size || found.slides {
			t.Errorf("%s: %+v in %d blocks", tt.name, found, len(blocks))
		}
	}
}

// Three minutes of the clock in which 100 attempts were admitted after 10 s, one was refused
// after 50 s, a canary after 59 s, and one admitted half a second after the end.
func TestBlocksThatAPeriodExplains(t *testing.T) {
	later := func(s *spans, by time.Duration) {
		for i := range s.n {
			s.ring[i].high += by
		}
	}
	brackets := func(s *spans, width time.Duration) { // of the ends of the blocks, which begin earlier
		for i := range s.n {
			x := &s.ring[i]
			x.refused, x.low = x.refused-30*sec, x.high-width
		}
	}
	for _, tt := range []struct {
		name   string
		do     func(s *spans, sent map[time.Duration]float64)
		length time.Duration
		size   float64 // 0: it does not
		slides bool
		now    time.Duration
	}{
		{"a minute of the clock", nil, time.Minute, 100, false, 0},
		{"half a minute", nil, 30 * sec, 0, false, 0},
		{"which a sliding one explains too", func(_ *spans, sent map[time.Duration]float64) {
			for k := range time.Duration(3) {
				delete(sent, k*60*sec+10*sec)
				sent[k*60*sec+sec] = 100
			}
		}, time.Minute, 100, true, 0},
		{"one says nothing", func(s *spans, _ map[time.Duration]float64) { s.n = 1 }, time.Minute, 0, false, 0},
		{"a block that is as long as the period", func(s *spans, _ map[time.Duration]float64) { s.ring[1].refused = 59 * sec }, time.Minute, 0, false, 0},
		{"a release that is at no beginning", func(s *spans, _ map[time.Duration]float64) { s.ring[1].low, s.ring[1].high = 115*sec, 118900*ms }, time.Minute, 0, false, 0},
		{"a second before one is near enough", func(s *spans, _ map[time.Duration]float64) { s.ring[1].low, s.ring[1].high = 115*sec, 119100*ms }, time.Minute, 100, false, 0},
		{"a second after one, too", func(s *spans, _ map[time.Duration]float64) { s.ring[1].low, s.ring[1].high = 120900*ms, 122*sec }, time.Minute, 100, false, 0},
		{"more than that is not", func(s *spans, _ map[time.Duration]float64) { s.ring[1].low, s.ring[1].high = 121*sec, 122*sec }, time.Minute, 0, false, 0},
		{"two short blocks, which a rate explains", func(s *spans, _ map[time.Duration]float64) { s.ring[0].refused, s.ring[1].refused = 176*sec, 116*sec }, time.Minute, 0, false, 0},
		{"one", func(s *spans, _ map[time.Duration]float64) { s.ring[1].refused = 116 * sec }, time.Minute, 100, false, 0},
		{"about as many each time", func(_ *spans, sent map[time.Duration]float64) { sent[70*sec] = 97 }, time.Minute, 100, false, 0},
		{"different numbers", func(_ *spans, sent map[time.Duration]float64) { sent[70*sec] = 96 }, time.Minute, 0, false, 0},
		{"of few one more or less", func(_ *spans, sent map[time.Duration]float64) { sent[10*sec], sent[70*sec], sent[130*sec] = 10, 9, 10 }, time.Minute, 10, false, 0},
		{"of few two more or less", func(_ *spans, sent map[time.Duration]float64) { sent[10*sec], sent[70*sec], sent[130*sec] = 10, 8, 10 }, time.Minute, 0, false, 0},
		{"one at a time is a rate", func(_ *spans, sent map[time.Duration]float64) { sent[10*sec], sent[70*sec], sent[130*sec] = 1, 1, 1 }, time.Minute, 0, false, 0},
		{"two at a time", func(_ *spans, sent map[time.Duration]float64) { sent[10*sec], sent[70*sec], sent[130*sec] = 2, 2, 2 }, time.Minute, 2, false, 0},
		{"some more were admitted in another minute", func(_ *spans, sent map[time.Duration]float64) { sent[-50*sec] = 104 }, time.Minute, 100, false, 0},
		{"more than that", func(_ *spans, sent map[time.Duration]float64) { sent[-50*sec] = 105 }, time.Minute, 0, false, 0},
		{"the present minute is not over", func(_ *spans, sent map[time.Duration]float64) { sent[190*sec] = 300 }, time.Minute, 100, false, 200 * sec},
		{"the one before is", func(_ *spans, sent map[time.Duration]float64) { sent[190*sec] = 300 }, time.Minute, 0, false, 250 * sec},
		{"at its last instant, too", func(_ *spans, sent map[time.Duration]float64) { sent[240*sec-1] = 300 }, time.Minute, 0, false, 250 * sec},
		{"at the instant when a minute begins, too", func(_ *spans, sent map[time.Duration]float64) {
			for k := range time.Duration(3) {
				delete(sent, k*60*sec+10*sec)
				sent[k*60*sec] = 100
			}
		}, time.Minute, 100, true, 0},
		{"not just before that", func(_ *spans, sent map[time.Duration]float64) { sent[60*sec-1], sent[120*sec-1] = 2, 2 }, time.Minute, 100, false, 0},
		{"more in another one from its beginning on", func(_ *spans, sent map[time.Duration]float64) { sent[-60*sec] = 105 }, time.Minute, 0, false, 0},
		{"no more than fit, with those just before it", func(_ *spans, sent map[time.Duration]float64) { sent[-60*sec-1], sent[-50*sec] = 50, 60 }, time.Minute, 100, false, 0},
		{"of the newest twenty minutes", func(_ *spans, sent map[time.Duration]float64) { sent[-1010*sec] = 105 }, time.Minute, 0, false, 0},
		{"of earlier ones nothing has to be known", func(_ *spans, sent map[time.Duration]float64) { sent[-1070*sec] = 105 }, time.Minute, 100, false, 0},
		{"two blocks that may have ended in half a minute of the clock", func(s *spans, _ map[time.Duration]float64) { later(s, sec); brackets(s, 26*sec); s.n = 2 }, time.Minute, 0, false, 0},
		{"in three tenths of it", func(s *spans, _ map[time.Duration]float64) { later(s, sec); brackets(s, 16900*ms); s.n = 2 }, time.Minute, 100, false, 0},
		{"and a third one in all of it", func(s *spans, _ map[time.Duration]float64) {
			later(s, sec)
			brackets(s, 16900*ms)
			s.ring[0].refused, s.ring[0].low = 90*sec, 91500*ms
		}, time.Minute, 100, false, 0},
		{"a sliding one of as many as one block had fewer of does not", func(_ *spans, sent map[time.Duration]float64) {
			for k := range time.Duration(3) {
				delete(sent, k*60*sec+10*sec)
				sent[k*60*sec+sec] = 100
			}
			sent[61*sec] = 97
		}, time.Minute, 100, false, 0},
		{"a sliding one may end a twentieth later", func(_ *spans, sent map[time.Duration]float64) {
			for k := range time.Duration(3) {
				delete(sent, k*60*sec+10*sec)
				sent[k*60*sec+3499*ms] = 100
			}
		}, time.Minute, 100, true, 0},
		{"not more", func(_ *spans, sent map[time.Duration]float64) {
			for k := range time.Duration(3) {
				delete(sent, k*60*sec+10*sec)
				sent[k*60*sec+3500*ms] = 100
			}
		}, time.Minute, 100, false, 0},
		{"at its end it is the next", func(_ *spans, sent map[time.Duration]float64) { sent[240*sec] = 300 }, time.Minute, 100, false, 250 * sec},
	} {
		var s spans
		sent := make(map[time.Duration]float64)
		for k := range time.Duration(3) {
			s.add(&block{began: k*60*sec + 50*sec, lastRefused: k*60*sec + 59*sec, release: k*60*sec + 60500*ms}, 1)
			sent[k*60*sec+10*sec] = 100
		}
		if tt.do != nil {
			tt.do(&s, sent)
		}
		h := &history{}
		for _, at := range slices.Sorted(maps.Keys(sent)) {
			h.add(at, amounts{sent[at], 0, 0})
		}
		// A history counts from instant 0 on.
		v := &view{now: max(tt.now, s.ring[0].high), h: h, mean: amounts{1, 1, 0}}
		p, ok := s.match(v, tt.length)
		if ok != (tt.size > 0) || ok && (p.size != tt.size || p.slides != tt.slides) {
			t.Errorf("%s: %v, %+v; want %v, slides %v", tt.name, ok, p, tt.size, tt.slides)
		}
	}
	minute := New(Config{Ceiling: 1, Initial: 1, Windows: []time.Duration{time.Minute}}).likely
	for _, tt := range []struct {
		name    string
		blocks  int
		refused [2]time.Duration // of the newest two, when they began
		want    bool
	}{
		{"of a configured length two blocks are enough", 2, [2]time.Duration{170 * sec, 110 * sec}, true},
		{"also if one of them was short", 2, [2]time.Duration{176 * sec, 110 * sec}, true},
		{"not if both were", 2, [2]time.Duration{176 * sec, 116 * sec}, false},
		{"nor is one", 1, [2]time.Duration{170 * sec, 110 * sec}, false},
	} {
		s := spans{n: tt.blocks}
		h := &history{}
		for i := range 3 {
			from := time.Duration(2-i) * 60 * sec
			s.ring[i] = span{from + 50*sec, from + 59*sec, from + 60500*ms, 1}
			h.add(time.Duration(i)*60*sec+10*sec, amounts{100, 0, 0})
		}
		s.ring[0].refused, s.ring[1].refused = tt.refused[0], tt.refused[1]
		if _, ok := s.match(&view{now: s.ring[0].high, h: h, likely: minute}, time.Minute); ok != tt.want {
			t.Errorf("%s: %v", tt.name, ok)
		}
	}
}

func TestTheNewestBlocksAreKnown(t *testing.T) {
	var s spans
	for i := range 7 {
		if s.add(&block{}, 0); s.n != min(i+1, 5) {
			t.Errorf("of %d blocks %d are known, want at most 5", i+1, s.n)
		}
	}
}

func TestWhatIsInUseOfAWindowThatIsCountedInPeriods(t *testing.T) {
	h := sentEvenly(30*sec, sec, 30)
	for _, tt := range []struct {
		t, from time.Duration
		refused time.Duration
		weight  float64
		want    float64 // of ten seconds each, with three refusals at an instant
	}{
		{25 * sec, 0, 0, 0, 6 + 5}, {20 * sec, 0, 0, 0, 1 + 10}, {29 * sec, 0, 0, 0, 10 + 1}, {25 * sec, 5 * sec, 0, 0, 1 + 10}, {24 * sec, 5 * sec, 0, 0, 10 + 1},
		{25 * sec, 0, 22 * sec, 1, 6 + 5 + 3}, {25 * sec, 0, 22 * sec, 0, 6 + 5}, {25 * sec, 0, 12 * sec, 1, 6 + 5 + 1.5}, {25 * sec, 0, 25 * sec, 1, 6 + 5},
		{25 * sec, 0, 20 * sec, 1, 6 + 5 + 3}, {25 * sec, 0, 10 * sec, 1, 6 + 5 + 1.5}, {25 * sec, 0, 20*sec - 1, 1, 6 + 5 + 1.5}, {25 * sec, 0, 10*sec - 1, 1, 6 + 5}, {25 * sec, 0, 26 * sec, 1, 6 + 5},
	} {
		var s spans
		s.add(&block{began: tt.refused}, 3)
		if got := s.counter(&view{h: h}, tt.t, tt.from, 10*sec, tt.weight); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// A thousand in 10 s, all at 1 s: refused at 5 s, again until 10.04 s, but not at 10.2 s. At
// 12 s 400 more, and at 14 s one is refused.
func TestAWindowThatIsCountedInPeriodsExplainsARefusal(t *testing.T) {
	for _, tt := range []struct {
		name      string
		sent      map[time.Duration]float64
		x         span
		began     time.Duration
		at        time.Duration
		low, high time.Duration // of the lengths that are tried
		size      float64       // 0: it does not
	}{
		{"from the first attempt on", nil, span{}, 0, 0, 0, 0, 1000},
		{"from the release before", nil, span{}, -3 * sec, 0, 0, 0, 1000},
		{"with the clock", nil, span{}, 500 * ms, 0, 0, 0, 1000},
		{"no other beginning", nil, span{}, -13 * sec, 0, 0, 0, 1000},
		{"one more", map[time.Duration]float64{12 * sec: 401}, span{}, 0, 0, 0, 0, 1000},
		{"two more", map[time.Duration]float64{12 * sec: 402}, span{}, 0, 0, 0, 0, 0},
		{"one less", map[time.Duration]float64{12 * sec: 399}, span{}, 0, 0, 0, 0, 0},
		{"soon after the block", nil, span{refused: 13100 * ms}, 0, 0, 0, 0, 0},
		{"long after it", map[time.Duration]float64{12 * sec: 0, 22 * sec: 1000}, span{}, 0, 25100 * ms, 0, 0, 0},
		{"just not", map[time.Duration]float64{12 * sec: 0, 22 * sec: 1000}, span{}, 0, 25 * sec, 0, 0, 1000},
		{"in use at the release", map[time.Duration]float64{10100 * ms: 21, 12 * sec: 379}, span{}, 0, 0, 0, 0, 0},
		{"just not in use then", map[time.Duration]float64{10100 * ms: 20, 12 * sec: 380}, span{}, 0, 0, 0, 0, 1000},
		{"not in use at a refused canary", nil, span{low: 10010 * ms}, 0, 0, 0, 0, 0},
		{"just in use then", nil, span{low: 10009 * ms}, 0, 0, 0, 0, 1000},
		{"refused attempts count", map[time.Duration]float64{12 * sec: 397}, span{refusals: 5}, 0, 0, 0, 0, 1000},
		{"lengths to ten seconds", nil, span{}, 0, 0, sec, 10 * sec, 1000},
		{"shorter ones", nil, span{}, 0, 0, sec, 10*sec - 1, 0},
		{"from ten seconds on", nil, span{}, 0, 0, 10 * sec, time.Hour, 1000},
		{"longer ones", nil, span{}, 0, 0, 10*sec + 1, time.Hour, 0},
		{"from the release before, and with no clock", nil, span{}, -3 * sec, 0, 0, 0, 1000},
		{"from the release before, if that block is known", nil, span{}, -3 * sec, 0, 0, 0, 0},
		{"just long enough after the refusal before", map[time.Duration]float64{13500 * ms: 100}, span{refused: 13 * sec, low: 13004 * ms}, 0, 0, 0, 0, 1100},
		{"too soon after it", map[time.Duration]float64{13500 * ms: 90}, span{refused: 13100 * ms, low: 13104 * ms}, 0, 0, 0, 0, 0},
		{"five hundred are enough for one block", map[time.Duration]float64{sec: 500, 12 * sec: 200}, span{}, 0, 0, 0, 0, 500},
		{"three hundred are too few", map[time.Duration]float64{sec: 300, 12 * sec: 120}, span{}, 0, 0, 0, 0, 0},
		{"a hundred are too few for one block", map[time.Duration]float64{sec: 100, 12 * sec: 40}, span{low: 10001 * ms}, 0, 0, 0, 0, 0},
	} {
		sent := map[time.Duration]float64{sec: 1000, 12 * sec: 400}
		maps.Copy(sent, tt.sent)
		h := &history{}
		for _, at := range slices.Sorted(maps.Keys(sent)) {
			if sent[at] > 0 {
				h.add(at, amounts{sent[at], 0, 0})
			}
		}
		var s spans
		s.add(&block{release: 0}, 0)
		s.add(&block{}, 0)
		s.ring[0] = span{cmp.Or(tt.x.refused, 5*sec), cmp.Or(tt.x.low, 10004*ms), cmp.Or(tt.x.low, 10*sec).Truncate(100*ms) + 200*ms, tt.x.refusals}
		v := &view{now: 14 * sec, h: h}
		if strings.HasPrefix(tt.name, "from the release before, ") {
			v.phase = 4 * sec
			if tt.size == 0 {
				s.n = 1
			}
		}
		length, size, ok := s.counted(v, 1, tt.began, cmp.Or(tt.at, 14*sec), cmp.Or(tt.low, sec), cmp.Or(tt.high, time.Hour))
		if ok != (tt.size > 0) || ok && (length != 10*sec || size != tt.size) {
			t.Errorf("%s: %v, %v in %v; want %v", tt.name, ok, size, length, tt.size)
		}
		if _, _, ok := s.counted(v, 3, tt.began, 14*sec, sec, time.Hour); ok {
			t.Errorf("%s: two blocks count for three", tt.name)
		}
	}
}
