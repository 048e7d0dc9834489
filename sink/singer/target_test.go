package singer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/sink/internal/sinktest"
	"github.com/headway-go/headway/store/sqlite"
)

// target is a strict Singer target. It refuses a record without a schema before it, a
// record that its schema does not describe, and a state that is ahead of the records or
// goes back.
type target struct {
	// tables are the records by stream and key. They outlive a session.
	tables map[string]map[string]map[string]any
	states []state
	// The rest belongs to one session, in which one process reads.
	streams map[string]*described
	base    map[string]int64 // positions at which the session began
	schemas int
}

type described struct {
	schema   *jsonschema.Schema
	document map[string]any
	keys     []string
	records  int64
}

func newTarget() *target {
	t := &target{tables: map[string]map[string]map[string]any{}}
	t.session(nil)
	return t
}

// session begins a new session, with a sink that was opened at a position.
func (t *target) session(committed json.RawMessage) {
	t.streams, t.base, t.states, t.schemas = map[string]*described{}, map[string]int64{}, nil, 0
	var p position
	if len(committed) > 0 && json.Unmarshal(committed, &p) == nil {
		for name, e := range p.Streams {
			t.base[name] = e.Position
		}
	}
}

// Write takes whole lines.
func (t *target) Write(b []byte) (int, error) {
	if !bytes.HasSuffix(b, []byte("\n")) {
		return 0, fmt.Errorf("target: half a line: %s", b)
	}
	for line := range bytes.SplitSeq(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		if err := t.message(line); err != nil {
			return 0, fmt.Errorf("target: %w in %s", err, line)
		}
	}
	return len(b), nil
}

func (t *target) message(line []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	if err != nil {
		return err
	}
	m, ok := doc.(map[string]any)
	if !ok {
		return fmt.Errorf("no map")
	}
	stream, _ := m["stream"].(string)
	switch m["type"] {
	case "SCHEMA":
		return t.describe(stream, m)
	case "RECORD":
		return t.record(stream, m)
	case "STATE":
		return t.state(m)
	}
	return fmt.Errorf("a message of no type")
}

// fields checks that a message has the named fields and no others.
func fields(m map[string]any, names ...string) error {
	for _, name := range append(names, "type") {
		if _, ok := m[name]; !ok {
			return fmt.Errorf("%s is missing", name)
		}
	}
	if len(m) != len(names)+1 {
		return fmt.Errorf("it has other fields than %v", names)
	}
	return nil
}

func (t *target) describe(stream string, m map[string]any) error {
	if err := fields(m, "stream", "schema", "key_properties"); err != nil {
		return err
	}
	document, ok := m["schema"].(map[string]any)
	if !ok || stream == "" || document["type"] != "object" {
		return fmt.Errorf("no stream, or a schema of no object")
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft4)
	if err := c.AddResource("s.json", document); err != nil {
		return err
	}
	compiled, err := c.Compile("s.json")
	if err != nil {
		return err
	}
	d := &described{schema: compiled, document: document}
	properties := document["properties"].(map[string]any)
	for _, key := range m["key_properties"].([]any) {
		if _, ok := properties[key.(string)]; !ok {
			return fmt.Errorf("the key %s is not a property", key)
		}
		d.keys = append(d.keys, key.(string))
	}
	if old := t.streams[stream]; old != nil {
		d.records = old.records
		if !slices.Equal(old.keys, d.keys) {
			return fmt.Errorf("other keys than %v", old.keys)
		}
		if reflect.DeepEqual(old.document, document) {
			return fmt.Errorf("the same schema again")
		}
		if err := widened(old.document, document); err != nil {
			return err
		}
	}
	t.streams[stream] = d
	t.schemas++
	return nil
}

