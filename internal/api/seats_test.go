package api

import (
	"fmt"
	"slices"
	"testing"
)

func TestNobodyKeepsOthersOutOfTheStreams(t *testing.T) {
	var s seats
	taken := func(c Caller) (n int) {
		for s.take(c, 16) {
			n++
		}
		return n
	}
	var got []int
	callers := []Caller{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "d"}, {ID: "ops", Role: Admin}}
	for _, c := range callers {
		got = append(got, taken(c))
	}
	if fmt.Sprint(got) != "[4 4 4 2 2]" {
		t.Errorf("they got %v of 16", got)
	}
	for i, c := range callers {
		for range got[i] {
			s.leave(c)
		}
	}
	if s.all != 0 || s.guests != 0 || len(s.taken) != 0 {
		t.Errorf("after all left: %d, %d, %v", s.all, s.guests, s.taken)
	}
	if n := taken(Caller{ID: "ops", Role: Admin}); n != 16 {
		t.Errorf("an admin alone got %d of 16", n)
	}
	var one seats
	if !one.take(Caller{ID: "a"}, 1) || one.take(Caller{ID: "a"}, 1) {
		t.Error("of one stream, the first caller gets one")
	}
}

// Routes are all methods with their paths, in order.
func (a *API) Routes() (all []string) {
	for path, methods := range a.routes() {
		for method := range methods {
			all = append(all, method+" "+path)
		}
	}
	slices.Sort(all)
	return all
}
