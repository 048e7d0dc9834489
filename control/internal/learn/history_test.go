package learn

import (
	"math"
	"testing"
	"time"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

func TestHistoryKnowsWhatWasSentInAnyStretch(t *testing.T) {
	for _, tt := range []struct {
		every  time.Duration
		n      int
		length time.Duration
		want   float64
		near   float64 // part of it
	}{
		{sec, 100, 10 * sec, 10, 0},
		{sec, 100, 200 * sec, 100, 0},
		{100 * ms, 5000, 10 * sec, 100, 0.03},
		{100 * ms, 5000, 400 * sec, 4000, 0.03},
		{10 * ms, 300_000, 600 * sec, 60_000, 0.03},
		{10 * ms, 300_000, sec, 100, 0.03},
		{10 * ms, 300_000, 3000 * sec, 300_000, 0.001},
	} {
		var h history
		now := time.Duration(0)
		for range tt.n {
			now += tt.every
			h.add(now, amounts{1, 2, 0.5})
		}
		for u, per := range (amounts{1, 2, 0.5}) {
			if got := h.used(unit(u), now, tt.length); math.Abs(got/per-tt.want) > tt.near*tt.want+1e-9 {
				t.Errorf("every %v: %v of unit %d in %v, want %v", tt.every, got, u, tt.length, tt.want*per)
			}
		}
		from := h.newest(attempts, now, tt.want)
		if want := now - time.Duration(tt.want-1)*tt.every; math.Abs(float64(from-want)) > tt.near*float64(tt.length)+1 {
			t.Errorf("every %v: the newest %v began at %v, want %v", tt.every, tt.want, from, want)
		}
		if len(h.at) > maxCells {
			t.Errorf("%d cells", len(h.at))
		}
	}
}
