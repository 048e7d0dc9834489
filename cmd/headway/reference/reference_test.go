package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headway-go/headway/internal/configfile"
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

// TestEachFieldHasAnEffect sets each field of each kind of file to another value that its reader
// takes, and wants another result. A field that is read and then ignored fails here.
func TestEachFieldHasAnEffect(t *testing.T) {
	folder := t.TempDir()
	if err := examples(folder); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds(folder) {
		t.Run(k.name, func(t *testing.T) {
			s, err := parse(k.name, k.fields())
			if err != nil {
				t.Fatal(err)
			}
			was := map[*document]any{}
			for _, o := range s.seen {
				src := source(o.doc, nil)
				was[o.doc], err = k.read(src)
				moved, err2 := k.read(append([]byte("\n  "), bytes.Replace(src, []byte(": "), []byte(":  "), 1)...))
				if err != nil || err2 != nil || !cmp.Equal(was[o.doc], moved, comparing) {
					t.Fatalf("where a value stands has an effect: %v, %v, %s", err, err2, cmp.Diff(was[o.doc], moved, comparing))
				}
			}
			if err := s.names(k.read, s.named()); err != nil {
				t.Fatal(err)
			}
			named := map[string][]any{} // values by the name of their field
			s.each(func(s *shape) {
				for _, o := range s.seen {
					named[s.name] = append(named[s.name], plain(o.node, nil))
				}
			})
			s.each(func(f *shape) {
				leaf := len(f.below) == 0 || f.below[0].name == "[]" && len(f.below[0].below) == 0
				if !leaf || f.path == "" || f.name == "[]" || slices.Contains(onlyOne, k.name+":"+f.path) {
					return
				}
				if err := k.effect(f, named[f.name], was); err != nil {
					t.Errorf("%s: %v", f.path, err)
				}
			})
		})
	}
}

// onlyOne are the fields that take one value alone, which is also what they are by default.
var onlyOne = []string{"connection:streams[].list.method"}

// effect looks for a value that changes what the reader gives.
func (k *kind) effect(f *shape, named []any, was map[*document]any) error {
	taken, problem := 0, error(nil)
	for _, o := range f.seen {
		before := was[o.doc]
		changes := []change{}
		for _, v := range append(others(k.read, o), named...) {
			changes = append(changes, change{at: o.node, value: v})
		}
		for _, c := range changes {
			if reflect.DeepEqual(c.value, plain(o.node, nil)) {
				continue
			}
			after, err := k.read(source(o.doc, &c))
			if err != nil {
				problem = err
			} else if taken++; !cmp.Equal(before, after, comparing) {
				return nil
			}
		}
	}
	for _, o := range f.seen { // in place of another of which only one may be there
		before := was[o.doc]
		for _, v := range instead[k.name+":"+f.path] {
			after, err := k.read(source(o.doc, &change{at: o.up, value: v}))
			if err != nil {
				return err
			}
			if !cmp.Equal(before, after, comparing) {
				return nil
			}
		}
	}
	if taken == 0 {
		return fmt.Errorf("no other value is taken: %w", problem)
	}
	return errors.New("has no effect")
}

// instead is what may stand where a field without another value does.
var instead = map[string][]any{
	"connection:streams[].paginate.link":        {pairs{{"next_url", ".next"}}},
	"connection:streams[].detail.paginate.link": {pairs{{"next_url", ".next"}}},
	"connection:sink.singer":                    {pairs{{"airbyte", pairs{}}}},
	"connection:sink.airbyte":                   {pairs{{"singer", pairs{}}}},
	"target:http.body.NAME":                     {pairs{{"rows", "$rows"}}},
	"daemon:providers.NAME.tls.cert":            {pairs{{"cert", "/etc/headway/server.pem"}, {"key", "/etc/headway/server.key"}}},
	"daemon:providers.NAME.tls.key":             {pairs{{"cert", "/etc/headway/server.pem"}, {"key", "/etc/headway/server.key"}}},
	"daemon:providers.NAME.pass_through":        {pairs{{"api", "anthropic"}, {"key", "${OTHER_KEY}"}, {"circuit", "off"}, {"pacing", "off"}, {"fleet", "none"}}},
}

