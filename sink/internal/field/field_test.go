package field_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/sink/internal/field"
)

func TestRead(t *testing.T) {
	for raw, want := range map[string]field.Value{
		`null`:                         {Kind: field.Null, Exact: true},
		`true`:                         {Kind: field.Boolean, Int: 1, Exact: true},
		`false`:                        {Kind: field.Boolean, Exact: true},
		`0`:                            {Kind: field.Integer, Exact: true},
		`-0`:                           {Kind: field.Integer},
		`9223372036854775807`:          {Kind: field.Integer, Int: math.MaxInt64, Exact: true},
		`-9223372036854775808`:         {Kind: field.Integer, Int: math.MinInt64, Exact: true},
		`9223372036854775808`:          {Kind: field.Text, Text: "9223372036854775808"},
		`1.50`:                         {Kind: field.Real, Real: 1.5, Exact: true},
		`1e2`:                          {Kind: field.Real, Real: 100, Exact: true},
		`120E-1`:                       {Kind: field.Real, Real: 12, Exact: true},
		`0.000`:                        {Kind: field.Real, Exact: true},
		`0e999999999999`:               {Kind: field.Real, Exact: true},
		`0.1`:                          {Kind: field.Real, Real: 0.1, Exact: true},
		`0.30000000000000004`:          {Kind: field.Real, Real: 0.30000000000000004, Exact: true},
		`0.1000000000000000055511`:     {Kind: field.Text, Text: "0.1000000000000000055511"},
		`1e309`:                        {Kind: field.Text, Text: "1e309"},
		`1e-400`:                       {Kind: field.Text, Text: "1e-400"},
		`5e-324`:                       {Kind: field.Real, Real: 5e-324, Exact: true},
		`1e99999999999999999999`:       {Kind: field.Text, Text: "1e99999999999999999999"},
		`""`:                           {Kind: field.Text, Exact: true},
		`"a\n\u00e9\ud83d\ude00"`:      {Kind: field.Text, Text: "a\né😀", Exact: true},
		`"\ufffd"`:                     {Kind: field.Text, Text: "\uFFFD", Exact: true},
		`"\ud800"`:                     {Kind: field.Text, Text: "\uFFFD"},
		`"\\ufffd\uD800"`:              {Kind: field.Text, Text: "\\ufffd\uFFFD"},
		`[1,"]"]`:                      {Kind: field.JSON, Text: `[1,"]"]`, Exact: true},
		`{"a":{}}`:                     {Kind: field.JSON, Text: `{"a":{}}`, Exact: true},
		`123456789012345678901234567e`: {Kind: field.Text, Text: "123456789012345678901234567e"}, // not JSON: no panic
	} {
		if got := field.Read([]byte(raw)); got != want {
			t.Errorf("%s is %+v, want %+v", raw, got, want)
		}
	}
}

func TestSplit(t *testing.T) {
	var s field.Splitter
	for record, want := range map[string]string{
		`{}`: "",
		`{"a":1,"b":"x,}\"","c":[1,{"d":2}],"e":{"f":[]},"g":null}`: `a=1 b="x,}\"" c=[1,{"d":2}] e={"f":[]} g=null`,
		`{"a":1,"b":2,"a":3}`:                "a=3 b=2",
		`{"a\"b":{"a\"b":"{"}}`:              `a"b={"a\"b":"{"}`,
		`{"\u0061":1,"a":2}`:                 "a=2",
		`{"\ud800":1,"\ud801":2,"\ud800":3}`: "\uFFFD=1 \uFFFD=2 \uFFFD=3",
	} {
		fields, object := s.Split([]byte(record))
		var got []string
		for _, f := range fields {
			got = append(got, f.Name+"="+string(f.Raw))
		}
		if strings.Join(got, " ") != want || !object {
			t.Errorf("%s has %v, %v; want %s", record, got, object, want)
		}
	}
	for _, record := range []string{`[]`, `1`, `"{}"`, `null`} {
		if fields, object := s.Split([]byte(record)); object || len(fields) > 0 {
			t.Errorf("%s is an object", record)
		}
	}
}