// widened checks that a column of the new schema takes every value that fits the old one.
func widened(before, now map[string]any) error {
	wider := map[string][]string{
		"boolean": {"boolean", "string"}, "integer": {"integer", "number", "string"}, "number": {"number", "string"},
		"string": {"string"}, "array": {"array", "string"}, "object": {"object", "string"}, "": {""},
	}
	was, is := typeOf(before), typeOf(now)
	if !slices.Contains(wider[was], is) {
		return fmt.Errorf("the type %s becomes %s", was, is)
	}
	if is != was {
		return nil
	}
	old, _ := before["properties"].(map[string]any)
	properties, closed := now["properties"].(map[string]any)
	for name, p := range old {
		if !closed {
			break // an object of anything
		}
		q, ok := properties[name].(map[string]any)
		if !ok {
			return fmt.Errorf("the property %q vanishes", name)
		}
		if err := widened(p.(map[string]any), q); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if items, ok := before["items"].(map[string]any); ok {
		if len(now["items"].(map[string]any)) == 0 {
			return nil // an array of anything
		}
		return widened(items, now["items"].(map[string]any))
	}
	return nil
}

func typeOf(schema map[string]any) string {
	switch of := schema["type"].(type) {
	case string:
		return of
	case []any:
		return of[1].(string)
	}
	return ""
}

func (t *target) record(stream string, m map[string]any) error {
	if err := fields(m, "stream", "record"); err != nil {
		return err
	}
	d, ok := t.streams[stream]
	if !ok {
		return fmt.Errorf("a record before its schema")
	}
	record, ok := m["record"].(map[string]any)
	if !ok {
		return fmt.Errorf("a record that is not a map")
	}
	if err := d.schema.Validate(record); err != nil {
		return err
	}
	if err := covered(d.document, record); err != nil {
		return err
	}
	key := ""
	for _, name := range d.keys {
		if record[name] == nil {
			return fmt.Errorf("no key %s", name)
		}
		key += fmt.Sprintf("%v\x00", record[name])
	}
	if t.tables[stream] == nil {
		t.tables[stream] = map[string]map[string]any{}
	}
	t.tables[stream][key] = record
	d.records++
	return nil
}

// covered checks that the schema has a column for each value, since a target drops values
// without one.
func covered(schema map[string]any, v any) error {
	switch v := v.(type) {
	case map[string]any:
		properties, closed := schema["properties"].(map[string]any)
		for name, m := range v {
			p, ok := properties[name].(map[string]any)
			if closed && !ok && m != nil {
				return fmt.Errorf("no column for %q", name)
			}
			if err := covered(p, m); err != nil {
				return err
			}
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		for _, item := range v {
			if schema["type"] != nil && items == nil && item != nil {
				return fmt.Errorf("no type of items")
			}
			if err := covered(items, item); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *target) state(m map[string]any) error {
	if err := fields(m, "value"); err != nil {
		return err
	}
	b, err := json.Marshal(m["value"])
	if err != nil {
		return err
	}
	var now state
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&now); err != nil || now.Bookmarks == nil {
		return fmt.Errorf("a state that cannot be read: %w", err)
	}
	for name, b := range now.Bookmarks {
		got := t.base[name]
		if d := t.streams[name]; d != nil {
			got += d.records
		}
		if b.Position > got {
			return fmt.Errorf("position %d of %s before its records: %d are here", b.Position, name, got)
		}
	}
	if len(t.states) > 0 {
		for name, b := range t.states[len(t.states)-1].Bookmarks {
			if later, ok := now.Bookmarks[name]; !ok || later.Position < b.Position {
				return fmt.Errorf("the bookmark of %s goes back from %d", name, b.Position)
			}
		}
	}
	t.states = append(t.states, now)
	return nil
}

// shelf is a connector without a provider. A page has two books, and the detail of a book
// two notes.
type shelf struct{ books int }

func (shelf) Streams() []connector.Stream {
	return []connector.Stream{{Name: "books", Key: "id", DetailStream: "notes"}}
}

func (s shelf) List(_ context.Context, _ connector.Caller, r connector.ListRequest) (connector.Page, error) {
	at := 0
	if r.Cursor != "" {
		if _, err := fmt.Sscan(r.Cursor, &at); err != nil {
			return connector.Page{}, err
		}
	}
	var p connector.Page
	for i := at; i < min(at+2, s.books); i++ {
		p.Items = append(p.Items, connector.Item{Key: fmt.Sprint(i), Data: json.RawMessage(fmt.Sprintf(`{"id":%d,"col%d":true}`, i, i%3))})
	}
	if at+2 < s.books {
		p.Next = fmt.Sprint(at + 2)
	}
	return p, nil
}

func (shelf) Detail(_ context.Context, _ connector.Caller, _ string, it connector.Item) ([]connector.Record, error) {
	return []connector.Record{
		{Key: "0", Data: json.RawMessage(`{"text":"first of ` + it.Key + `"}`)}, {Key: "1", Data: json.RawMessage(`{"text":2}`)},
	}, nil
}

// Runs collect into a strict target and are killed just before or just after each of their
// commits. The next run collects the rest.
func TestARunThatDiesAnywhereIsMadeGood(t *testing.T) {
	for _, unheard := range []bool{false, true} {
		for at, died := 1, true; died; at++ {
			store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
			if err != nil {
				t.Fatal(err)
			}
			target := newTarget()
			failing := &sinktest.Dying{Store: store, Nth: at, Unheard: unheard}
			for range 2 {
				state, err := store.Load(t.Context(), "shelf")
				if err != nil {
					t.Fatal(err)
				}
				target.session(state.Sink)
				c, err := collect.New(collect.Options{
					Connection: "shelf", Connector: shelf{books: 5}, Store: failing, Sink: New(target),
					Pacing: headway.Config{Ceiling: 1, Initial: 1},
				})
				if err != nil {
					t.Fatal(err)
				}
				_, err = c.Run(t.Context())
				if died = errors.Is(err, sinktest.ErrDied); !died {
					if err != nil {
						t.Fatal(err)
					}
					break
				}
			}
			if n, notes := len(target.tables["books"]), len(target.tables["notes"]); n != 5 || notes != 10 {
				t.Fatalf("death at %d: %d books and %d notes, want 5 and 10", at, n, notes)
			}
			last := target.states[len(target.states)-1].Bookmarks
			if last["books"].Position != 5 || last["notes"].Position != 10 {
				t.Fatalf("death at %d: the last state is %v", at, last)
			}
			died = failing.Nth <= 0
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if !died && at < 4 {
				t.Fatalf("%d commits, want more", at)
			}
		}
	}
}

// streams are a list whose key is a field, details whose key is computed, and details whose
// key is a field.
var streams = []collect.StreamInfo{
	{Name: "docs", KeyField: "id"},
	{Name: "messages", Parent: "docs"},
	{Name: "lines", Parent: "docs", KeyField: "n"},
}

// valueOf draws JSON of all kinds and sizes.
func valueOf(t *rapid.T, depth int) string {
	kinds := 8
	if depth == 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, "boolean")
	case 1:
		return "null"
	case 2:
		return rapid.SampledFrom([]string{"0", "-1", "42", "9223372036854775807"}).Draw(t, "integer")
	case 3:
		return rapid.SampledFrom([]string{"1.5", "-0.25", "1e3", "2.0"}).Draw(t, "number")
	case 4:
		return rapid.SampledFrom([]string{"9223372036854775808", "1e400", "-18446744073709551616"}).Draw(t, "beyond")
	case 5:
		return rapid.SampledFrom([]string{`""`, `"a"`, `"<ü>\n"`, `"12"`}).Draw(t, "text")
	case 6:
		var items []string
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			items = append(items, valueOf(t, depth-1))
		}
		return "[" + strings.Join(items, " , ") + "]"
	default:
		return objectOf(t, depth-1)
	}
}

