package learn

import (
	"slices"
	"testing"
	"time"
)

func TestTheLengthsOfWindowsThatAreExpected(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Windows: []time.Duration{0, 70 * sec, time.Minute, 70 * sec, -1, 1}})
	if got, want := l.likely.configured(), []time.Duration{70 * sec, time.Minute, 1}; !slices.Equal(got, want) {
		t.Errorf("configured %v, want %v", got, want)
	}
	if got := l.likely.lengths(); len(got) != 3+len(usual) || !slices.Equal(got[3:], usual[:]) {
		t.Errorf("expected %v", got)
	}
	if got := New(Config{}).likely; !slices.Equal(got.lengths(), usual[:]) || got.configured() != nil || got.has(time.Minute) {
		t.Errorf("nothing is configured, and expected %v", got.lengths())
	}
}