func TestElements(t *testing.T) {
	for array, want := range map[string]string{`[]`: "", `[1]`: "1", `["a,]","",[1,2],{"x":[]}]`: `"a,]" "" [1,2] {"x":[]}`} {
		if got := string(bytes.Join(field.Elements([]byte(array)), []byte(" "))); got != want {
			t.Errorf("%s has %s, want %s", array, got, want)
		}
	}
}

func TestRest(t *testing.T) {
	var r field.Rest
	if _, ok := r.Take(); ok {
		t.Error("an empty rest has an object")
	}
	for range 2 { // it is empty again after Take
		r.Add(field.Field{Quoted: []byte(`"a"`), Raw: []byte(`1`)})
		r.Add(field.Field{Quoted: []byte(`"b"`), Raw: []byte(`{}`)})
		if got, ok := r.Take(); got != `{"a":1,"b":{}}` || !ok {
			t.Errorf("got %s, %v", got, ok)
		}
	}
}

func TestRecord(t *testing.T) {
	var b bytes.Buffer
	if !field.Record(&b, []byte("{\n \"a\" : [ 1 ]\r\n}")) || b.String() != `{"a":[1]}` {
		t.Errorf("got %s", b.String())
	}
	for _, bad := range []string{"", " ", "{", "1 2", "\"\xff\"", "nul"} {
		if field.Record(&b, []byte(bad)) || b.String() != `{"a":[1]}` {
			t.Errorf("%q was taken: %s", bad, b.String())
		}
	}
}

func TestNameable(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "é x\"": true, strings.Repeat("x", field.MaxName): true,
		"": false, "a\x00": false, "\x7f": false, strings.Repeat("x", field.MaxName+1): false,
	} {
		if got := field.Nameable(field.Field{Name: name, Exact: true}); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
	if field.Nameable(field.Field{Name: "\uFFFD"}) {
		t.Error("a name that is not exact has a column")
	}
}

// FuzzSplit takes any record apart and compares with encoding/json.
func FuzzSplit(f *testing.F) {
	golden.Seeds(f)
	for _, seed := range []string{`{"a":1,"b":[{"c":"d"}]}`, `{"\ud800":"\\"}`, `{"a":-0.10E+3,"a":null}`, `[1]`, `""`} {
		f.Add([]byte(seed))
	}
	var s field.Splitter
	f.Fuzz(func(t *testing.T, data []byte) {
		var b bytes.Buffer
		if !field.Record(&b, data) {
			return
		}
		var want map[string]json.RawMessage
		fields, object := s.Split(b.Bytes())
		if !object {
			return
		}
		if err := json.Unmarshal(b.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		got := map[string]json.RawMessage{}
		for _, f := range fields {
			got[f.Name] = f.Raw
			check(t, f.Raw)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s has %s, want %s", b.Bytes(), got, want)
		}
	})
}

// check holds a value against what encoding/json makes of it.
func check(t *testing.T, raw []byte) {
	t.Helper()
	v := field.Read(raw)
	switch {
	case !v.Exact:
	case v.Kind == field.Integer && strconv.FormatInt(v.Int, 10) != string(raw):
		t.Errorf("%s is the integer %d", raw, v.Int)
	case v.Kind == field.Real:
		if f, err := strconv.ParseFloat(string(raw), 64); err != nil || f != v.Real {
			t.Errorf("%s is the real %v, %v", raw, v.Real, err)
		}
	case v.Kind == field.Text:
		var s string
		if err := json.Unmarshal(raw, &s); err != nil || s != v.Text {
			t.Errorf("%s is the text %q", raw, v.Text)
		}
	case v.Kind == field.JSON && !slices.Equal([]byte(v.Text), raw):
		t.Errorf("%s is %s", raw, v.Text)
	}
}