func objectOf(t *rapid.T, depth int, more ...string) string {
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c d", "é", ""}), 0, 3, rapid.ID).Draw(t, "names") {
		quoted, _ := json.Marshal(name)
		more = append(more, string(quoted)+" : "+valueOf(t, depth))
	}
	return "{" + strings.Join(more, ",") + "}"
}

// outlet is a pipe to the target. It can break.
type outlet struct {
	to     *target
	broken bool
}

func (p *outlet) Write(b []byte) (int, error) {
	if p.broken {
		return 0, syscall.EPIPE
	}
	return p.to.Write(b)
}

// life is a sink that writes to a target, and the steps that a test takes with it.
type life struct {
	sink   *Sink
	pipe   *outlet
	target *target
	// committed is the position in the store, records the committed records by stream and
	// key.
	committed json.RawMessage
	records   map[string]map[string]string
	pending   map[string]map[string]string
	counts    map[string]int64
	slice     map[string]int64
	n         int
	// replaced are records that were also in a lost slice, whose version the target may
	// have until a later slice writes them again.
	replaced map[string]bool
}

func (l *life) open(t *rapid.T) {
	l.pipe = &outlet{to: l.target}
	l.sink = New(l.pipe)
	l.target.session(l.committed)
	for name, records := range l.pending {
		for key := range records {
			l.replaced[name+key] = true
		}
	}
	l.pending, l.slice = map[string]map[string]string{}, map[string]int64{}
	if err := l.sink.Open(t.Context(), l.committed, streams); err != nil {
		t.Fatal(err)
	}
	l.commit(t) // as the runtime does
}

