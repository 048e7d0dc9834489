package quota

import (
	"slices"
	"testing"
)

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
