package rawjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/golden"
)

// seeds are values and near misses of every kind.
var seeds = []string{
	``, ` `, `null`, `true`, `false`, `nul`, `truee`, `tru`, `0`, `-0`, `-`, `01`, `1.`, `1.5`, `.5`, `1e`, `1e5`, `1E+05`, `1e-`, `--1`, `+1`,
	`""`, `"`, `"a`, `"\"`, `"\\"`, `"\x"`, `"\u12"`, `"\u12aF"`, `"\u12g4"`, "\"\x1f\"", "\"\x7f\"", "\"\n\"", "\"\xff\xfe\"", "\"\u2028 long enough for eight\"",
	`"1234567"`, `"12345678"`, `"123456789"`, `"1234567\n89"`, "\"12345678\x00\"", `[]`, `[ ]`, `[1,]`, `[,1]`, `[1 2]`, `[1,2 ]`, `[`, `]`, `[]]`,
	`{}`, `{ }`, `{"a":1}`, `{"a" : [ { "b" : null } , "x y" ] }`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{"a":1 "b":2}`, `{`, `{"a":1`, `{"a"`, "\t{}\r\n", "{}x", "\ufeff{}",
	"\v1", "1\v", `{"a\" :  b":" \\"}`,
}

func TestEdges(t *testing.T) {
	for _, s := range seeds {
		check(t, []byte(s))
	}
	for _, n := range []int{maxDepth - 1, maxDepth, maxDepth + 1} {
		check(t, []byte(strings.Repeat("[", n)+strings.Repeat("]", n)))
		check(t, []byte(strings.Repeat(`{"":`, n)+"1"+strings.Repeat("}", n)))
	}
}

func FuzzValid(f *testing.F) {
	golden.Seeds(f)
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(check)
}

// check compares with encoding/json.
func check(t *testing.T, b []byte) {
	before := bytes.Clone(b)
	want := json.Valid(b)
	if got := Valid(b); got != want {
		t.Fatalf("Valid(%.100q) is %t, json.Valid says %t", b, got, want)
	}
	if !want {
		return
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, b); err != nil {
		t.Fatal(err)
	}
	if got := Compact(b); !bytes.Equal(got, compact.Bytes()) || cap(got) > len(b) {
		t.Fatalf("Compact(%.100q) is %.100q with room for %d, json.Compact gives %.100q", b, got, cap(got), compact.Bytes())
	}
	const white = " \t\r\n"
	from, to := len(b)-len(bytes.TrimLeft(b, white)), len(bytes.TrimRight(b, white))
	if end, tight := Extent(b, from); end != to || tight != (compact.Len() == to-from) {
		t.Fatalf("Extent of %.100q is %d, compact %t; want %d and %d bytes once compact", b, end, tight, to, compact.Len())
	}
	if !bytes.Equal(b, before) {
		t.Fatalf("%.100q became %.100q", before, b)
	}
}

func BenchmarkValid(b *testing.B) {
	page := []byte(`[` + strings.Repeat(`{"id": "record-1", "title":"a title of some length","amount":12,"text":"`+strings.Repeat("lorem ", 12)+`"},`, 999) + `0]`)
	for name, f := range map[string]func([]byte) bool{"this": Valid, "encoding-json": json.Valid} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(page)))
			for b.Loop() {
				if !f(page) {
					b.Fatal()
				}
			}
		})
	}
}