func (l *life) write(t *rapid.T) {
	info := rapid.SampledFrom(streams).Draw(t, "stream")
	var records []collect.Record
	for range rapid.IntRange(0, 3).Draw(t, "records") {
		l.n++
		r := collect.Record{Key: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "key"))}
		switch info.Name {
		case "docs":
			id := r.Key
			if rapid.Bool().Draw(t, "text key") {
				id = `"k` + r.Key + `"`
				r.Key = "k" + r.Key
			}
			r.Data = json.RawMessage(objectOf(t, 3, `"id":`+id))
		case "lines":
			r.Parent, r.Data = "p"+fmt.Sprint(l.n%3), json.RawMessage(objectOf(t, 2, `"n": `+r.Key))
		default:
			r.Parent, r.Data = "p"+fmt.Sprint(l.n%3), json.RawMessage(valueOf(t, 3))
		}
		records = append(records, r)
	}
	err := l.sink.Write(t.Context(), info.Name, records)
	if l.pipe.broken && errors.Is(err, syscall.EPIPE) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if l.pending[info.Name] == nil {
			l.pending[info.Name] = map[string]string{}
		}
		key := r.Key + "\x00"
		if info.Parent != "" {
			key = r.Parent + "\x00" + key
		}
		l.pending[info.Name][key] = string(r.Data)
		l.slice[info.Name]++
	}
}

func (l *life) commit(t *rapid.T) {
	position, err := l.sink.Sync(t.Context())
	if l.pipe.broken {
		if !errors.Is(err, syscall.EPIPE) && len(l.slice) > 0 {
			t.Fatalf("sync returned %v through a broken pipe", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	l.committed = position
	for name, records := range l.pending {
		if l.records[name] == nil {
			l.records[name] = map[string]string{}
		}
		for key, r := range records {
			l.records[name][key] = r
			delete(l.replaced, name+key)
		}
		l.counts[name] += l.slice[name]
	}
	l.pending, l.slice = map[string]map[string]string{}, map[string]int64{}
	if rapid.IntRange(0, 5).Draw(t, "dies before the state") == 0 {
		return
	}
	if err := l.sink.Committed(t.Context(), position); err != nil {
		t.Fatal(err)
	}
	last := l.target.states[len(l.target.states)-1]
	for name, n := range l.counts {
		if last.Bookmarks[name].Position != n {
			t.Fatalf("the state says %d of %s, want %d", last.Bookmarks[name].Position, name, n)
		}
	}
}

func (l *life) crash(t *rapid.T) { l.open(t) }

func (l *life) close(t *rapid.T) {
	if err := l.sink.Close(); err != nil {
		t.Fatal(err)
	}
	l.open(t)
}

func (l *life) breakPipe(*rapid.T) { l.pipe.broken = true }

// check compares the target's tables with the committed records. The target may have later
// versions too, so it leaves out keys that occur in a later slice.
func (l *life) check(t *rapid.T) {
	for name, records := range l.records {
		for key, want := range records {
			if _, later := l.pending[name][key]; later || l.replaced[name+key] {
				continue
			}
			got, ok := l.target.tables[name][key]
			if !ok {
				t.Fatalf("%s lacks the record %q", name, key)
			}
			v, err := decoded(want)
			if err != nil {
				t.Fatal(err)
			}
			if _, object := v.(map[string]any); !object {
				v = map[string]any{"_headway_value": v}
			}
			plain := map[string]any{}
			for property, value := range got {
				if property != "_headway_parent" && property != "_headway_key" {
					plain[property] = value
				}
			}
			if err := same(v, plain); err != nil {
				t.Fatalf("%s %q: %v: wrote %s, the target has %v", name, key, err, want, got)
			}
		}
	}
}

func decoded(text string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// same checks that a value arrived unchanged, or as a text of its JSON.
func same(want, got any) error {
	if text, ok := got.(string); ok {
		if _, isText := want.(string); !isText {
			v, err := decoded(text)
			if err != nil {
				return fmt.Errorf("%q is not the JSON of %v", text, want)
			}
			return same(want, v)
		}
	}
	switch want := want.(type) {
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok || len(m) != len(want) {
			return fmt.Errorf("%v became %v", want, got)
		}
		for name := range want {
			if err := same(want[name], m[name]); err != nil {
				return err
			}
		}
		return nil
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return fmt.Errorf("%v became %v", want, got)
		}
		for i := range want {
			if err := same(want[i], list[i]); err != nil {
				return err
			}
		}
		return nil
	case json.Number:
		if n, ok := got.(json.Number); ok && n == want {
			return nil
		}
	default:
		if want == got {
			return nil
		}
	}
	return fmt.Errorf("%v became %v", want, got)
}

// Random records of changing types reach a strict target in spite of crashes, closed sinks
// and broken pipes.
func TestATargetGetsEverythingWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := &life{target: newTarget(), records: map[string]map[string]string{}, counts: map[string]int64{}, replaced: map[string]bool{}}
		l.open(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"write": l.write, "write more": l.write, "commit": l.commit, "commit again": l.commit,
			"crash": l.crash, "close": l.close, "break": l.breakPipe, "": l.check,
		})
	})
}

