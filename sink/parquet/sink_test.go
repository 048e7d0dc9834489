package parquet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/sinktest"
)

func TestPartsGrowUntilTheyAreComplete(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "out")
	s := opened(t, small(dir), nil)
	sinktest.Is(t, "first position", string(synced(t, s)), `{"streams":{"messages":{"part":1,"spool":0},"talks":{"part":1,"spool":0}}}`)
	put(t, s, "talks", sinktest.Record("1", `{"a": 1}`), sinktest.Record("2", `{"a":2}`))
	p := synced(t, s)
	sinktest.Is(t, "position", string(p), `{"streams":{"messages":{"part":1,"spool":0},"talks":{"part":1,"spool":34}}}`)
	sinktest.Is(t, "files before Close", files(t, filepath.Join(dir, "talks")), []string{".part-000001.jsonl"})
	closed(t, s)
	sinktest.Is(t, "files", files(t, filepath.Join(dir, "talks")), []string{".part-000001.jsonl", "part-000001.parquet"})
	sinktest.Is(t, "rows", rows(t, dir, "talks"), []row{{"1", "", sinktest.Parsed(t, `{"a":1}`)}, {"2", "", sinktest.Parsed(t, `{"a":2}`)}})
	sinktest.Is(t, "folders", files(t, dir), []string{"talks"})

	// A second run adds to the same part.
	s = opened(t, small(dir), p)
	put(t, s, "talks", sinktest.Record("3", `{"b":"x"}`))
	p = synced(t, s)
	closed(t, s)
	sinktest.Is(t, "files", files(t, filepath.Join(dir, "talks")), []string{".part-000001.jsonl", "part-000001.parquet"})
	sinktest.Is(t, "rows", len(rows(t, dir, "talks")), 3)

	// A third one fills it.
	s = opened(t, small(dir), p)
	put(t, s, "talks", sinktest.Record("4", `{"b":"`+strings.Repeat("x", 200)+`"}`))
	synced(t, s)
	put(t, s, "talks", sinktest.Record("5", `{"c":true}`))
	sinktest.Is(t, "rows of slices that were committed", len(rows(t, dir, "talks")), 4)
	p = synced(t, s)
	sinktest.Is(t, "position", string(p), `{"streams":{"messages":{"part":1,"spool":0},"talks":{"part":2,"spool":20}}}`)
	sinktest.Is(t, "files", files(t, filepath.Join(dir, "talks")), []string{".part-000001.jsonl", ".part-000002.jsonl", "part-000001.parquet"})
	synced(t, s)
	sinktest.Is(t, "files", files(t, filepath.Join(dir, "talks")), []string{".part-000002.jsonl", "part-000001.parquet"})
	closed(t, s)
	sinktest.Is(t, "rows", len(rows(t, dir, "talks")), 5)
}

func columnTypes(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	p, err := openPart(f)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, c := range p.Schema().Fields() {
		list = append(list, c.Name()+" "+strings.ReplaceAll(c.Type().String(), "INT(64,true)", "INT64"))
	}
	return strings.Join(list, ", ")
}

// TestColumnsAppearAndWidenAcrossParts: a later part has the columns of those
// before, as wide at least.
func TestColumnsAppearAndWidenAcrossParts(t *testing.T) {
	dir := t.TempDir()
	s := small(dir)
	s.target = 1 // each slice is a part
	opened(t, s, nil)
	for i, data := range []string{
		`{"a":1,"b":true,"c":[1],"d":"x","e":1}`,
		`{"a":2.5,"b":1,"c":{"x":1},"e":"1","f":null}`,
		`{"a":7,"c":3,"g":9007199254740993}`,
		`{"a":9007199254740993,"b":true,"g":0.5}`,
	} {
		put(t, s, "messages", sinktest.Detail("p", fmt.Sprint(i), data))
		synced(t, s)
	}
	closed(t, s)
	for i, want := range []string{
		"_key STRING, _parent STRING, _rest JSON, _value JSON, a INT64, b BOOLEAN, c JSON, d STRING, e INT64",
		"_key STRING, _parent STRING, _rest JSON, _value JSON, a DOUBLE, b STRING, c JSON, d STRING, e STRING",
		"_key STRING, _parent STRING, _rest JSON, _value JSON, a DOUBLE, b STRING, c STRING, d STRING, e STRING, g INT64",
		"_key STRING, _parent STRING, _rest JSON, _value JSON, a DOUBLE, b STRING, c STRING, d STRING, e STRING, g DOUBLE",
	} {
		sinktest.Is(t, fmt.Sprint("part ", i+1), columnTypes(t, filepath.Join(dir, "messages", partName(int64(i+1)))), want)
	}
	got := rows(t, dir, "messages")
	sinktest.Is(t, "the last row", got[3].value, sinktest.Parsed(t, `{"a":9007199254740993,"b":true,"g":0.5}`))
}

