package singer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/sink/internal/sinkstate"
	"github.com/headway-go/headway/sink/internal/sinktest"
)

func opened(t *testing.T, w *bytes.Buffer, committed string, streams ...collect.StreamInfo) *Sink {
	t.Helper()
	s := New(w)
	if err := s.Open(t.Context(), json.RawMessage(committed), streams); err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *Sink, stream string, records ...collect.Record) {
	t.Helper()
	if err := s.Write(t.Context(), stream, records); err != nil {
		t.Fatal(err)
	}
}

// slice ends a slice as the runtime does.
func slice(t *testing.T, s *Sink) string {
	t.Helper()
	p, err := s.Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Committed(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// lines are the messages of a kind.
func lines(out *bytes.Buffer, kind string) (found []string) {
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, `{"type":"`+kind+`"`) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// TestMessages is a run of two slices, and one after it, to the letter.
func TestMessages(t *testing.T) {
	var out bytes.Buffer
	infos := []collect.StreamInfo{
		{Name: "chats", KeyField: "id"}, {Name: "messages", Parent: "chats", KeyField: "n"}, {Name: "tags"},
	}
	s := opened(t, &out, "", infos...)
	slice(t, s)
	put(t, s, "chats", sinktest.Record("1", `{"id":1,"title":"<a>","at":null}`), sinktest.Record("2", `{"id":2,"title":null,"size":3}`))
	put(t, s, "messages", sinktest.Detail("1", "1", `{"n":1,"by":{"name":"x"},"to":[]}`))
	slice(t, s)
	put(t, s, "chats", sinktest.Record("3", `{"id":3,"title":"c","size":4}`))             // nothing new to say
	put(t, s, "chats", sinktest.Record("4", `{"id":4,"title":5,"size":4.5,"open":true}`)) // wider, and one more
	put(t, s, "messages", sinktest.Detail("1", "2", `{"n":2,"by":"y","to":["a",{"b":1}]}`))
	put(t, s, "tags", sinktest.Record("red", `"red"`), sinktest.Record("7", ` [7,
		"seven"]`))
	committed := slice(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	out.WriteString("\n")
	s = opened(t, &out, committed, infos...)
	slice(t, s)
	put(t, s, "chats", sinktest.Record("1", `{"id":1,"title":6}`))
	slice(t, s)

	const file = "testdata/messages.jsonl"
	if golden.Updating() {
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAStateIsWrittenForCommittedSlicesOnly(t *testing.T) {
	var out bytes.Buffer
	s := opened(t, &out, "", collect.StreamInfo{Name: "a"})
	put(t, s, "a", sinktest.Record("1", `{}`))
	p, err := s.Sync(t.Context())
	if err != nil || len(lines(&out, "RECORD")) != 1 || len(lines(&out, "STATE")) != 0 {
		t.Fatalf("before the commit: %s, %v", out.String(), err)
	}
	// The process died after the commit, so the next one reports it.
	out.Reset()
	s = opened(t, &out, string(p), collect.StreamInfo{Name: "a"})
	slice(t, s)
	if out.String() != `{"type":"STATE","value":{"bookmarks":{"a":{"position":1}}}}`+"\n" {
		t.Errorf("got %s", out.String())
	}
}

func TestSchemasSurviveARestart(t *testing.T) {
	var out bytes.Buffer
	infos := []collect.StreamInfo{{Name: "a", KeyField: "id"}, {Name: "gone", KeyField: "id"}}
	s := opened(t, &out, "", infos...)
	put(t, s, "a", sinktest.Record("1", `{"id":1,"mixed":1,"deep":{"x":[[{"y":1.5}]],"empty":[],"none":{}}}`), sinktest.Record("2", `{"id":2,"mixed":"one"}`))
	put(t, s, "gone", sinktest.Record("1", `{"id":1}`))
	p := slice(t, s)
	before := lines(&out, "SCHEMA")[0]
	out.Reset()
	s = opened(t, &out, p, infos[:1]...)
	put(t, s, "a", sinktest.Record("3", `{"id":3,"mixed":2}`))
	if got := lines(&out, "SCHEMA"); len(got) != 0 {
		t.Errorf("before it is handed over: %s", got)
	}
	again := slice(t, s)
	if got := lines(&out, "SCHEMA"); len(got) != 1 || got[0] != before {
		t.Errorf("got %s, want %s", got, before)
	}
	if got := lines(&out, "RECORD"); len(got) != 1 || !strings.Contains(got[0], `"mixed":"2"`) {
		t.Errorf("got %s, want the text that the column is", got)
	}
	// A stream that the connection no longer has keeps its bookmark.
	if !strings.Contains(again, `"gone":{"position":1`) || !strings.Contains(lines(&out, "STATE")[0], `"gone":{"position":1}`) {
		t.Errorf("got %s", again)
	}
}

func TestBadRecordsLeaveNothing(t *testing.T) {
	var out bytes.Buffer
	s := opened(t, &out, "", collect.StreamInfo{Name: "a", KeyField: "id"}, collect.StreamInfo{Name: "b", Parent: "a"})
	many := make([]string, maxColumns+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"c%d":1`, i)
	}
	long := `"` + strings.Repeat("x", maxSize) + `":1`
	for _, bad := range []struct {
		stream, data string
		says         []string
	}{
		{"a", `{`, []string{"record 2 of 2", "not JSON"}},
		{"a", "\"\xff\"", []string{"not JSON in UTF-8"}},
		{"a", ``, []string{"not JSON"}},
		{"a", `7`, []string{"not an object", `"id"`}},
		{"a", `{"ID":1}`, []string{`the field "id"`, "0 times"}},
		{"a", `{"id":1,"id":2}`, []string{"2 times"}},
		{"a", `{"id":null}`, []string{"neither a text nor a number"}},
		{"a", `{"id":{"secret":1}}`, []string{"neither a text nor a number"}},
		{"a", `{"id":1,"_headway_parent":2}`, []string{"_headway_parent", "rename it"}},
		{"b", `{"_headway_key":1}`, []string{"_headway_key"}},
		{"b", `{"_headway_value":1}`, []string{"_headway_value"}},
		{"a", `{"id":1,` + strings.Join(many, ",") + `}`, []string{"1003 fields", "at most 1000", "records expression"}},
		{"a", `{"id":1,` + long + `}`, []string{"at most 65536"}},
		{"c", `{}`, []string{`stream "c"`, "not passed to Open"}},
	} {
		err := s.Write(t.Context(), bad.stream, []collect.Record{sinktest.Record("1", `{"id":1,"secret":2}`), sinktest.Record("2", bad.data)})
		sinktest.Says(t, err, append(bad.says, "singer: ", fmt.Sprintf("stream %q", bad.stream))...)
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error holds content: %v", err)
		}
	}
	if p := slice(t, s); p != `{"streams":{}}` || len(lines(&out, "RECORD"))+len(lines(&out, "SCHEMA")) != 0 {
		t.Errorf("position %s after %s", p, out.String())
	}
	put(t, s, "a", sinktest.Record("1", `{"id":1}`))
	put(t, s, "a")
	slice(t, s)
	if got := lines(&out, "SCHEMA"); len(got) != 1 || strings.Contains(got[0], "secret") {
		t.Errorf("something was learned of them: %s", got)
	}
}

// TestWhatIsLearnedIsBounded writes objects whose keys are data, deep objects, and objects
// with very many names. Their schema allows anything, and they arrive unchanged.
func TestWhatIsLearnedIsBounded(t *testing.T) {
	table := func(n, from int, of string, more ...string) string {
		var b []string
		for i := range n {
			b = append(b, fmt.Sprintf(`"key%06d%s":%s`, from+i, strings.Join(more, ""), of))
		}
		return "{" + strings.Join(b, ",") + "}"
	}
	deep := strings.Repeat(`{"x":[`, 50) + `"end"` + strings.Repeat(`]}`, 50)
	wide := `{"heavy":` + table(200, 0, "1", strings.Repeat("x", 300)) + `,"list":[1]}`
	for name, c := range map[string]struct{ data, other, schema string }{
		"keys are data": {table(300, 0, `{"n":1}`), table(300, 9000, `["x"]`), `"odd":{"type":["null","object"]}`},
		"very deep":     {deep, strings.ReplaceAll(deep, `"end"`, "7"), ``},
		"deep in list":  {"[" + deep + "]", "[" + strings.ReplaceAll(deep, `"end"`, "7") + "]", `"items":{}`},
		"very many": {
			table(100, 0, table(50, 0, table(3, 0, `1`))), table(100, 500, table(20, 0, table(3, 0, `"x"`))),
			`"key000000":{"type":["null","object"]}`,
		},
		"many in arrays": {"[" + table(100, 0, "["+table(50, 0, "[[1]]")+"]") + "]", "[" + table(100, 500, `"y"`) + "]", ``},
		"long names":     {wide, wide, `"heavy":{"type":["null","object"]},"list":{"type":["null","array"],"items":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			target := newTarget()
			s := New(target)
			if err := s.Open(t.Context(), nil, []collect.StreamInfo{{Name: "a", KeyField: "id"}}); err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				data := c.data
				if i%2 == 1 {
					data = c.other
				}
				put(t, s, "a", sinktest.Record(fmt.Sprint(i), fmt.Sprintf(`{"id":%d,"plain":1,"odd":%s}`, i, data)))
				p := slice(t, s)
				if len(p) > 4*maxSize || !strings.Contains(p, c.schema) {
					t.Fatalf("a position of %d bytes: %.500s", len(p), p)
				}
				got := target.tables["a"][fmt.Sprint(i)+"\x00"]["odd"]
				want, err := decoded(data)
				if err != nil || same(want, got) != nil {
					t.Fatalf("it arrived as something else: %v", same(want, got))
				}
				if i < 4 {
					continue
				}
				if target.schemas > 3 {
					t.Fatalf("%d schemas: the same is learned again and again", target.schemas)
				}
				// A restart knows as much.
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				target.session(json.RawMessage(p))
				if err := s.Open(t.Context(), json.RawMessage(p), []collect.StreamInfo{{Name: "a", KeyField: "id"}}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestABrokenPipeCommitsNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	s := New(w)
	if err := s.Open(t.Context(), nil, []collect.StreamInfo{{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	slice(t, s)
	put(t, s, "a", sinktest.Record("1", `{}`))
	p := slice(t, s)
	if err := r.Close(); err != nil { // the target died
		t.Fatal(err)
	}
	put(t, s, "a", sinktest.Record("2", `{}`)) // in the buffer
	if _, err := s.Sync(t.Context()); !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("got %v, want that the pipe is broken", err)
	} else {
		sinktest.Says(t, err, "singer: write the output", "has ended", "run again")
	}
	for _, again := range []error{
		s.Write(t.Context(), "a", []collect.Record{sinktest.Record("3", `{}`)}), s.Committed(t.Context(), json.RawMessage(p)),
		func() error { _, err := s.Sync(t.Context()); return err }(),
	} {
		if !errors.Is(again, syscall.EPIPE) {
			t.Errorf("afterwards: %v", again)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s = opened(t, &out, p, collect.StreamInfo{Name: "a"})
	put(t, s, "a", sinktest.Record("2", `{}`))
	if p := slice(t, s); !strings.Contains(p, `"position":2`) {
		t.Errorf("got %s", p)
	}
}

func TestCloseLeavesNoHalfMessage(t *testing.T) {
	target := newTarget() // refuses half a line
	s := New(target)
	if err := s.Open(t.Context(), nil, []collect.StreamInfo{{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		put(t, s, "a", sinktest.Record(fmt.Sprint(i), `{"text":"`+strings.Repeat("x", i*20)+`"}`))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(target.tables["a"]); n == 0 || n == 300 {
		t.Errorf("%d records were handed over, want some: the rest stays in the buffer", n)
	}
}

func TestContextsAndOrder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	s := New(&out)
	_, synced := s.Sync(t.Context())
	for _, err := range []error{synced, s.Write(t.Context(), "a", nil), s.Committed(t.Context(), nil)} {
		if !errors.Is(err, sinkstate.ErrNotOpen) {
			t.Errorf("before Open: %v", err)
		}
	}
	if err := s.Open(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	s = opened(t, &out, "")
	if err := s.Open(t.Context(), nil, nil); err == nil {
		t.Error("an open sink was opened")
	}
	_, synced = s.Sync(ctx)
	for _, err := range []error{synced, s.Write(ctx, "a", nil), s.Committed(ctx, nil)} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
	}
}

func TestOpenRefusesPositionsOfOthers(t *testing.T) {
	column := func(schema string) string {
		return `{"streams":{"a":{"position":1,"schema":{"type":["null","object"],"properties":{"x":` + schema + `}}}}}`
	}
	for _, p := range []string{
		"{", "[]", "{}", `{"streams":null}`, `{"files":{}}`, `{"streams":{"a":{"position":-1,"schema":{"type":["null","object"],"properties":{}}}}}`,
		`{"streams":{"a":{"position":1}}}`, `{"streams":{"a":{"position":1,"schema":{"type":["null","object"]}}}}`,
		`{"streams":{"a":{"position":1,"schema":{"type":["null","array"]}}}}`, `{"streams":{"a":{"position":1e99}}}`,
		column(`{"type":"string"}`), column(`{"type":["null","null"]}`), column(`{"type":["null",""]}`), column(`{"type":["string","null"]}`),
		column(`{"type":["null","string"],"format":"x"}`), column(`{"type":["null","string"],"items":{}}`), column(`{}`),
		column(`{"type":["null","array"],"properties":{}}`), column(`{"type":["null","array"],"items":{"type":"x"}}`),
		column(strings.Repeat(`{"type":["null","object"],"properties":{"x":`, 20) + `{}` + strings.Repeat(`}}`, 20)),
	} {
		sinktest.Says(t, New(nil).Open(t.Context(), json.RawMessage(p), nil), "position cannot be read", "--fresh")
	}
	for _, p := range []string{"", "null", `{"streams":{}}`, column(`{"type":["null","array"],"items":{}}`)} {
		if err := New(nil).Open(t.Context(), json.RawMessage(p), nil); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// FuzzPosition: a position that can be read is written back unchanged.
func FuzzPosition(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte(`{"streams":{"a":{"position":3,"schema":{"type":["null","object"],"properties":{"x":{"type":["null","array"],"items":{}}}}}}}`))
	f.Add([]byte(`{"streams":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePosition(b)
		if err != nil {
			return
		}
		once, err := encode(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parsePosition(once)
		if err != nil {
			t.Fatalf("%v in %s", err, once)
		}
		if twice, err := encode(again); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s becomes %s, %v", once, twice, err)
		}
	})
}
