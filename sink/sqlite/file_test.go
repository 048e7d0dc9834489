package sqlite_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/sinktest"
	"github.com/headway-go/headway/sink/sqlite"
)

// own is a sink in a file of its own, and what a state knows of it.
type own struct {
	path     string
	sink     *sqlite.File
	position json.RawMessage
}

func newOwn(t *testing.T) *own {
	t.Helper()
	o := &own{path: filepath.Join(t.TempDir(), "a", "data.db")}
	o.open(t)
	return o
}

// open opens the sink as the next process does, whatever became of the last.
func (o *own) open(t *testing.T) {
	t.Helper()
	if err := o.reopen(t, o.position); err != nil {
		t.Fatal(err)
	}
	o.commit(t)
}

func (o *own) reopen(t *testing.T, position json.RawMessage) error {
	t.Helper()
	if o.sink != nil {
		if err := o.sink.Close(); err != nil {
			t.Fatal(err)
		}
	}
	o.sink = sqlite.NewFile(o.path, "c")
	t.Cleanup(func() { _ = o.sink.Close() })
	return o.sink.Open(t.Context(), position, streams)
}

func (o *own) write(t *testing.T, stream string, records ...collect.Record) {
	t.Helper()
	if err := o.sink.Write(t.Context(), stream, records); err != nil {
		t.Fatal(err)
	}
}

