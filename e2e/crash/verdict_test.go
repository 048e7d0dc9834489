//go:build unix

package crash_test

import (
	"slices"
	"testing"

	"github.com/headway-go/headway/collect"
)

// committed checks what a killed process leaves: whatever is committed is on
// disk once, as the provider has or had it; whatever stands before a stored
// cursor is there or owed. Changing says that the provider changed while the
// steady lane walked, so that the newest version need not be there yet.
func (w place) committed(t *testing.T, changing bool) held {
	t.Helper()
	h, want := w.look(t), w.p.truth()
	h.genuine(t, want)
	h.accounted(t, want)
	for kind, lane := range h.lanes {
		if kind != collect.Catchup && changing {
			continue
		}
		for i, id := range want.order[:h.before(t, lane, want)] {
			versions := want.conversations[id]
			if last := versions[len(versions)-1]; kind == collect.Steady && last.UpdatedAt < lane.Since {
				continue // not in this walk
			} else if kind == collect.Steady && !slices.Contains(h.conversations[id], last) {
				t.Errorf("the %s cursor is past conversation %d, whose newest version is not there", kind, i)
			}
			if len(h.conversations[id]) == 0 {
				t.Errorf("the %s cursor is past conversation %d, which is not there", kind, i)
			}
			if _, known := h.known[id]; !known {
				t.Errorf("the %s cursor is past conversation %d, which the store does not know", kind, i)
			}
		}
	}
	return h
}

// before is how many conversations stand before a lane's cursor.
func (h held) before(t *testing.T, lane collect.Lane, want truth) int {
	t.Helper()
	switch {
	case lane.Walking && lane.Cursor == "":
		return 0
	case lane.Walking:
		n, err := number(lane.Cursor)
		if err != nil {
			t.Fatal(err)
		}
		return n + 1
	case lane.Done && lane.Kind == collect.Catchup:
		n := 0 // those that there were then
		for _, id := range want.order {
			if len(h.conversations[id]) == 0 {
				break
			}
			n++
		}
		if n < len(want.order)-1 { // one is added later
			t.Errorf("the walk is done and conversation %d of %d is not there", n, len(want.order))
		}
		return n
	}
	return 0
}

// genuine fails for records that the provider never had, and for those that are
// there twice.
func (h held) genuine(t *testing.T, want truth) {
	t.Helper()
	truths := map[string]map[string]versions{"conversations": want.conversations, "messages": want.messages}
	for stream, all := range h.streams() {
		for id, got := range all {
			for i, r := range got {
				if !slices.Contains(truths[stream][id], r) {
					t.Errorf("%s: %s is there as the provider never had it: %+v", stream, id, r)
				}
				if slices.Contains(got[:i], r) {
					t.Errorf("%s: %s is there twice", stream, id)
				}
			}
		}
	}
}

// accounted fails for each conversation whose messages are neither there nor
// owed: what the store knows was delivered or is on record.
func (h held) accounted(t *testing.T, want truth) {
	t.Helper()
	tail := h.gaps[""]
	open := tail.Backlog && tail.Status != collect.GapRecovered
	for id, item := range h.known {
		g, found := h.gaps[id]
		backlog := item.Owed && open
		owed := backlog || (found && g.Status != collect.GapRecovered)
		if item.Owed && !backlog {
			t.Errorf("%s is owed through a backlog that is not on record", id)
		}
		if len(h.conversations[id]) == 0 {
			t.Errorf("%s is known to the store and not there", id)
		}
		if owed {
			continue
		}
		if want.gone[id] {
			t.Errorf("%s is neither owed nor to be had: its gap is forgotten: %+v", id, g)
		}
		if len(h.messages[id+"-m0"]) == 0 || len(h.messages[id+"-m1"]) == 0 || len(h.messages[id+"-m2"]) == 0 {
			t.Errorf("%s is not owed and its messages are not all there", id)
		}
	}
}

// owes fails unless exactly these are owed, or were given up and are on record.
func (h held) owes(t *testing.T, ids map[string]bool) {
	t.Helper()
	for id, yes := range ids {
		if g, found := h.gaps[id]; yes && (!found || g.Status == collect.GapRecovered) {
			t.Errorf("%s cannot be had and no gap says so: %+v", id, g)
		}
	}
	for id, g := range h.gaps {
		if g.Status == collect.GapLeased {
			t.Errorf("the gap of %q is leased, and nobody runs", id)
		}
		if !ids[id] && g.Status != collect.GapRecovered {
			t.Errorf("the gap of %q is %s, and nothing is missing there: %+v", id, g.Status, g)
		}
	}
}

// complete checks a collection that has come to its end: all that can be had is
// there in its newest version, and nothing is owed but what cannot be had.
// Every says that each version was there to be collected, so that a sink with
// history has to have it.
func (w place) complete(t *testing.T, every bool) held {
	t.Helper()
	h, want := w.look(t), w.p.truth()
	h.genuine(t, want)
	h.accounted(t, want)
	h.owes(t, want.gone)
	if h.tail {
		t.Error("more is on disk than was committed, and the run has ended")
	}
	truths := map[string]map[string]versions{"conversations": want.conversations, "messages": want.messages}
	for stream, all := range truths {
		got := h.streams()[stream]
		for id, versions := range all {
			must := versions[len(versions)-1:]
			if every && w.sink == jsonlSink && (stream == "conversations" || !want.sick[of(id)]) {
				must = versions
			}
			if len(got[id]) < len(must) || !slices.Equal(got[id][len(got[id])-len(must):], must) {
				t.Errorf("%s: of %s there are %+v, want %+v", stream, id, got[id], must)
			}
			if w.sink.records != "" && len(got[id]) != 1 {
				t.Errorf("%s: %s has %d rows", stream, id, len(got[id]))
			}
		}
	}
	if len(h.runs) == 0 || h.runs[0].State == collect.RunRunning {
		t.Errorf("the last run is not on record, or said to be running: %+v", h.runs)
	}
	return h
}
