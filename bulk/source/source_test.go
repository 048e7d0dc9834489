package source_test

import (
	"bytes"
	"compress/gzip"
	stdcsv "encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/bulk/source"
	"github.com/headway-go/headway/internal/golden"
)

func file(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, path string, o source.Options) *source.Input {
	t.Helper()
	in, err := source.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	return in
}

// all reads an input: "line: row", or "line! error" for a malformed one.
func all(in bulk.Source) (rows []string, err error) {
	for {
		row, err := in.Next()
		if bad, ok := errors.AsType[*bulk.MalformedError](err); ok {
			rows = append(rows, fmt.Sprintf("%d! %v", bad.Line, bad.Err))
			continue
		}
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rows = append(rows, fmt.Sprintf("%d: %s", row.Line, row.Data))
	}
}

func check(t *testing.T, in bulk.Source, want ...string) {
	t.Helper()
	got, err := all(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestJSONLines(t *testing.T) {
	text := "\ufeff{\"a\":1}\n\n  {\"b\": \"x\"}  \r\nnope\n[1]\n{\"long\":\"" + strings.Repeat("x", 100) + "\"}\n{\"c\":\xff}\n{\"last\":true}"
	check(t, open(t, file(t, "rows.jsonl", []byte(text)), source.Options{MaxRow: 50}),
		`1: {"a":1}`, `3: {"b": "x"}`, "4! it is not JSON", "5! it is JSON, but not an object",
		"6! it is longer than 50 bytes", "7! it is not UTF-8", `8: {"last":true}`)
	check(t, open(t, file(t, "rows.ndjson", nil), source.Options{}))
}

func TestPositionsAreThoseOfTheText(t *testing.T) {
	in := open(t, file(t, "rows.jsonl", []byte("{}\n{\"a\":1}\n\n{}\n")), source.Options{})
	for _, want := range []bulk.Position{{Line: 1, Offset: 0}, {Line: 2, Offset: 3}, {Line: 4, Offset: 12}} {
		row, err := in.Next()
		if err != nil || row.Position != want {
			t.Errorf("%+v, %v, want %+v", row.Position, err, want)
		}
	}
}

func TestARowAtTheBound(t *testing.T) {
	row := `{"a":"` + strings.Repeat("x", 42) + `"}`
	for _, end := range []string{"", "\n", "\r\n"} {
		check(t, open(t, file(t, "rows.jsonl", []byte(row+end)), source.Options{MaxRow: 50}), "1: "+row)
	}
	check(t, open(t, file(t, "rows.jsonl", []byte(row)), source.Options{MaxRow: 49}), "1! it is longer than 49 bytes")
}

func TestARejectFileIsFedAgain(t *testing.T) {
	text := bulk.RejectsPreamble +
		`{"row":{"id":1},"number":7,"line":8,"error":{"status":400,"message":"no"}}` + "\n" +
		`{"text":"{oops","number":9,"line":10,"error":{"message":"it is not JSON"}}` + "\n" +
		`{"row":{"id":2},"text":"{oops","number":9}` + "\n" + `{"number":1}` + "\n"
	check(t, open(t, file(t, "rejects.jsonl", []byte(text)), source.Options{}),
		`2: {"id":1}`, `3! it still has the text that could not be read: correct that and write it as "row"`, `4: {"id":2}`,
		`5! its "row" is missing or not an object`)
}

// JSON allows white space after a number, and a row is one line.
func TestANumberBeforeALineBreak(t *testing.T) {
	o := source.Options{CSV: source.CSVOptions{Types: map[string]source.Type{"n": source.Number}}}
	check(t, open(t, file(t, "rows.csv", []byte("n\n\"12\n\"\n\"1\r\n\"\n\" 3\"\n")), o), `2: {"n":12}`, `4: {"n":1}`, `6! field 1 is not a number`)
}

// A whole file whose lines end as on an old Macintosh would be a header without
// rows.
func TestLinesThatEndInACarriageReturnAlone(t *testing.T) {
	in, err := source.Open(file(t, "rows.csv", []byte("id,name\r1,a\r2,b\r")), source.Options{})
	if err == nil || in != nil || !strings.Contains(err.Error(), "the name of column 2 contains a carriage return") {
		t.Errorf("got %v", err)
	}
	check(t, open(t, file(t, "quoted.csv", []byte("id,\"a\rb\"\r\n1,2\r\n")), source.Options{}), `2: {"id":"1","a\rb":"2"}`)
}

func TestCSV(t *testing.T) {
	text := "id,name,n,ok,more\n" +
		"1,\"Müller, \"\"Jo\"\"\",1.50,true,\"{\"\"a\"\":\n[1]}\"\n" +
		"\n" +
		"2,,,,\n" +
		"3,\"\",x,,\n" +
		"4,a,1,maybe,\n" +
		"5,a,1\n" +
		"6,a\"b,1,true,\n" +
		"7,\"a\"b,1,true,\n" +
		"8,\"two\nlines\",-2,FALSE,null\n" +
		"9,\xff,,,\n" +
		"10,\"open,1,true,\n" +
		"11,last,1e3,0,\"[]\""
	check(t, open(t, file(t, "rows.csv", []byte(text)), source.Options{CSV: source.CSVOptions{
		Types: map[string]source.Type{"n": source.Number, "ok": source.Boolean, "more": source.JSON},
	}}),
		`2: {"id":"1","name":"Müller, \"Jo\"","n":1.50,"ok":true,"more":{"a":[1]}}`,
		`5: {"id":"2","name":null,"n":null,"ok":null,"more":null}`,
		`6! field 3 is not a number`, `7! field 4 is neither true nor false`, `8! it has 3 fields, the header 5`,
		`9! an unquoted field contains a quote; quote the field and double the quote`,
		`10! there is text after a closing quote`,
		`11: {"id":"8","name":"two\nlines","n":-2,"ok":false,"more":null}`,
		`13! field 2 is not UTF-8`, `14! a quote is not closed`,
		`15: {"id":"11","name":"last","n":1e3,"ok":false,"more":[]}`)
}

// An open quote costs the line that it stands in and no other.
func TestAnOpenQuote(t *testing.T) {
	var b strings.Builder
	b.WriteString("a,b\n")
	for i := range 100_000 {
		if i == 70_000 {
			b.WriteString("\"oops,1\n")
			continue
		}
		fmt.Fprintf(&b, "%d,x\n", i)
	}
	rows, err := all(open(t, file(t, "rows.csv", []byte(b.String())), source.Options{MaxRow: 10_000}))
	if err != nil || len(rows) != 100_000 || rows[70_000] != "70002! a quote is not closed" || rows[70_001] != `70003: {"a":"70001","b":"x"}` {
		t.Errorf("%d rows, %v, %.200q", len(rows), err, rows[70_000:70_002])
	}
}

func TestCSVOptions(t *testing.T) {
	in := open(t, file(t, "rows.txt", []byte("1;2\n")), source.Options{Format: source.CSV, CSV: source.CSVOptions{Comma: ';', Columns: []string{"x", "y"}}})
	check(t, in, `1: {"x":"1","y":"2"}`)
	if got := in.Identity().Format; !strings.Contains(got, `comma ';', columns ["x" "y"]`) {
		t.Errorf("the format is %s", got)
	}
	for want, o := range map[string]source.CSVOptions{
		`comma is '"'`:                              {Comma: '"'},
		`type of column x is "date"`:                {Types: map[string]source.Type{"x": "date"}},
		"given for column zz, which does not exist": {Types: map[string]source.Type{"zz": source.Text}},
	} {
		if _, err := source.Open(file(t, "rows.csv", []byte("a,b\n")), source.Options{CSV: o}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for text, want := range map[string]string{"a,a\n": "column 2's name twice", "a,\n": "no name for column 2", "\"a\n": "the header: line 1: malformed row: a quote is not closed"} {
		if _, err := source.Open(file(t, "rows.csv", []byte(text)), source.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// What the standard library writes is read as it was.
func TestCSVIsRFC4180(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		cell := rapid.StringOf(rapid.SampledFrom([]rune("ab,\"\n ü\\;\t")))
		width := rapid.IntRange(1, 4).Draw(r, "width")
		var b bytes.Buffer
		w := stdcsv.NewWriter(&b)
		var want []map[string]any
		for range rapid.IntRange(0, 6).Draw(r, "rows") {
			record, row := make([]string, width), map[string]any{}
			for i := range record {
				record[i] = cell.Draw(r, "cell")
				if row[fmt.Sprint("c", i)] = record[i]; record[i] == "" {
					row[fmt.Sprint("c", i)] = nil
				}
			}
			if width == 1 && record[0] == "" {
				continue // a blank line
			}
			want = append(want, row)
			if err := w.Write(record); err != nil {
				r.Fatal(err)
			}
		}
		w.Flush()
		names := make([]string, width)
		for i := range names {
			names[i] = fmt.Sprint("c", i)
		}
		in, err := source.Open(file(t, "rows.csv", b.Bytes()), source.Options{CSV: source.CSVOptions{Columns: names}})
		if err != nil {
			r.Fatal(err)
		}
		defer func() { _ = in.Close() }()
		var got []map[string]any
		for {
			row, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				r.Fatal(err)
			}
			var v map[string]any
			if err := json.Unmarshal(row.Data, &v); err != nil {
				r.Fatal(err)
			}
			got = append(got, v)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			r.Fatal(diff)
		}
	})
}

func compressed(t testing.TB, kind, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if kind == "zst" {
		var err error
		if w, err = zstd.NewWriter(&b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCompressedInputs(t *testing.T) {
	text := strings.Repeat("{\"a\":1}\n", 10_000)
	for _, kind := range []string{"gz", "zst"} {
		whole := compressed(t, kind, text)
		rows, err := all(open(t, file(t, "rows.jsonl."+kind, whole), source.Options{}))
		if err != nil || len(rows) != 10_000 || rows[9999] != `10000: {"a":1}` {
			t.Errorf("%s: %d rows, %v", kind, len(rows), err)
		}
		if err := read(file(t, "rows.jsonl."+kind, whole[:len(whole)-5])); err == nil {
			t.Errorf("%s: cut off, and no error", kind)
		}
		damaged := bytes.Clone(whole)
		damaged[len(damaged)-3] ^= 0xff
		if err := read(file(t, "rows.jsonl."+kind, damaged)); err == nil {
			t.Errorf("%s: damaged, and no error", kind)
		}
	}
	check(t, open(t, file(t, "rows.csv.gz", compressed(t, "gz", "a\n1\n")), source.Options{}), `2: {"a":"1"}`)
}

// read opens and reads an input for its error alone.
func read(path string) error {
	in, err := source.Open(path, source.Options{})
	if err != nil {
		return err
	}
	_, err = all(in)
	return errors.Join(err, in.Close())
}

// A bomb is a long line.
func TestABomb(t *testing.T) {
	for _, kind := range []string{"gz", "zst"} {
		bomb := compressed(t, kind, strings.Repeat(" ", 64<<20)+"\n{}\n")
		check(t, open(t, file(t, "rows.jsonl."+kind, bomb), source.Options{}), "1! it is longer than 1048576 bytes", "2: {}")
	}
}

func TestIdentity(t *testing.T) {
	a := open(t, file(t, "a.jsonl", []byte("{}\n")), source.Options{}).Identity()
	b := open(t, file(t, "b.jsonl", []byte("{}\n")), source.Options{}).Identity()
	c := open(t, file(t, "c.jsonl", []byte("[]\n")), source.Options{}).Identity()
	if a.Size != 3 || a.Hash == "" || a.Hash != b.Hash || a.Hash == c.Hash || a.Stream() {
		t.Errorf("%+v, %+v, %+v", a, b, c)
	}
}

func TestStandardInput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if _, err := w.WriteString("{\"a\":1}\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	in := open(t, "-", source.Options{Stdin: r})
	if !in.Identity().Stream() {
		t.Error("a pipe cannot be read again")
	}
	check(t, in, `1: {"a":1}`)
	f, err := os.Open(file(t, "rows", []byte("{\"a\":1}\n")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	in = open(t, "-", source.Options{Stdin: f})
	if in.Identity().Stream() {
		t.Error("a file can be read again, also one that the caller opened")
	}
	check(t, in, `1: {"a":1}`)
}

func TestWhatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	for want, open := range map[string]func() (*source.Input, error){
		"format does not follow":     func() (*source.Input, error) { return source.Open(file(t, "rows.xlsx", nil), source.Options{}) },
		`format is "xlsx"`:           func() (*source.Input, error) { return source.Open("x", source.Options{Format: "xlsx"}) },
		"max row is -1 bytes":        func() (*source.Input, error) { return source.Open("x.csv", source.Options{MaxRow: -1}) },
		"no such file":               func() (*source.Input, error) { return source.Open(filepath.Join(dir, "x.csv"), source.Options{}) },
		"there is no standard input": func() (*source.Input, error) { return source.Open("-", source.Options{}) },
		"is a folder":                func() (*source.Input, error) { return source.Open(dir, source.Options{Format: source.CSV}) },
		"not a readable Parquet file": func() (*source.Input, error) {
			return source.Open(file(t, "rows.parquet", []byte("PAR1 or not")), source.Options{})
		},
		"gzip: invalid header": func() (*source.Input, error) {
			return source.Open(file(t, "rows.csv", []byte("\x1f\x8bxxxxxxxxxx")), source.Options{})
		},
		"Parquet is read from its end": func() (*source.Input, error) { return pipe(t) },
	} {
		if in, err := open(); err == nil || in != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func pipe(t testing.TB) (*source.Input, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return source.Open("-", source.Options{Stdin: r, Format: source.Parquet})
}

// Whatever an input holds, every line of it is a row, malformed, or blank, and
// each row is one JSON object.
func FuzzText(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte("{\"a\":1}\n\n{oops\n"), false)
	f.Add([]byte("a,b\n1,\"x\ny\"\n\"open\n"), true)
	f.Add([]byte(bulk.RejectsPreamble+`{"row":{"id":1}}`), false)
	f.Fuzz(func(t *testing.T, text []byte, csv bool) {
		o := source.Options{MaxRow: 64, Format: source.JSONLines}
		if csv {
			o.Format = source.CSV
		}
		in, err := source.Open(file(t, "rows", text), o)
		if err != nil {
			return
		}
		defer func() { _ = in.Close() }()
		lines, last := int64(bytes.Count(text, []byte("\n"))+1), int64(0)
		for {
			row, err := in.Next()
			if _, bad := errors.AsType[*bulk.MalformedError](err); err != nil && !bad {
				return
			}
			if row.Line <= last || row.Line > lines {
				t.Fatalf("line %d of %d after line %d", row.Line, lines, last)
			}
			last = row.Line
			if err == nil && (!json.Valid(row.Data) || row.Data[0] != '{' || bytes.ContainsAny(row.Data, "\n")) {
				t.Fatalf("row %q", row.Data)
			}
		}
	})
}

func ExampleOpen() {
	path := filepath.Join(os.TempDir(), "headway-example.csv")
	if err := os.WriteFile(path, []byte("id,name\n7,Ann\n8\n"), 0o600); err != nil {
		panic(err)
	}
	defer func() { _ = os.Remove(path) }()
	in, err := source.Open(path, source.Options{CSV: source.CSVOptions{Types: map[string]source.Type{"id": source.Number}}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = in.Close() }()
	row, err := in.Next()
	fmt.Println(row.Line, string(row.Data), err)
	_, err = in.Next()
	fmt.Println(err)
	_, err = in.Next()
	fmt.Println(err)
	// Output:
	// 2 {"id":7,"name":"Ann"} <nil>
	// line 3: malformed row: it has 1 fields, the header 2
	// EOF
}

// TestEstimate guesses how many rows an input has from its first ones.
func TestEstimate(t *testing.T) {
	const rows = 10_000
	dir := t.TempDir()
	var text strings.Builder
	type row struct{ ID int64 }
	all := make([]row, rows)
	for n := range rows {
		fmt.Fprintf(&text, "{\"id\":%06d}\n", n+100000)
		all[n].ID = int64(n)
	}
	lines, table := filepath.Join(dir, "rows.jsonl"), filepath.Join(dir, "rows.parquet")
	if err := os.WriteFile(lines, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := parquet.WriteFile(table, all); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{lines, table} {
		in, err := source.Open(path, source.Options{})
		if err != nil {
			t.Fatal(err)
		}
		offset := int64(0)
		for range 100 {
			r, err := in.Next()
			if err != nil {
				t.Fatal(err)
			}
			offset = r.Offset
		}
		if got := in.Estimate(100, offset); got < rows*99/100 || got > rows*101/100 {
			t.Errorf("%s: %d rows estimated, it has %d", filepath.Base(path), got, rows)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
}
