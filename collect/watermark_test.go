package collect

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// utc returns a fixed day at noon plus the given number of seconds.
func utc(seconds int) time.Time { return time.Date(2024, 5, 1, 12, 0, seconds, 0, time.UTC) }

func TestWhichWatermarksArePointsInTime(t *testing.T) {
	for _, tt := range []struct {
		w    string
		want time.Time
	}{
		{"2024-05-01T12:00:00Z", utc(0)},
		{"2024-05-01T14:00:01+02:00", utc(1)},
		{"946684799", time.Time{}}, // the last second of 1999
		{"946684800", time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)},
		{"4102444799", time.Date(2099, 12, 31, 23, 59, 59, 0, time.UTC)},
		{"4102444800", time.Time{}}, // the first second of 2100
		{"946684799999", time.Time{}},
		{"946684800000", time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)},
		{"4102444799999", time.Date(2099, 12, 31, 23, 59, 59, 999e6, time.UTC)},
		{"4102444800000", time.Time{}},
		{"1714564800", utc(0)},
		{"1714564800001", utc(0).Add(time.Millisecond)},
		{"17", time.Time{}},
		{"", time.Time{}},
		{"seq-17", time.Time{}},
		{"2024-05-01", time.Time{}},
	} {
		got, ok := instant(tt.w)
		if diff := cmp.Diff(tt.want, got); diff != "" || ok == tt.want.IsZero() {
			t.Errorf("%q is a point in time: %v; -want +got:\n%s", tt.w, ok, diff)
		}
	}
}

func TestLikeKeepsTheFormat(t *testing.T) {
	for _, tt := range []struct {
		sample string
		at     time.Time
		want   string
	}{
		{"2020-01-01T00:00:00Z", utc(0), "2024-05-01T12:00:00Z"},
		{"2020-01-01T00:00:00.5+02:00", utc(0).In(time.FixedZone("", 7200)), "2024-05-01T12:00:00Z"},
		{"1700000000", utc(0), "1714564800"},
		{"946684800", utc(0), "1714564800"},
		{"946684800000", utc(0), "1714564800000"}, // twelve digits, and milliseconds
		{"1700000000000", utc(0), "1714564800000"},
		{"17", utc(0), ""},
		{"seq-17", utc(0), ""},
		{"2020-01-01T00:00:00Z", time.Time{}, ""},
		{"1700000000", time.Time{}, ""},
	} {
		if got := like(tt.sample, tt.at); got != tt.want {
			t.Errorf("%v like %q is %q, want %q", tt.at, tt.sample, got, tt.want)
		}
	}
}

func TestAWalkIsTrustedUpToTheSecondBeforeItBegan(t *testing.T) {
	start := utc(7).Add(300 * time.Millisecond)
	for _, tt := range []struct {
		high, want string
	}{
		{"2024-05-01T12:00:05Z", "2024-05-01T12:00:05Z"},
		{"2024-05-01T12:00:06.999Z", "2024-05-01T12:00:06.999Z"},
		{"2024-05-01T12:00:07Z", "2024-05-01T12:00:06Z"}, // of the very second
		{"2024-05-01T12:00:07.2Z", "2024-05-01T12:00:06Z"},
		{"2024-05-01T12:00:08Z", "2024-05-01T12:00:06Z"},
		{"1714564806", "1714564806"},
		{"1714564807", "1714564806"},
		{"1714564806999", "1714564806999"},
		{"1714564807000", "1714564806000"},
	} {
		if got := settled(tt.high, start); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.high, got, tt.want)
		}
	}
	if got, want := before(start), utc(6); !got.Equal(want) {
		t.Errorf("before %v is %v, want %v", start, got, want)
	}
	if got := before(time.Time{}); !got.IsZero() {
		t.Errorf("before no instant is %v", got)
	}
}