// The schema does not depend on the order of the values that it is learned from.
func TestJoinIsOrderless(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var values []value
		for range rapid.IntRange(1, 5).Draw(rt, "n") {
			var b bytes.Buffer
			if err := json.Compact(&b, []byte(valueOf(rt, 3))); err != nil {
				rt.Fatal(err)
			}
			values = append(values, read(b.Bytes(), maxDepth))
		}
		learned := func(order []value) string {
			s := nothing
			for _, v := range order {
				s = s.with(v, maxDepth)
			}
			for _, v := range order {
				if s.with(v, maxDepth) != s {
					rt.Fatalf("%s is learned twice", v.raw)
				}
			}
			b, err := json.Marshal(s.schema())
			if err != nil {
				rt.Fatal(err)
			}
			return string(b)
		}
		if one, other := learned(values), learned(rapid.Permutation(values).Draw(rt, "order")); one != other {
			rt.Fatalf("%s and %s", one, other)
		}
	})
}

func TestNumbersThatATargetCouldOnlyRoundAreText(t *testing.T) {
	for raw, want := range map[string]kind{
		"0": integer, "-0": integer, "9223372036854775807": integer, "-9223372036854775808": integer,
		"9223372036854775808": text, "-9223372036854775809": text, "1e400": text, "-1.0e999999999": text,
		"1.0": number, "1e3": number, "1E-400": number, "0.1": number,
	} {
		if got := numeric(json.RawMessage(raw)); got != want {
			t.Errorf("%s is %s, want %s", raw, kindNames[got], kindNames[want])
		}
		if n, ok := new(big.Int).SetString(raw, 10); ok && n.IsInt64() != (want == integer) {
			t.Errorf("%s: the test is wrong", raw)
		}
	}
}

// BenchmarkWriteSync is one slice of 100 records of 1 KB whose schema is known.
func BenchmarkWriteSync(b *testing.B) {
	s := New(io.Discard)
	if err := s.Open(b.Context(), nil, []collect.StreamInfo{{Name: "x", KeyField: "id"}}); err != nil {
		b.Fatal(err)
	}
	records := make([]collect.Record, 100)
	for i := range records {
		records[i].Data = json.RawMessage(`{"id":12345,"by":{"name":"x","tags":["a","b"]},"text":"` + strings.Repeat("lorem ipsum ", 80) + `"}`)
	}
	b.SetBytes(int64(len(records) * len(records[0].Data)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := s.Write(b.Context(), "x", records); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		n += len(records)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