func TestMoreFieldsThanColumns(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, small(dir), nil)
	var fields []string
	for i := range 1500 {
		fields = append(fields, fmt.Sprintf(`"f%d":%d`, i, i))
	}
	r := sinktest.Record("1", "{"+strings.Join(fields, ",")+"}")
	put(t, s, "talks", r)
	synced(t, s)
	closed(t, s)
	sinktest.Is(t, "columns", strings.Count(columnTypes(t, filepath.Join(dir, "talks", partName(1))), ", ")+1, maxColumns+3)
	if got := rows(t, dir, "talks"); len(got) != 1 || !sameRow(got[0], rowOf(t, r)) {
		t.Error("the record does not read back")
	}
}

// TestAProgramReadsStructs is how most Go programs read the parts.
func TestAProgramReadsStructs(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, New(dir), nil)
	put(t, s, "talks", sinktest.Record("1", `{"id":1,"title":"one"}`), sinktest.Record("2", `{"id":2,"title":null}`))
	synced(t, s)
	closed(t, s)
	type talk struct {
		Key   string  `parquet:"_key"`
		ID    *int64  `parquet:"id"`
		Title *string `parquet:"title"`
	}
	talks, err := parquet.ReadFile[talk](filepath.Join(dir, "talks", "part-000001.parquet"))
	if err != nil || len(talks) != 2 || *talks[0].ID != 1 || *talks[0].Title != "one" || talks[1].Title != nil || talks[1].Key != "2" {
		t.Errorf("got %+v, %v", talks, err)
	}
}

// TestRowGroups: a large part has several, so that not all of it is in memory.
func TestRowGroups(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, New(dir), nil)
	big := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	for i := range 20 {
		put(t, s, "talks", sinktest.Record(fmt.Sprint(i), big))
	}
	synced(t, s)
	closed(t, s)
	f, err := os.Open(filepath.Join(dir, "talks", partName(1)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	p, err := openPart(f)
	if err != nil {
		t.Fatal(err)
	}
	sinktest.Is(t, "row groups and rows", fmt.Sprint(len(p.RowGroups()), p.NumRows()), "2 20")
}

// TestACommitThatFailed: Close made its rows readable, Open takes them back.
func TestACommitThatFailed(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, small(dir), nil)
	begin := synced(t, s)
	put(t, s, "talks", sinktest.Record("1", `1`))
	p := synced(t, s)
	put(t, s, "talks", sinktest.Record("2", `2`))
	synced(t, s)
	closed(t, s)
	sinktest.Is(t, "rows", len(rows(t, dir, "talks")), 2)
	s = opened(t, small(dir), p)
	sinktest.Is(t, "rows", rows(t, dir, "talks"), []row{{"1", "", sinktest.Parsed(t, `1`)}})
	closed(t, s)
	opened(t, small(dir), begin)
	sinktest.Is(t, "rows", len(rows(t, dir, "talks")), 0)
	sinktest.Is(t, "files", len(files(t, filepath.Join(dir, "talks"))), 0)
}

func TestAStreamThatIsNoLongerCollected(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, small(dir), nil)
	put(t, s, "talks", sinktest.Record("1", `1`))
	p := synced(t, s)
	die(s)
	s = small(dir)
	if err := s.Open(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	sinktest.Is(t, "rows", len(rows(t, dir, "talks")), 1)
	sinktest.Is(t, "position", string(synced(t, s)), string(p))
	closed(t, s)
}

