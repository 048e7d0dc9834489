package sim

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever is planned and taken in whatever turn, what is taken is the
// earliest, and of one instant what was planned first.
func TestAgendaIsInOrderOfInstantsAndThenOfPlanning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a agenda
		var want []event // sorted by instant, stably
		for i := range rapid.IntRange(1, 300).Draw(t, "steps") {
			if len(want) > 0 && rapid.Bool().Draw(t, "take") {
				got, ok := a.next()
				if !ok || got.ref != want[0].ref || got.at != want[0].at {
					t.Fatalf("took %+v %v, want %+v", got, ok, want[0])
				}
				want = want[1:]
				continue
			}
			e := event{at: time.Duration(rapid.IntRange(0, 9).Draw(t, "at")), ref: uint32(i)}
			a.plan(e)
			at, _ := slices.BinarySearchFunc(want, e.at+1, func(w event, at time.Duration) int { return int(w.at - at) })
			want = slices.Insert(want, at, e)
		}
		for _, w := range want {
			if got, ok := a.next(); !ok || got.ref != w.ref {
				t.Fatalf("took %+v %v, want %+v", got, ok, w)
			}
		}
		if e, ok := a.next(); ok {
			t.Fatalf("took %+v from an empty agenda", e)
		}
	})
}
