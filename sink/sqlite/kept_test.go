package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/sinktest"
	"github.com/headway-go/headway/sink/sqlite"
)

// readAll reads all that is kept of the streams, so much at once.
func readAll(t *testing.T, path string, from collect.Location, limit, size int, sinks ...collect.FormerSink) map[string][]collect.KeptRecord {
	t.Helper()
	k, err := sqlite.OpenKept(t.Context(), path, "c", from, sinks, streams)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	all := map[string][]collect.KeptRecord{}
	there, err := k.Streams(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range streams {
		if !slices.Contains(there, s.Name) {
			continue
		}
		var after collect.RecordID
		for {
			list, err := k.Read(t.Context(), s, after, limit, size)
			if err != nil {
				t.Fatal(err)
			}
			if len(list) == 0 {
				break
			}
			if len(list) > limit {
				t.Errorf("%d records at once, want at most %d", len(list), limit)
			}
			last := list[len(list)-1]
			after = collect.RecordID{Parent: last.Parent, Key: last.Key}
			all[s.Name] = append(all[s.Name], list...)
		}
		if n, err := k.Count(t.Context(), s); err != nil || n != int64(len(all[s.Name])) {
			t.Errorf("%s: it counts %d, %v, of %d", s.Name, n, err, len(all[s.Name]))
		}
	}
	return all
}

var difficult = []string{
	`{"id":"x","n":1,"f":1.5,"b":true,"j":[1,{"a":"ä"}],"o":{}}`,
	`{"id":2,"n":"text","f":"[1]","b":"no","j":"{}","o":7}`,
	`{"n":12345678901234567890,"f":0.1000000000000000000001,"b":null,"j":false}`,
	`{"N":"case","rowid":1,"_key":"own","":"no name","_headway_deleted_at":"field"}`,
	`{"f":1.0,"g":-0,"h":1e300,"s":"<&>  \"quoted\" \\ "}`,
	`{"half":"\ud800","b":1,"twice":{"a":1,"a":2}}`,
	`{}`, `[1,2]`, `"text"`, `null`, `7`,
}

func TestRecordsAreReadBackAsTheyWere(t *testing.T) {
	b := newBench(t)
	for i, data := range difficult {
		b.Put(t, "talks", sinktest.Record(fmt.Sprintf("k%02d", i), data))
		for _, parent := range []string{"p1", "p2"} {
			b.Put(t, "messages", sinktest.Detail(parent, fmt.Sprintf("k%02d", i), data))
		}
	}
	for _, bounds := range [][2]int{{1000, 1 << 20}, {3, 1 << 20}, {1000, 1}} {
		all := readAll(t, b.path, collect.Location{Kind: "state"}, bounds[0], bounds[1])
		sinktest.Is(t, "records", fmt.Sprint(len(all["talks"]), len(all["messages"])), fmt.Sprint(len(difficult), 2*len(difficult)))
		for i, k := range all["messages"] {
			want := difficult[i%len(difficult)]
			if parent := fmt.Sprintf("p%d", 1+i/len(difficult)); k.Parent != parent || k.Key != fmt.Sprintf("k%02d", i%len(difficult)) {
				t.Errorf("record %d is %s of %s", i, k.Key, k.Parent)
			}
			if !sinktest.Same(sinktest.Parsed(t, string(k.Data)), sinktest.Parsed(t, want)) {
				t.Errorf("%s came back as %s", want, k.Data)
			}
		}
	}
	// In other tables they are what they were in these.
	o := newOwn(t)
	all := readAll(t, b.path, collect.Location{Kind: "state"}, 1000, 1<<20)
	for _, s := range streams {
		if err := o.sink.Restore(t.Context(), s.Name, all[s.Name]); err != nil {
			t.Fatal(err)
		}
		o.commit(t)
	}
	again := readAll(t, o.path, o.sink.Location(), 1000, 1<<20)
	for _, s := range streams {
		for i, k := range again[s.Name] {
			if !sinktest.Same(sinktest.Parsed(t, string(k.Data)), sinktest.Parsed(t, string(all[s.Name][i].Data))) {
				t.Errorf("%s was copied as %s", all[s.Name][i].Data, k.Data)
			}
		}
	}
}

func TestWhatIsOlderReplacesNothing(t *testing.T) {
	o := newOwn(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	gone := func(r collect.Record) collect.KeptRecord { return collect.KeptRecord{Record: r, Deleted: at} }
	o.write(t, "messages", sinktest.Detail("t1", "a", `{"n":2}`), sinktest.Detail("t1", "b", `{"n":2}`))
	o.commit(t)
	if err := o.sink.Restore(t.Context(), "messages", []collect.KeptRecord{
		{Record: sinktest.Detail("t1", "a", `{"n":1,"old":1}`)}, gone(sinktest.Detail("t1", "b", `{"n":1}`)), gone(sinktest.Detail("t1", "c", `{"n":1}`)),
		{Record: sinktest.Detail("t1", "d", `{"n":1}`)}, gone(sinktest.Detail("t2", "a", `{"n":1}`)),
	}); err != nil {
		t.Fatal(err)
	}
	position := o.sync(t)
	// What is staged is so after a kill, too.
	o.position = position
	o.open(t)
	b := &bench{db: openRaw(t, o.path)}
	sinktest.Is(t, "rows", b.query(t, `SELECT _parent, _key, n, _headway_deleted_at FROM messages ORDER BY 1, 2`),
		"t1|a|2|<nil>\nt1|b|2|<nil>\nt1|c|1|2026-01-02T03:04:05Z\nt1|d|1|<nil>\nt2|a|1|2026-01-02T03:04:05Z")
	for _, k := range readAll(t, o.path, o.sink.Location(), 10, 1<<20)["messages"] {
		if (k.Key == "c" || k.Parent == "t2") != k.Deleted.Equal(at) {
			t.Errorf("%s of %s: deleted %v", k.Key, k.Parent, k.Deleted)
		}
	}
}

func TestWhatIsKeptIsOfTheConnectionAndItsLastBeginning(t *testing.T) {
	b := newBench(t)
	b.Put(t, "talks", sinktest.Record("1", `{"n":1}`))
	if err := b.Sink.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Sink.SetAside(nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := b.Sink.Open(t.Context(), nil, streams); err != nil {
		t.Fatal(err)
	}
	b.Put(t, "talks", sinktest.Record("2", `{"n":2}`))
	state, err := b.Store.Load(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	at := collect.Location{Kind: "state"}
	all := readAll(t, b.path, at, 10, 1<<20, collect.FormerSink{Location: at, Position: state.Sink})["talks"]
	if len(all) != 1 || all[0].Key != "2" {
		t.Errorf("kept are %+v", all)
	}
	impossible := func(path, connection string, from collect.Location, former ...collect.FormerSink) {
		t.Helper()
		_, err := sqlite.OpenKept(context.Background(), path, connection, from, former, streams)
		if _, ok := errors.AsType[*collect.ReplayError](err); !ok {
			t.Errorf("of %s in %s: %v", connection, path, err)
		}
	}
	impossible(b.path, "other", collect.Location{Kind: "state"})
	impossible(filepath.Join(t.TempDir(), "none.db"), "c", collect.Location{Kind: "sqlite"})
	o, other := newOwn(t), newOwn(t)
	at = collect.Location{Kind: "sqlite", Path: o.path}
	impossible(o.path, "c", at, collect.FormerSink{Location: at, Position: other.position})
}

func TestRowsThatAreGoneAreMarkedAndComeBack(t *testing.T) {
	b := newBench(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	remain := func(parent string, keys ...string) {
		t.Helper()
		if err := b.Sink.Remain(t.Context(), "messages", parent, keys, at); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(want string) {
		t.Helper()
		sinktest.Is(t, "rows", b.query(t, `SELECT _parent, _key, _headway_deleted_at FROM messages ORDER BY 1, 2`), want)
	}
	// Before there is a table nothing can be gone.
	remain("t1", "a")
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Put(t, "messages", sinktest.Detail("t1", "a", `{"n":1}`), sinktest.Detail("t1", "b", `{"n":1}`), sinktest.Detail("t2", "a", `{"n":1}`))
	remain("t1", "a")
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	shows("t1|a|<nil>\nt1|b|2026-01-02T03:04:05Z\nt2|a|<nil>")
	// In one commit: what counts is the order.
	write(t, b.Sink, "messages", sinktest.Detail("t1", "b", `{"n":2}`))
	remain("t1", "b")
	write(t, b.Sink, "messages", sinktest.Detail("t1", "a", `{"n":2}`))
	remain("t2")
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	shows("t1|a|<nil>\nt1|b|<nil>\nt2|a|2026-01-02T03:04:05Z")
	// A field of that name is not a mark.
	b.Put(t, "messages", sinktest.Detail("t2", "a", `{"_headway_deleted_at":"x"}`))
	shows("t1|a|<nil>\nt1|b|<nil>\nt2|a|<nil>")
	sinktest.Is(t, "rest", b.query(t, `SELECT _rest FROM messages WHERE _parent = 't2'`), `{"_headway_deleted_at":"x"}`)
	sinktest.Says(t, b.Sink.Remain(t.Context(), "talks", "t1", nil, at), "rows with a parent")
}
