package sqlite_test

import (
	"testing"
	"time"
)

func TestRowsThatAreGoneAreMarkedAndComeBack(t *testing.T) {
	b := newBench(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	remain := func(parent string, keys ...string) {
		t.Helper()
		if err := b.sink.Remain(t.Context(), "messages", parent, keys, at); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(want string) {
		t.Helper()
		is(t, "rows", b.query(t, `SELECT _parent, _key, _headway_deleted_at FROM messages ORDER BY 1, 2`), want)
	}
	// Before there is a table nothing can be gone.
	remain("t1", "a")
	if err := b.commit(t); err != nil {
		t.Fatal(err)
	}
	b.put(t, "messages", detail("t1", "a", `{"n":1}`), detail("t1", "b", `{"n":1}`), detail("t2", "a", `{"n":1}`))
	remain("t1", "a")
	if err := b.commit(t); err != nil {
		t.Fatal(err)
	}
	shows("t1|a|<nil>\nt1|b|2026-01-02T03:04:05Z\nt2|a|<nil>")
	// In one commit: what counts is the order.
	write(t, b.sink, "messages", detail("t1", "b", `{"n":2}`))
	remain("t1", "b")
	write(t, b.sink, "messages", detail("t1", "a", `{"n":2}`))
	remain("t2")
	if err := b.commit(t); err != nil {
		t.Fatal(err)
	}
	shows("t1|a|<nil>\nt1|b|<nil>\nt2|a|2026-01-02T03:04:05Z")
	// A field of that name is not a mark.
	b.put(t, "messages", detail("t2", "a", `{"_headway_deleted_at":"x"}`))
	shows("t1|a|<nil>\nt1|b|<nil>\nt2|a|<nil>")
	is(t, "rest", b.query(t, `SELECT _rest FROM messages WHERE _parent = 't2'`), `{"_headway_deleted_at":"x"}`)
	says(t, b.sink.Remain(t.Context(), "talks", "t1", nil, at), "rows of a parent")
}
