//go:build unix

package crash_test

import (
	"bufio"
	"bytes"
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/longtest"
	sqlsink "github.com/headway-go/headway/sink/sqlite"
	store "github.com/headway-go/headway/store/sqlite"
)

// kind is a sink.
type kind struct {
	name, yaml string
	state      string // the file of the store
	records    string // the database of records, where the sink is one
}

var (
	jsonlSink = kind{"jsonl", "jsonl: {dir: ./out}", ".headway/state.db", ""}
	// stateSink has records and state in one file, fileSink in two.
	stateSink = kind{"state", "sqlite: {}", ".headway/state.db", ".headway/state.db"}
	fileSink  = kind{"sqlite", "sqlite: {file: ./data.db}", ".headway/state.db", "data.db"}
	kinds     = []kind{jsonlSink, stateSink, fileSink}
)

// place is a folder with a connection file and whatever was collected there.
type place struct {
	dir         string
	sink        kind
	concurrency int
	p           *provider
}

func newPlace(t *testing.T, sink kind, p *provider, concurrency int) place {
	t.Helper()
	w := place{dir: t.TempDir(), sink: sink, concurrency: concurrency, p: p}
	yaml := fmt.Sprintf(`connection: chat
provider:
  base_url: ${CHAT_URL}
  ceiling: 1ms
  pacing: {initial: 1ms, law: aimd, step: 1ms}
  retry: {base: 1ms, cap: 2ms, attempts: 1}
streams:
  - name: conversations
    list: {path: /conversations}
    records: .items
    key: .id
    paginate: {cursor: .next_cursor, param: cursor}
    incremental: {cursor: .updated_at, param: updated_after}
    detail:
      stream: messages
      path: /conversations/{key}
      records: .messages
      key: .id
run: {concurrency: %d}
sink: {%s}
`, concurrency, sink.yaml)
	if err := os.WriteFile(filepath.Join(w.dir, "conn.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// copied is the same place at this moment, in a folder of its own, before
// another provider or the same.
func (w place) copied(t *testing.T, p *provider) place {
	t.Helper()
	to := w
	to.dir, to.p = filepath.Join(t.TempDir(), "copy"), p
	if err := os.CopyFS(to.dir, os.DirFS(w.dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// collect runs the program. An environment may name the step to die at, a time
// the instant.
func (w place) collect(t *testing.T, env []string, after time.Duration, args ...string) outcome {
	t.Helper()
	return launch(t, w.dir, append(env, "CHAT_URL="+w.p.served.URL), after, append([]string{"collect", "conn.yaml", "--quiet"}, args...)...)
}

// ended runs the program to an end of its own: drained or deferred. The wait of
// gaps that failed before is over by then, and once more afterwards.
func (w place) ended(t *testing.T, args ...string) outcome {
	t.Helper()
	w.later(t)
	o := w.collect(t, nil, 0, args...)
	if o.killed || (o.code != exitDrained && o.code != exitDeferred) {
		t.Fatal(o)
	}
	w.later(t)
	return o
}

// later makes gaps due whose details failed, as the time would; where nothing
// was collected yet there are none.
func (w place) later(t *testing.T) {
	t.Helper()
	file := filepath.Join(w.dir, w.sink.state)
	if info, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) || (err == nil && info.Size() == 0) {
		return
	}
	s, err := store.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Act(t.Context(), collect.GapRetry, collect.GapFilter{Connection: "chat"}, nil)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// retry makes all gaps due, and ends the cooldown.
func (w place) retry(t *testing.T) {
	t.Helper()
	if o := launch(t, w.dir, nil, 0, "gaps", "retry", "--connection", "chat", "--state", w.sink.state); o.code != 0 {
		t.Fatal(o)
	}
}

// held is what stands on disk.
type held struct {
	// conversations and messages are all committed lines or rows, by id, in order.
	conversations, messages map[string]versions
	lanes                   map[collect.LaneKind]collect.Lane
	known                   map[string]collect.KnownItem
	gaps                    map[string]collect.Gap // by conversation; the backlog's is ""
	runs                    []collect.Run
	tail                    bool // more is on disk than was committed
}

// look reads what a process has left. It looks at a copy: the next process
// finds the store and the files as the dead one left them.
func (w place) look(t *testing.T) held {
	t.Helper()
	c := w.copied(t, w.p)
	h := held{
		conversations: map[string]versions{}, messages: map[string]versions{},
		lanes: map[collect.LaneKind]collect.Lane{}, gaps: map[string]collect.Gap{},
	}
	file := filepath.Join(c.dir, c.sink.state)
	if info, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) || (err == nil && info.Size() == 0) {
		return h // nothing was ever committed
	}
	s, err := store.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	state, err := s.Load(t.Context(), "chat")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range state.Lanes {
		h.lanes[l.Kind] = l
	}
	gaps, err := s.Gaps(t.Context(), collect.GapFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gaps {
		h.gaps[g.Key] = g
	}
	if h.runs, err = s.Runs(t.Context(), "chat", 0); err != nil {
		t.Fatal(err)
	}
	if h.known, err = s.Known(t.Context(), "chat", "conversations", w.p.truth().order); err != nil {
		t.Fatal(err)
	}
	if c.sink == fileSink {
		c.reconciled(t, state.Sink)
	}
	if c.sink.records != "" {
		h.rows(t, filepath.Join(c.dir, c.sink.records))
		return h
	}
	h.tail = h.lines(t, filepath.Join(c.dir, "out"), state.Sink)
	return h
}

// lines reads the committed part of the files, and says whether there is more.
func (h held) lines(t *testing.T, dir string, committed json.RawMessage) (more bool) {
	t.Helper()
	var position struct {
		Files map[string]struct{ Length int }
	}
	if committed != nil {
		if err := json.Unmarshal(committed, &position); err != nil {
			t.Fatal(err)
		}
	}
	for stream, into := range h.streams() {
		file := stream + ".jsonl"
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		n := position.Files[file].Length
		if len(b) < n {
			t.Fatalf("%s has %d bytes and %d were committed", file, len(b), n)
		}
		more = more || len(b) > n
		for s := bufio.NewScanner(bytes.NewReader(b[:n])); s.Scan(); {
			var line struct {
				ID, Title, Text string
				UpdatedAt       string `json:"updated_at"`
			}
			if err := json.Unmarshal(s.Bytes(), &line); err != nil {
				t.Fatalf("%s: %q: %v", file, s.Text(), err)
			}
			into[line.ID] = append(into[line.ID], record{line.ID, line.Title, line.UpdatedAt, line.Text})
		}
	}
	return more
}

func (h held) streams() map[string]map[string]versions {
	return map[string]map[string]versions{"conversations": h.conversations, "messages": h.messages}
}

// reconciled opens the sink as the next run does, which brings the tables to the
// committed position.
func (w place) reconciled(t *testing.T, committed json.RawMessage) {
	t.Helper()
	s := sqlsink.NewFile(filepath.Join(w.dir, w.sink.records), "chat")
	err := s.Open(t.Context(), committed, []collect.StreamInfo{{Name: "conversations"}, {Name: "messages", Parent: "conversations"}})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// rows reads the tables, where they are there yet.
func (h held) rows(t *testing.T, file string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for stream, columns := range map[string]string{"conversations": "title, updated_at, ''", "messages": "'', '', text"} {
		var there int
		if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM sqlite_schema WHERE name = ?`, stream).Scan(&there); err != nil {
			t.Fatal(err)
		}
		if there == 0 {
			continue
		}
		h.table(t, db, stream, columns)
	}
}

func (h held) table(t *testing.T, db *sql.DB, stream, columns string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT id, "+columns+" FROM "+stream)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	into := h.streams()[stream]
	for rows.Next() {
		var r record
		if err := rows.Scan(&r.ID, &r.Title, &r.UpdatedAt, &r.Text); err != nil {
			t.Fatal(err)
		}
		into[r.ID] = append(into[r.ID], r)
	}
	if err := cmp.Or(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
}

// tablesAside are the rows of the tables that were set aside, as text.
func (w place) tablesAside(t *testing.T) []byte {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.dir, w.sink.records)+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var all []byte
	for _, stream := range []string{"conversations", "messages"} {
		var table, ids string
		if err := db.QueryRowContext(t.Context(),
			`SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE ? || '\_%\_bak' ESCAPE '\'`, stream).Scan(&table); err != nil {
			t.Fatalf("the table of %s that was set aside: %v", stream, err)
		}
		if err := db.QueryRowContext(t.Context(), `SELECT json_group_array(id) FROM "`+table+`"`).Scan(&ids); err != nil {
			t.Fatal(err)
		}
		all = append(all, ids...)
	}
	return all
}

// TestRandomInstants kills processes wherever they are, in our code,
// in SQLite's or in the system's, and starts the next one at once. When a
// collection is complete another begins, until enough have died. In each the
// provider changes after a while, whatever the process is at.
func TestRandomInstants(t *testing.T) {
	kills := longtest.Size(8, 200) // for each sink
	for _, sink := range kinds {
		t.Run(sink.name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			chance := rand.New(rand.NewPCG(seed, 0))
			survived, lives, torn, asked, needed := 0, 0, 0, 0, 0
			for survived < kills {
				lives++
				p := newProvider(t, 400, 40, passing)
				w := newPlace(t, sink, p, 4)
				survived += w.live(t, chance, kills-survived, &torn)
				w.drained(t)
				w.complete(t, false)
				p.served.Close()
				if t.Failed() {
					t.Fatalf("in collection %d, after %d kills", lives, survived)
				}
				asked += p.details
				needed += len(p.truth().order)
			}
			t.Logf("kills survived: %d, in %d collections; %d left bytes behind that were not committed; %d details were asked for of %d conversations",
				survived, lives, torn, asked, needed)
		})
	}
}

// passing is how conversations fail that get well while they are asked for.
func passing(i int) condition {
	switch {
	case i%97 == 13:
		return condition{-1, 404}
	case i == 20: // more of these would open the circuit
		return condition{2, 500}
	case i%9 == 4:
		return condition{3, 409}
	}
	return condition{}
}

// live kills processes until the collection is complete or that many have died.
func (w place) live(t *testing.T, chance *rand.Rand, most int, torn *int) (died int) {
	t.Helper()
	changed := false
	for died < most {
		after := 10*time.Millisecond + time.Duration(chance.Int64N(int64(240*time.Millisecond)))
		o := w.collect(t, nil, after)
		if !o.killed {
			if o.code != exitDrained && o.code != exitDeferred {
				t.Fatalf("kill %d of this collection, which was to come %v after the start: %s", died+1, after, o)
			}
			if changed {
				return died
			}
		} else {
			died++
			if w.committed(t, changed).tail {
				*torn++
			}
			if t.Failed() {
				t.Fatalf("after kill %d of this collection, which came %v after the start", died, after)
			}
		}
		if !changed && (!o.killed || died == 5) {
			w.p.update()
			changed = true
		}
	}
	return died
}

// drained runs the program until nothing is left that can be had.
func (w place) drained(t *testing.T) {
	t.Helper()
	for range 8 {
		if w.ended(t).code == exitDrained {
			return
		}
		gone, left := w.p.truth().gone, 0
		for id, g := range w.look(t).gaps {
			if g.Status == collect.GapPending && !gone[id] {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
	t.Errorf("eight runs did not drain it")
}
