package singer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
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