func TestWatermarksOfTwoKindsAreComparedAsText(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{"2024-05-01T12:00:00Z", "9", "9"},
		{"9", "2024-05-01T12:00:00Z", "9"},
		{"10", "9x", "9x"},
		{"9x", "10", "9x"},
		{"a", "B", "a"},
		{"B", "a", "a"},
		// Of two ways to write one instant or number the first stays.
		{"2024-05-01T12:00:00Z", "2024-05-01T14:00:00+02:00", "2024-05-01T12:00:00Z"},
		{"2024-05-01T14:00:00+02:00", "2024-05-01T12:00:00Z", "2024-05-01T14:00:00+02:00"},
		{"7", "07", "7"},
		{"07", "7", "07"},
		// Numbers out of the range of instants; as text another one would sort first.
		{"100", "99", "100"},
		{"99", "100", "100"},
		{"-2", "-1", "-1"},
		{"-1", "-2", "-1"},
		{"4611686018427387904", "500", "4611686018427387904"},
		{"500", "4611686018427387904", "4611686018427387904"},
		{"1a", "9", "9"}, // no numbers, though some read them as such
		{"9", "1a", "9"},
	} {
		if got := higher(tt.a, tt.b); got != tt.want {
			t.Errorf("of %q and %q %q is higher, want %q", tt.a, tt.b, got, tt.want)
		}
	}
	for _, tt := range []struct{ a, b, want string }{
		{"2024-05-01T12:00:00Z", "2024-05-01T14:00:00+02:00", "2024-05-01T12:00:00Z"},
		{"7", "07", "7"},
		{"07", "7", "07"},
		{"x", "x", "x"},
	} {
		if got := lower(tt.a, tt.b); got != tt.want || precedes(tt.a, tt.b) || precedes(tt.b, tt.a) {
			t.Errorf("of %q and %q, which are the same, %q is lower, want %q", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestAListWithoutTimesHasNoLookback(t *testing.T) {
	list := func(marks ...string) (items []connector.Item) {
		for _, m := range marks {
			items = append(items, connector.Item{Watermark: m})
		}
		return items
	}
	for _, tt := range []struct {
		name  string
		items []connector.Item
		want  bool
	}{
		{"no items", nil, false},
		{"no watermarks", list("", ""), false},
		{"numbers", list("1", "2"), true},
		{"one number", list("", "1", ""), true},
		{"a date among numbers", list("1", "2024-05-01", "2"), false},
		{"a time, then none", list("2024-05-01T12:00:00Z", ""), false},
	} {
		if got := timeless(tt.items); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		for lookback, want := range map[time.Duration]error{0: nil, 1: errTimeless, -1: nil} {
			if !tt.want {
				want = nil
			}
			if err := contradiction(connector.Stream{Lookback: lookback}, "", tt.items); !errors.Is(err, want) {
				t.Errorf("%s, a lookback of %v: %v", tt.name, lookback, err)
			}
		}
	}
}

func TestAContradictionNamesTheItem(t *testing.T) {
	up := connector.Stream{Ascending: true}
	first := "the list is declared to be in ascending order, but item 3 of a page has a lower watermark " +
		"than an item before it; nothing is lost; remove order from incremental"
	for _, tt := range []struct {
		high  string
		marks []string
		want  string
	}{
		{"", []string{"1", "3", "2", "1"}, first},
		{"", []string{"3", "", "2"}, first}, // the one between says nothing
		{"", []string{"1", "", "1"}, ""},
		{"5", []string{"", "4", ""}, "the list is declared to be in ascending order, but a page has lower watermarks than the pages before it; " +
			"nothing is lost; remove order from incremental"},
		{"5", nil, ""},
	} {
		var items []connector.Item
		for _, m := range tt.marks {
			items = append(items, connector.Item{Watermark: m})
		}
		got := ""
		if err := contradiction(up, tt.high, items); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%q after %q: %q, want %q", tt.marks, tt.high, got, tt.want)
		}
	}
}

func TestAContradictionEndsTheRunAsAnInvalidResponse(t *testing.T) {
	route := "/docs"
	r := &execution{caller: &caller{}}
	r.caller.last.Store(&route)
	for name, tt := range map[string]struct {
		end *stop
		why reason.Reason
		err error
	}{
		"contradicted": {r.contradicted(errTimeless), reason.InvalidResponse, errTimeless},
		"circular":     {r.cursorRepeats(), reason.CursorRepeats, nil},
	} {
		f, ok := errors.AsType[*connector.Failure](tt.end.err)
		if !ok {
			t.Fatalf("%s: %v", name, tt.end.err)
		}
		if tt.err == nil { // its text is its own
			tt.err = f.Err
		}
		want := connector.Failure{Reason: tt.why, Method: "GET", Path: "/docs", Err: tt.err}
		if diff := cmp.Diff(want, *f, cmpopts.EquateErrors()); diff != "" || tt.end.why != tt.why || f.Err == nil {
			t.Errorf("%s: %v; -want +got:\n%s", name, tt.end.why, diff)
		}
	}
}

func TestWhereABacklogBegins(t *testing.T) {
	old := Gap{Parent: "docs", Since: "2024-01-02", Status: GapPending}
	for _, tt := range []struct {
		name      string
		old       Gap
		since, as string
	}{
		{"earlier", old, "2024-01-01", "2024-01-01"},
		{"later", old, "2024-01-03", "2024-01-02"},
		{"from the beginning", old, "", ""},
		{"after one that is recovered", Gap{Parent: "docs", Since: "2024-01-02", Status: GapRecovered}, "2024-01-03", "2024-01-03"},
		{"of another list", Gap{Parent: "talks", Since: "2024-01-02", Status: GapPending}, "2024-01-03", ""},
	} {
		if got := joined(tt.old, Gap{Parent: "docs", Since: tt.since}); got != tt.as {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.as)
		}
	}
}
