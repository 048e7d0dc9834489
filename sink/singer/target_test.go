package singer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/sink/internal/sinktest"
	"github.com/headway-go/headway/store/sqlite"
)

// target is a reader of messages that does what the specification says and
// nothing more: it refuses a record before its schema, one that the schema does
// not describe, and a state that is ahead of the records or goes back.
type target struct {
	// tables are what it has by stream and key. They outlive a session.
	tables map[string]map[string]map[string]any
	states []state
	// The rest belongs to one session, one process on the other side.
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

// session begins another one, of a sink that was opened at a position.
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

// fields checks that a message has these and no others.
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

// widened checks that whatever fits the old schema as a column can be kept
// under the new one.
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

// covered checks that the schema has a place for each value: a target drops
// what it has no column for.
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

// shelf is a provider in memory: pages of two books, a detail of two notes each.
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

// TestARunThatDiesAnywhereIsMadeGood collects into a strict target, dies at
// each commit, before and after it, and collects the rest.
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