func (o *own) sync(t *testing.T) json.RawMessage {
	t.Helper()
	p, err := o.sink.Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// commit is what the runtime does for a slice.
func (o *own) commit(t *testing.T) {
	t.Helper()
	o.position = o.sync(t)
	if err := o.sink.Committed(t.Context(), o.position); err != nil {
		t.Fatal(err)
	}
}

// shows checks the rows of a stream by what another program sees.
func (o *own) shows(t *testing.T, want string) {
	t.Helper()
	db := openRaw(t, o.path)
	var there int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM sqlite_schema WHERE name = 'talks'`).Scan(&there); err != nil {
		t.Fatal(err)
	}
	got := ""
	if there > 0 {
		got = (&bench{db: db}).query(t, `SELECT _key, n FROM talks ORDER BY 1`)
	}
	sinktest.Is(t, "talks", got, want)
}

// TestASliceIsInTheTablesOnceItIsCommitted dies at each point between the two
// files, and looks at the tables there and after the next Open.
func TestASliceIsInTheTablesOnceItIsCommitted(t *testing.T) {
	const before, after = "1|1\n2|1", "1|2\n2|1\n3|2"
	for _, c := range []struct {
		name           string
		sync, informed bool // the slice was synced, the sink informed of the commit
		committed      bool // the state has the position
		dead, next     string
	}{
		{"written", false, false, false, before, before},
		{"staged", true, false, false, before, before},
		{"committed", true, false, true, before, after},
		{"applied", true, true, true, after, after},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOwn(t)
			o.write(t, "talks", sinktest.Record("1", `{"n":1}`), sinktest.Record("2", `{"n":1}`))
			o.commit(t)
			o.shows(t, before)
			o.write(t, "talks", sinktest.Record("1", `{"n":2}`), sinktest.Record("3", `{"n":2,"text":"<&>","list":["<&>"]}`))
			var p json.RawMessage
			if c.sync {
				p = o.sync(t)
			}
			if c.committed {
				o.position = p
			}
			if c.informed {
				if err := o.sink.Committed(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			o.shows(t, c.dead)
			for range 2 {
				o.open(t)
				sinktest.Is(t, "noticed", len(o.sink.Noticed()), 0)
				o.shows(t, c.next)
			}
			// The slice comes again, or the next one does.
			o.write(t, "talks", sinktest.Record("1", `{"n":2}`), sinktest.Record("3", `{"n":2,"text":"<&>","list":["<&>"]}`))
			o.commit(t)
			o.shows(t, after)
			sinktest.Is(t, "text", (&bench{db: openRaw(t, o.path)}).query(t, `SELECT text, list FROM talks WHERE _key = '3'`), `<&>|["<&>"]`)
		})
	}
}

// TestWhatIsGoneIsStagedToo: marks follow the same two steps as rows.
func TestWhatIsGoneIsStagedToo(t *testing.T) {
	o := newOwn(t)
	o.write(t, "messages", sinktest.Detail("t", "a", `{}`), sinktest.Detail("t", "b", `null`))
	o.commit(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := o.sink.Remain(t.Context(), "messages", "t", []string{"b"}, at); err != nil {
		t.Fatal(err)
	}
	o.write(t, "messages", sinktest.Detail("t", "c", `{}`))
	uncommitted := o.position
	o.position = o.sync(t)
	o.open(t)
	const query = `SELECT _key, _headway_deleted_at FROM messages ORDER BY 1`
	sinktest.Is(t, "rows", (&bench{db: openRaw(t, o.path)}).query(t, query), "a|2026-01-02T03:04:05Z\nb|<nil>\nc|<nil>")
	// An older copy of the state goes on: what comes again replaces.
	if err := o.reopen(t, uncommitted); err != nil {
		t.Fatal(err)
	}
	sinktest.Is(t, "noticed", o.sink.Noticed(), []collect.Change{{Kind: collect.SinkAhead}})
	o.commit(t)
	o.open(t)
	sinktest.Is(t, "noticed", len(o.sink.Noticed()), 0)
}

func TestAFileIsOfOneState(t *testing.T) {
	o := newOwn(t)
	o.write(t, "talks", sinktest.Record("1", `{"n":1}`))
	o.commit(t)
	if err := o.sink.Close(); err != nil {
		t.Fatal(err)
	}
	older, err := os.ReadFile(o.path)
	if err != nil {
		t.Fatal(err)
	}
	sinktest.Says(t, o.reopen(t, nil), "another state", "nothing was changed", "--fresh")
	sinktest.Says(t, o.reopen(t, json.RawMessage(`{"sqlite_file":{"id":"x","slice":1}}`)), "another state")
	sinktest.Says(t, o.reopen(t, json.RawMessage(`{"files":{}}`)), "cannot be read")
	// Starting over sets the tables aside.
	if err := o.sink.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.sink.SetAside(nil, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	if err := o.sink.Open(t.Context(), nil, streams); err != nil {
		t.Fatal(err)
	}
	o.commit(t)
	o.write(t, "talks", sinktest.Record("2", `{"n":2}`))
	o.commit(t)
	o.write(t, "talks", sinktest.Record("3", `{"n":3}`))
	o.commit(t)
	o.shows(t, "2|2\n3|3")
	sinktest.Is(t, "aside", (&bench{db: openRaw(t, o.path)}).query(t, `SELECT _key FROM talks_20260102T030405Z_bak`), "1")
	// An older copy of the file is not a file to go on with.
	copied := filepath.Join(t.TempDir(), "data.db")
	if err := os.WriteFile(copied, older, 0o600); err != nil {
		t.Fatal(err)
	}
	sinktest.Says(t, sqlite.NewFile(copied, "c").Open(t.Context(), o.position, streams), "another state")
	ahead := json.RawMessage(`{"sqlite_file":{"id":"` + idOf(t, o.position) + `","slice":9}}`)
	sinktest.Says(t, o.reopen(t, ahead), "2 slices of the 9", "older copy")
	if !sqlite.NewFile(o.path, "c").Recognizes(t.Context(), o.position) || sqlite.NewFile(o.path, "d").Recognizes(t.Context(), o.position) {
		t.Error("the file is to be recognized by its connection, and by no other")
	}
	// Moved away, a new one begins.
	if err := os.Rename(o.path, o.path+".old"); err != nil {
		t.Fatal(err)
	}
	if sqlite.NewFile(o.path, "c").Recognizes(t.Context(), o.position) {
		t.Error("nothing is there, and it is recognized")
	}
	if err := o.reopen(t, o.position); err != nil {
		t.Fatal(err)
	}
	sinktest.Is(t, "noticed", o.sink.Noticed(), []collect.Change{{Kind: collect.SinkFileGone}})
	if err := o.sink.Close(); err != nil {
		t.Fatal(err)
	}
	// Another program's database is left alone.
	other := filepath.Join(t.TempDir(), "other.db")
	if _, err := openRaw(t, other).ExecContext(t.Context(), `CREATE TABLE mine (x)`); err != nil {
		t.Fatal(err)
	}
	sinktest.Says(t, sqlite.NewFile(other, "c").Open(t.Context(), nil, streams), "another program", "nothing was changed")
}

func idOf(t *testing.T, position json.RawMessage) string {
	t.Helper()
	var p struct {
		File struct{ ID string } `json:"sqlite_file"`
	}
	if err := json.Unmarshal(position, &p); err != nil {
		t.Fatal(err)
	}
	return p.File.ID
}

// TestConnectionsShareAFile: each has its own slices and tables.
func TestConnectionsShareAFile(t *testing.T) {
	o := newOwn(t)
	o.write(t, "talks", sinktest.Record("1", `{"n":1}`))
	o.commit(t)
	second := sqlite.NewFile(o.path, "d")
	defer func() { _ = second.Close() }()
	err := second.Open(t.Context(), nil, []collect.StreamInfo{{Name: "others"}, {Name: "runs"}})
	if err != nil {
		t.Fatal(err) // runs is a name like any other where there is no store
	}
	err = errors.Join(second.Write(t.Context(), "others", []collect.Record{sinktest.Record("1", `{}`)}))
	p, errSync := second.Sync(t.Context())
	if err := errors.Join(err, errSync, second.Committed(t.Context(), p)); err != nil {
		t.Fatal(err)
	}
	o.write(t, "talks", sinktest.Record("2", `{"n":2}`))
	o.commit(t)
	o.shows(t, "1|1\n2|2")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.Write(canceled, "others", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
