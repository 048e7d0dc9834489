package rest

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	kinds "github.com/santhosh-tekuri/jsonschema/v6/kind"
)

//go:embed schema.json
var schemaSource []byte

// Schema is the JSON Schema (draft 2020-12) of a connection file, for editors
// and other checkers. The caller may change the copy.
func Schema() []byte { return bytes.Clone(schemaSource) }

// schema is the compiled schema with its source, for messages.
type schema struct {
	compiled *jsonschema.Schema
	source   map[string]any
}

// The schema ships in the binary: that it does not compile is a programmer's error.
var loadSchema = sync.OnceValue(func() schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaSource))
	if err != nil {
		panic("rest: schema.json: " + err.Error())
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		panic("rest: schema.json: " + err.Error())
	}
	return schema{compiled: c.MustCompile("schema.json"), source: doc.(map[string]any)}
})

// validate reports everything in which the file departs from the schema.
func (s schema) validate(root *node, r *report) {
	err := s.compiled.Validate(root.json())
	if e, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		s.leaves(e, root, r)
	}
}

// leaves reports the innermost errors, which are the ones that name a field. A
// choice is reported as a whole: its branches would each say what to add.
func (s schema) leaves(e *jsonschema.ValidationError, root *node, r *report) {
	_, choice := e.ErrorKind.(*kinds.OneOf)
	if len(e.Causes) == 0 || choice {
		s.explain(e, root, r)
		return
	}
	for _, c := range e.Causes {
		s.leaves(c, root, r)
	}
}

// explain turns one error into a problem in the words of the file.
func (s schema) explain(e *jsonschema.ValidationError, root *node, r *report) {
	n := root.find(e.InstanceLocation)
	def := s.at(e.SchemaURL)
	switch k := e.ErrorKind.(type) {
	case *kinds.AdditionalProperties:
		known := slices.Sorted(maps.Keys(table(def["properties"])))
		for _, f := range n.fields {
			if slices.Contains(k.Properties, f.name) {
				r.add(f.at, n.below(f.name), "is not a field here: %s", suggest(f.name, known))
			}
		}
	case *kinds.Required:
		s.missing(n, def, k.Missing, "is missing", r)
	case *kinds.DependentRequired:
		s.missing(n, def, k.Missing, "is missing beside "+k.Prop, r)
	case *kinds.OneOf:
		// An unknown field is a choice that was meant, and reported as such.
		if names, known := n.names(table(def["properties"])); known {
			r.add(n.at, n.path, "has %s; want %s", names, def["errorMessage"])
		}
	default:
		r.add(n.at, n.path, "%s; want %s", n.is(), def["errorMessage"])
	}
}

func (s schema) missing(n *node, def map[string]any, names []string, what string, r *report) {
	for _, name := range names {
		want := s.resolve(table(table(def["properties"])[name]))["errorMessage"]
		r.add(n.at, n.below(name), "%s; want %s", what, want)
	}
}

// at is the part of the schema that a location such as
// schema.json#/$defs/stream stands for.
func (s schema) at(location string) map[string]any {
	_, pointer, _ := strings.Cut(location, "#")
	var at any = s.source
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if part == "" {
			continue
		}
		if p, err := url.PathUnescape(part); err == nil {
			part = p
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch v := at.(type) {
		case map[string]any:
			at = v[part]
		case []any:
			if i, err := strconv.Atoi(part); err == nil && i < len(v) {
				at = v[i]
			}
		}
	}
	return table(at)
}

// resolve follows a reference.
func (s schema) resolve(def map[string]any) map[string]any {
	if ref, ok := def["$ref"].(string); ok {
		return s.at(ref)
	}
	return def
}

func table(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// find is the node at a location of the schema's instance; the innermost one
// that exists.
func (n *node) find(location []string) *node {
	for _, part := range location {
		next := n.get(part)
		if i, err := strconv.Atoi(part); err == nil && n.kind == kindList && i < len(n.items) {
			next = n.items[i]
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

// names lists the table's fields; known is false when it has one that the
// schema does not.
func (n *node) names(properties map[string]any) (list string, known bool) {
	names := make([]string, len(n.fields))
	for i, f := range n.fields {
		if _, ok := properties[f.name]; !ok {
			return "", false
		}
		names[i] = f.name
	}
	if len(names) == 0 {
		return "none", true
	}
	return strings.Join(names, " and "), true
}

// is says what the node holds, without what may be secret.
func (n *node) is() string {
	switch {
	case n.kind == kindNull:
		return "has no value"
	case n.kind == kindList && len(n.items) == 0:
		return "is an empty list"
	case n.kind == kindList:
		return "is a list"
	case n.kind == kindTable:
		return "is a mapping"
	case secretField(n.path):
		return "is written out"
	case private(n.path), login(n):
		return "has a value that is not allowed (not shown)"
	case n.written == "":
		return "is empty"
	case len(n.refs) > 0:
		return "is " + quote(n.written) + ", whose value is not allowed (not shown)"
	case n.kind == kindText:
		return "is " + quote(n.written)
	default:
		return "is " + n.written
	}
}

var secretFields = regexp.MustCompile(`^provider\.auth(\.bearer|\.header\.value|\.query\.value|\.oauth2\.client_secret|\.oauth2\.refresh_token)$`)

// secretField reports whether the field takes nothing but a reference.
func secretField(path string) bool { return secretFields.MatchString(path) }

var privateFields = regexp.MustCompile(`^provider\.auth(\.|$)|\.(headers|query)(\.|$)`)

// private reports whether a field's value may be a secret that stands at the
// wrong place, and is therefore never shown.
func private(path string) bool { return privateFields.MatchString(path) }

// login reports whether a URL's text holds what may be a user and a password.
func login(n *node) bool {
	return strings.HasSuffix(n.path, "_url") && strings.Contains(n.written, "@")
}

// suggest names the field that was meant, or all there are.
func suggest(name string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(strings.ToLower(name), k); d < least && d < len(k) {
			best, least = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %s?", best)
	}
	switch len(known) {
	case 0:
		return "nothing can be set here, remove it"
	case 1:
		return "want " + known[0]
	}
	return "want one of " + strings.Join(known, ", ")
}

// distance is the number of letters to insert, drop, change or swap with their
// neighbour to make b of a (optimal string alignment).
func distance(a, b string) int {
	const most = 64
	if len(a) > most || len(b) > most {
		return most
	}
	var rows [3][most + 1]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row := &rows[(i+1)%3], &rows[(i+2)%3], &rows[i%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
