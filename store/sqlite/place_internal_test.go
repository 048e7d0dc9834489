package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
)

// TestTheKindOfAnOldPositionIsFound: stores from before kinds were kept.
func TestTheKindOfAnOldPositionIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	all := migrations
	migrations = all[:3]
	t.Cleanup(func() { migrations = all })
	conn := connect(t, path)
	if err := prepare(t.Context(), conn, path); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, c := range [][2]string{
		{`{"files":{"x.jsonl":{"length":1}}}`, "jsonl"}, {`{"sqlite":{}}`, "state"}, {`{"streams":{}}`, ""}, {`{`, ""},
	} {
		want[c[0]] = c[1]
		if _, err := conn.ExecContext(t.Context(), `INSERT INTO connections (name, token, holder, since, expires, sink)
			VALUES (?1, 0, '', '', '', CAST(?1 AS BLOB))`, c[0]); err != nil {
			t.Fatal(err)
		}
	}
	migrations = all
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for position, kind := range want {
		if state, err := s.Load(t.Context(), position); err != nil || state.SinkAt.Kind != kind || string(state.Sink) != position {
			t.Errorf("%s is of kind %q, %v; want %q", position, state.SinkAt.Kind, err, kind)
		}
	}
	// From then on it is what a run says.
	l, err := s.Acquire(t.Context(), collect.LeaseRequest{Connection: `{`, Run: "r", Now: time.Now(), TTL: time.Minute})
	if err == nil {
		err = s.Commit(t.Context(), l, collect.Commit{SinkAt: collect.Location{Kind: "parquet", Path: "p"}})
	}
	if err != nil {
		t.Error(err)
	}
}