func TestWhatIsLostIsAnErrorAndNothingIsChanged(t *testing.T) {
	begin := func(t *testing.T) (dir string, p json.RawMessage) {
		dir = t.TempDir()
		s := opened(t, small(dir), nil)
		for i := range 3 { // two complete parts and a spool
			put(t, s, "talks", sinktest.Record(fmt.Sprint(i), `"`+strings.Repeat("x", 250-i*100)+`"`))
			put(t, s, "talks", sinktest.Record(fmt.Sprint(i), `"`+strings.Repeat("y", 70-i*20)+`"`))
			p = synced(t, s)
		}
		closed(t, s)
		sinktest.Is(t, "position", strings.Contains(string(p), `"talks":{"part":3,"spool":104}`), true)
		return dir, p
	}
	for name, c := range map[string]struct {
		harm func(in string) error
		says string
	}{
		"part missing":  {func(in string) error { return os.Remove(filepath.Join(in, partName(1))) }, "part-000001.parquet is missing"},
		"part empty":    {func(in string) error { return os.Truncate(filepath.Join(in, partName(1)), 0) }, "part-000001.parquet is empty"},
		"part damaged":  {func(in string) error { return os.Truncate(filepath.Join(in, partName(2)), 100) }, "part-000002.parquet is damaged"},
		"spool missing": {func(in string) error { return os.Remove(filepath.Join(in, spoolName(3))) }, ".part-000003.jsonl is missing"},
		"spool cut":     {func(in string) error { return os.Truncate(filepath.Join(in, spoolName(3)), 103) }, "has 103 bytes of the 104"},
		"another spool": {func(in string) error {
			return os.WriteFile(filepath.Join(in, spoolName(3)), []byte(strings.Repeat("x", 200)), 0o600)
		}, "no end of a line after the 104 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, p := begin(t)
			in := filepath.Join(dir, "talks")
			if err := c.harm(in); err != nil {
				t.Fatal(err)
			}
			before := files(t, in)
			err := small(dir).Open(t.Context(), p, sample)
			if _, ok := errors.AsType[*LostError](err); !ok {
				t.Errorf("got %v, want a LostError", err)
			}
			sinktest.Says(t, err, c.says, in, "restore", "--fresh")
			sinktest.Is(t, "files", files(t, in), before)
		})
	}
	t.Run("the part that grows", func(t *testing.T) {
		dir, p := begin(t)
		if err := os.Truncate(filepath.Join(dir, "talks", partName(3)), 20); err != nil {
			t.Fatal(err)
		}
		opened(t, small(dir), p)
		sinktest.Is(t, "rows", len(rows(t, dir, "talks")), 6) // made again of the spool
	})
	t.Run("a line", func(t *testing.T) {
		dir, p := begin(t)
		path := filepath.Join(dir, "talks", spoolName(3))
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[3] = '\n'
		if err := errors.Join(os.WriteFile(path, b, 0o600), os.Remove(filepath.Join(dir, "talks", partName(3)))); err != nil {
			t.Fatal(err)
		}
		sinktest.Says(t, small(dir).Open(t.Context(), p, sample), "is damaged in line 1", path)
	})
}

func TestForeignPartsAreNotTouched(t *testing.T) {
	for _, name := range []string{"part-000007.parquet", ".part-000001.jsonl"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "talks", name)
		plant(t, path, "mine")
		err := New(dir).Open(t.Context(), nil, sample)
		if f, ok := errors.AsType[*ForeignError](err); !ok || f.Path != path || f.Stream != "talks" {
			t.Errorf("got %v, want a ForeignError", err)
		}
		sinktest.Says(t, err, "move it away", "--fresh")
		b, err := os.ReadFile(path)
		sinktest.Is(t, "the file", fmt.Sprint(string(b), " ", err), "mine <nil>")
	}
	// Other files in the folder are their owner's.
	dir := t.TempDir()
	plant(t, filepath.Join(dir, "talks", "notes.parquet"), "mine")
	s := opened(t, small(dir), nil)
	put(t, s, "talks", sinktest.Record("1", `1`))
	p := synced(t, s)
	closed(t, s)
	closed(t, opened(t, small(dir), p))
	sinktest.Is(t, "files", files(t, filepath.Join(dir, "talks")), []string{".part-000001.jsonl", "notes.parquet", "part-000001.parquet"})
}

func TestSetAside(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	paths, err := New(dir).SetAside([]string{"talks"}, at)
	sinktest.Is(t, "nothing", fmt.Sprint(paths, err), "[] <nil>")
	for _, want := range []string{"talks.20260506T070809Z.bak", "talks.20260506T070809Z.2.bak"} {
		s := small(dir)
		if err := s.Open(t.Context(), nil, sample); err != nil {
			t.Fatal(err)
		}
		put(t, s, "talks", sinktest.Record("1", `1`))
		_, err = s.SetAside([]string{"talks"}, at)
		sinktest.Says(t, err, "before Open")
		synced(t, s)
		closed(t, s)
		paths, err := s.SetAside([]string{"talks", "messages"}, at)
		sinktest.Is(t, "aside", fmt.Sprint(paths, err), fmt.Sprintf("[%s] <nil>", filepath.Join(dir, want)))
		sinktest.Is(t, "rows aside", len(rows(t, dir, want)), 1)
	}
}

