package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestExamplesFitTheirSchemas checks that each example that a reader takes fits the schema too,
// and that a field with a wrong name fits it nowhere.
func TestExamplesFitTheirSchemas(t *testing.T) {
	b, err := os.ReadFile("../../../internal/cli/schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	var schemas map[string]any
	if err := json.Unmarshal(b, &schemas); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds(t.TempDir()) {
		t.Run(k.name, func(t *testing.T) {
			c := jsonschema.NewCompiler()
			if err := c.AddResource(k.name, schemas[k.name]); err != nil {
				t.Fatal(err)
			}
			schema, err := c.Compile(k.name)
			if err != nil {
				t.Fatal(err)
			}
			fits := func(src []byte) error {
				v, err := jsonschema.UnmarshalJSON(bytes.NewReader(src))
				if err != nil {
					t.Fatal(err)
				}
				return schema.Validate(v)
			}
			s, err := parse(k.name, k.fields())
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range s.seen {
				if err := fits(source(o.doc, nil)); err != nil {
					t.Errorf("%s: %v", source(o.doc, nil), err)
				}
			}
			wrong := 0
			s.each(func(s *shape) {
				for _, o := range s.seen {
					if len(s.below) == 0 || s.below[0].name == "[]" || len(o.node.Fields) == 0 {
						continue
					}
					src := source(o.doc, &change{at: o.node, add: pairs{{unknown, []any{true}}}})
					if _, err := k.read(src); err != nil && strings.Contains(err.Error(), unknown+": is not a field here") {
						if wrong++; fits(src) == nil {
							t.Errorf("the schema takes a field of no name in %q: %s", s.path, src)
						}
					}
				}
			})
			if wrong == 0 {
				t.Error("no mapping has a fixed set of fields")
			}
		})
	}
}

// TestWhatLacksATextFails checks that a field which the reader takes has to be in fields.txtar,
// with its meaning, unit and default.
func TestWhatLacksATextFails(t *testing.T) {
	original := fieldsFile
	t.Cleanup(func() { fieldsFile = original })
	timeline := kinds(t.TempDir())[6]
	for _, tt := range []struct{ from, to, want string }{
		{"  # The call's max_tokens. Unit: tokens. Default: 0.\n  max: 400\n", "", "the reader takes [].max, of which fields.txtar has no value"},
		{"  # The call's max_tokens. Unit: tokens. Default: 0.\n", "", "[].max lacks its default\n[].max lacks its meaning\n[].max lacks its unit"},
		{"max_tokens. Unit: tokens.", "max_tokens.", "[].max lacks its unit"},
		{"max_tokens. Unit: tokens. Default: 0.", "max_tokens. Unit: tokens.", "[].max lacks its default"},
		{"  max: 400\n", "  max: 400\n  maximum: 400\n", "maximum: is not a field here"},
	} {
		if strings.Count(original, tt.from) != 1 {
			t.Fatalf("fields.txtar has %q %d times", tt.from, strings.Count(original, tt.from))
		}
		fieldsFile = strings.Replace(original, tt.from, tt.to, 1)
		_, err := timeline.shapeOf()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("with %q in place of %q: %v, want %q", tt.to, tt.from, err, tt.want)
		}
	}
}