// comparing compares what a reader gives, but for warnings, the file as it was and where something
// stood in it.
var comparing = cmp.Options{
	cmp.Exporter(func(reflect.Type) bool { return true }),
	cmp.Comparer(func(_, _ configfile.Place) bool { return true }),
	cmp.FilterPath(func(p cmp.Path) bool {
		of, isField := p.Last().(cmp.StructField)
		return p.Last().Type() != nil && p.Last().Type().Kind() == reflect.Func ||
			isField && slices.Contains(asItWas, p.Index(-2).Type().String()+"."+of.Name())
	}, cmp.Ignore()),
}

var asItWas = []string{"config.Config.Warnings", "profile.Profile.text", "profile.Profile.fields", "replay.step.line", "replay.step.node"}

// others are values that may stand in place of one, and nothing.
func others(read reader, o occurrence) (all []any) {
	n := o.node
	switch n.Kind { //nolint:exhaustive // of nothing and of a mapping there is no other value but nothing
	case configfile.Boolean:
		return []any{json.RawMessage(strconv.FormatBool(n.Written != "true"))}
	case configfile.Integer, configfile.Number:
		v, _ := strconv.ParseFloat(n.Written, 64)
		for _, other := range []float64{v + 1, v - 1, v / 2, v * 2} {
			all = append(all, json.RawMessage(strconv.FormatFloat(other, 'g', -1, 64)))
		}
	case configfile.List:
		items := plain(n, nil).([]any)
		all = append(all, items[1:], append(items[1:len(items):len(items)], n.Items[0].Written+"x"), append(items[1:len(items):len(items)], json.RawMessage("1"+n.Items[0].Written)))
	case configfile.Text:
		if d, err := time.ParseDuration(n.Written); err == nil {
			all = append(all, (2 * d).String(), (d / 2).String())
		}
		want := wanted(problems(read, o.doc, change{at: n, value: "? not a word ?"})[n.Path])
		for word := range strings.FieldsFuncSeq(want, func(r rune) bool { return r == ',' || r == ' ' }) {
			all = append(all, word)
		}
		all = append(all, n.Written+"x", "x"+n.Written, "1"+n.Written, strings.Replace(n.Written, "://", "://x", 1), "${OTHER_KEY}", "/etc/headway/other.pem", "/etc/headway/other.key")
	}
	return append(all, nil)
}

// TestWhatTheCodeSaysIsInTheReference compares the pages with the commands, events, reasons,
// metrics and header fields of the code.
func TestWhatTheCodeSaysIsInTheReference(t *testing.T) {
	const repository = "../../.."
	seen, err := observed(repository)
	if err != nil {
		t.Fatal(err)
	}
	for page, part := range map[string]string{"docs/reference.md": strings.TrimSpace(seen), "docs/commands.md": commands()} {
		b, err := os.ReadFile(repository + "/" + page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), part) {
			t.Errorf("%s is not what the code says: run go generate ./cmd/headway/reference\n%s", page, cmp.Diff(string(b), part))
		}
	}
	lines := strings.Count(seen, "\n| `")
	if lines < 100 {
		t.Errorf("%d names", lines)
	}
	if err := missing("event", []string{"circuit", "new"}, []word{{"circuit", "x"}, {"new", ""}}); err == nil {
		t.Error("an event without a meaning is taken")
	}
	s := &sources{repository, map[string][]*ast.File{}}
	if err := s.missingHeaders([]word{{"X-Headway-Key", "x"}}); err == nil {
		t.Error("a header field that is in no table is taken")
	}
	if err := s.missing("internal/metrics", metricName, nil); err == nil {
		t.Error("a metric that is in no table is taken")
	}
}