func TestOneSinkAFolder(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, New(dir), nil)
	if _, ok := errors.AsType[*LockedError](New(dir).Open(t.Context(), nil, sample)); !ok {
		t.Error("two sinks opened one folder")
	}
	sinktest.Says(t, s.Open(t.Context(), nil, sample), "open already")
	closed(t, s)
	closed(t, opened(t, New(dir), nil))
}

func TestWhatCannotBeWritten(t *testing.T) {
	s := opened(t, New(t.TempDir()), nil)
	for _, r := range []collect.Record{sinktest.Record("1", `{`), sinktest.Record("1", ``), sinktest.Record("1", "\"\xff\""), sinktest.Record("\xff", `1`), sinktest.Detail("\xff", "1", `1`)} {
		sinktest.Says(t, s.Write(t.Context(), "talks", []collect.Record{sinktest.Record("0", `1`), r}), "record 2 of 2", "not JSON in UTF-8")
	}
	sinktest.Says(t, s.Write(t.Context(), "x", []collect.Record{sinktest.Record("0", `1`)}), `stream "x" was not passed`)
	sinktest.Is(t, "position", strings.Contains(string(synced(t, s)), `"talks":{"part":1,"spool":0}`), true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Write(ctx, "talks", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	closed(t, s)
	closed(t, s)
	sinktest.Says(t, s.Write(t.Context(), "talks", nil), "not open")
	_, err := s.Sync(t.Context())
	sinktest.Says(t, err, "not open")
}

func TestPositionsAndNamesThatAreRefused(t *testing.T) {
	for _, p := range []string{
		`{"files":{}}`, `{`, `[]`, `{}`, `{"streams":{"a":{"part":0,"spool":0}}}`, `{"streams":{"a":{"part":1,"spool":-1}}}`,
		`{"streams":{"../a":{"part":1,"spool":0}}}`, `{"streams":{"a":{"part":1,"spool":0},"A":{"part":1,"spool":0}}}`,
	} {
		sinktest.Says(t, New(t.TempDir()).Open(t.Context(), json.RawMessage(p), sample), "no file was changed", "--fresh")
	}
	for _, name := range []string{"", ".a", "a/b", `a\b`, "a\n", "\xff", "a.bak", strings.Repeat("x", 181)} {
		sinktest.Says(t, New(t.TempDir()).Open(t.Context(), nil, []collect.StreamInfo{{Name: name}}), "rename the stream")
	}
	err := New(t.TempDir()).Open(t.Context(), nil, []collect.StreamInfo{{Name: "a b"}, {Name: "A_b"}})
	if !errors.Is(err, errShared) {
		t.Errorf("got %v, want that two streams share a folder", err)
	}
}

func page(n int) []collect.Record {
	text := strings.Repeat("lorem ipsum ", 67)
	records := make([]collect.Record, n)
	for i := range records {
		records[i] = sinktest.Record(fmt.Sprintf("item-%08d", i), fmt.Sprintf(`{"id":%d,"title":"Item %d","open":true,"score":%d.5,"tags":["a","b"],`+
			`"author":{"id":7,"name":"somebody"},"created":"2026-05-06T07:08:09Z","deleted":null,"n":12,"text":"%s"}`, i, i, i, text))
	}
	return records
}

// BenchmarkWriteSync is one slice of 100 records of 1 KB and 10 fields, on
// disk, with the parts that become complete on the way.
func BenchmarkWriteSync(b *testing.B) {
	s := New(b.TempDir())
	if err := s.Open(b.Context(), nil, sample); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	records := page(100)
	b.SetBytes(int64(len(records) * len(records[0].Data)))
	n := 0
	for b.Loop() {
		put(b, s, "talks", records...)
		synced(b, s)
		n += len(records)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkConvert makes a part of 10,000 records of 1 KB.
func BenchmarkConvert(b *testing.B) {
	s := New(b.TempDir())
	if err := s.Open(b.Context(), nil, sample); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	records := page(10_000)
	put(b, s, "talks", records...)
	synced(b, s)
	st := s.streams["talks"]
	b.SetBytes(st.Spool)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		st.published = 0
		if err := st.publish(); err != nil {
			b.Fatal(err)
		}
		n += len(records)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
