package source_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/bulk/source"
	"github.com/headway-go/headway/internal/golden"
)

func parquetFile[T any](t testing.TB, rows []T, o ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, o...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestParquetValues(t *testing.T) {
	type row struct {
		ID      int64     `parquet:"id"`
		Name    *string   `parquet:"name,optional"`
		Small   uint32    `parquet:"small"`
		OK      bool      `parquet:"ok"`
		Price   int64     `parquet:"price,decimal(2:18)"`
		At      time.Time `parquet:"at,timestamp(microsecond)"`
		Day     int32     `parquet:"day,date"`
		UUID    [16]byte  `parquet:"uuid,uuid"`
		Bytes   []byte    `parquet:"bytes"`
		Ratio   float64   `parquet:"ratio"`
		Doc     string    `parquet:"doc,json"`
		Tags    []string  `parquet:"tags,list"`
		Plain   []int32   `parquet:"plain"`
		Address struct {
			City string `parquet:"city"`
		} `parquet:"address"`
		Scores map[string]float32 `parquet:"scores"`
	}
	a := row{
		ID: math.MaxInt64, Name: new("Jo \"x\"\n"), Small: math.MaxUint32, OK: true, Price: -1205, At: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
		Day: 20000, UUID: [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, Bytes: []byte{0xff, 0}, Ratio: 0.1,
		Doc: "{\"a\":\n1}", Tags: []string{"x", "y"}, Plain: []int32{1, 2, 3}, Scores: map[string]float32{"m": 1.5},
	}
	a.Address.City = "Zürich"
	b := row{Doc: "null", Ratio: math.NaN()}
	c := row{Doc: "1", Price: 5}
	in := open(t, file(t, "rows.parquet", parquetFile(t, []row{a, b, c})), source.Options{})
	first, err := in.Next()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":9223372036854775807,"name":"Jo \"x\"\n","small":4294967295,"ok":true,"price":"-12.05",` +
		`"at":"2026-01-02T03:04:05.000006Z","day":"2024-10-04","uuid":"01020304-0506-0708-090a-0b0c0d0e0f10","bytes":"/wA=",` +
		`"ratio":0.1,"doc":{"a":1},"tags":["x","y"],"plain":[1,2,3],"address":{"city":"Zürich"},"scores":{"m":1.5}}`
	if diff := cmp.Diff(fields(t, want), fields(t, string(first.Data))); diff != "" {
		t.Error(diff)
	}
	if _, err := in.Next(); err == nil || !strings.Contains(err.Error(), "row 2: it holds a number that JSON does not have") {
		t.Errorf("NaN: %v", err)
	} else if _, ok := errors.AsType[*bulk.MalformedError](err); !ok {
		t.Errorf("NaN ends the input: %v", err)
	}
	third, err := in.Next()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"price": `"0.05"`, "name": "null", "tags": "[]", "plain": "[]", "scores": "{}", "doc": "1"} {
		if got := fields(t, string(third.Data))[name]; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// fields are the raw values of an object: numbers with every digit.
func fields(t testing.TB, object string) map[string]string {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &raw); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	out := map[string]string{}
	for k, v := range raw {
		out[k] = string(v)
	}
	return out
}

type nested struct {
	ID    int32   `json:"id" parquet:"id"`
	Inner *inner  `json:"inner" parquet:"inner,optional"`
	Many  []inner `json:"many" parquet:"many,list"`
	Bare  []inner `json:"bare" parquet:"bare"`
}

type inner struct {
	A *int32     `json:"a" parquet:"a,optional"`
	L []string   `json:"l" parquet:"l,list"`
	M [][]int64  `json:"m" parquet:"m,list"`
	D []*float64 `json:"d" parquet:"d"`
}

// Nested rows are read as they were written.
func TestParquetNests(t *testing.T) {
	draw := rapid.Custom(func(r *rapid.T) inner {
		var a *int32
		if rapid.Bool().Draw(r, "has a") {
			a = new(rapid.Int32().Draw(r, "a"))
		}
		return inner{A: a, L: rapid.SliceOfN(rapid.StringMatching("[a-z\"]{0,3}"), 0, 3).Draw(r, "l")}
	})
	rapid.Check(t, func(r *rapid.T) {
		var rows []nested
		for i := range rapid.IntRange(1, 150).Draw(r, "rows") {
			n := nested{ID: int32(i), Many: rapid.SliceOfN(draw, 0, 3).Draw(r, "many"), Bare: rapid.SliceOfN(draw, 0, 2).Draw(r, "bare")}
			if rapid.Bool().Draw(r, "has inner") {
				n.Inner = new(draw.Draw(r, "inner"))
			}
			rows = append(rows, n)
		}
		in := open(t, file(t, "rows.parquet", parquetFile(t, rows, parquet.MaxRowsPerRowGroup(40))), source.Options{})
		got, err := all(in)
		if err != nil || len(got) != len(rows) {
			r.Fatalf("%d rows of %d, %v", len(got), len(rows), err)
		}
		for i, n := range rows {
			want, err := json.Marshal(n)
			if err != nil {
				r.Fatal(err)
			}
			text := strings.ReplaceAll(string(want), "null", "[]") // empty lists are not nil
			have := strings.ReplaceAll(strings.TrimPrefix(got[i], "0: "), "null", "[]")
			if diff := cmp.Diff(decoded(t, text), decoded(t, have)); diff != "" {
				r.Fatalf("row %d: %s\n%s\n%s", i, diff, text, have)
			}
		}
	})
}

func decoded(t testing.TB, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func FuzzParquet(f *testing.F) {
	golden.Seeds(f)
	rows := []nested{{ID: 1, Many: []inner{{L: []string{"x"}}}}, {ID: 2}}
	f.Add(parquetFile(f, rows))
	f.Add(parquetFile(f, rows, parquet.Compression(&parquet.Zstd)))
	f.Add([]byte("PAR1PAR1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := source.Open(file(t, "rows.parquet", b), source.Options{})
		if err != nil {
			return
		}
		defer func() { _ = in.Close() }()
		for range 1000 {
			row, err := in.Next()
			if _, bad := errors.AsType[*bulk.MalformedError](err); err != nil && !bad {
				return
			}
			if err == nil && !json.Valid(row.Data) {
				t.Fatalf("row %q", row.Data)
			}
		}
	})
}
