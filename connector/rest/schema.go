package rest

import (
	"bytes"
	_ "embed"
	"errors"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	kinds "github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/headway-go/headway/internal/configfile"
)

//go:embed schema.json
var schemaSource []byte

// Schema returns the JSON Schema (draft 2020-12) of a connection file, for editors and
// other checkers. The caller may modify it.
func Schema() []byte { return bytes.Clone(schemaSource) }

// schema is the compiled schema and its source, which messages use.
type schema struct {
	compiled *jsonschema.Schema
	source   map[string]any
}

// The schema is embedded in the binary, so it always compiles.
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

// validate reports every violation of the schema.
func (s schema) validate(root *node, r *configfile.File) {
	err := s.compiled.Validate(root.JSON())
	if e, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		s.leaves(e, root, r)
	}
}

// leaves reports the innermost errors, which name a field. A choice is reported as a whole,
// since the errors of its branches would contradict each other.
func (s schema) leaves(e *jsonschema.ValidationError, root *node, r *configfile.File) {
	_, choice := e.ErrorKind.(*kinds.OneOf)
	if len(e.Causes) == 0 || choice {
		s.explain(e, root, r)
		return
	}
	for _, c := range e.Causes {
		s.leaves(c, root, r)
	}
}

// explain turns a schema error into a problem of the file.
func (s schema) explain(e *jsonschema.ValidationError, root *node, r *configfile.File) {
	n := find(root, e.InstanceLocation)
	def := s.at(e.SchemaURL)
	switch k := e.ErrorKind.(type) {
	case *kinds.AdditionalProperties:
		known := slices.Sorted(maps.Keys(table(def["properties"])))
		for _, f := range n.Fields {
			if slices.Contains(k.Properties, f.Name) {
				r.Fail(f.At, n.Below(f.Name), "is not a field here: %s", configfile.Suggest(f.Name, known))
			}
		}
	case *kinds.Required:
		s.missing(n, def, k.Missing, "is missing", r)
	case *kinds.DependentRequired:
		s.missing(n, def, k.Missing, "is missing beside "+k.Prop, r)
	case *kinds.OneOf:
		// An unknown field is reported by itself, not as a wrong choice.
		if names, known := listed(n, table(def["properties"])); known {
			n.Fail("has %s; want %s", names, def["errorMessage"])
		}
	default:
		n.Fail("%s; want %s", n.Is(), def["errorMessage"])
	}
}

func (s schema) missing(n *node, def map[string]any, names []string, what string, r *configfile.File) {
	for _, name := range names {
		want := s.resolve(table(table(def["properties"])[name]))["errorMessage"]
		r.Fail(n.At, n.Below(name), "%s; want %s", what, want)
	}
}

// at returns the part of the schema at a location such as schema.json#/$defs/stream.
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

// find returns the innermost existing node at a location of the file.
func find(n *node, location []string) *node {
	for _, part := range location {
		next := n.Get(part)
		if i, err := strconv.Atoi(part); err == nil && n.Kind == configfile.List && i < len(n.Items) {
			next = n.Items[i]
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

// listed lists the names of the table's fields. known is false if the table has a field
// that the schema does not have.
func listed(n *node, properties map[string]any) (list string, known bool) {
	names := make([]string, len(n.Fields))
	for i, f := range n.Fields {
		if _, ok := properties[f.Name]; !ok {
			return "", false
		}
		names[i] = f.Name
	}
	if len(names) == 0 {
		return "none", true
	}
	return strings.Join(names, " and "), true
}

var secretFields = regexp.MustCompile(`^provider\.(auth|keys\[\d+\])(\.bearer|\.header\.value|\.query\.value|\.oauth2\.client_secret|\.oauth2\.refresh_token)$`)

// secretField reports whether a field accepts only a reference.
func secretField(path string) bool { return secretFields.MatchString(path) }

var privateFields = regexp.MustCompile(`^provider\.(auth(\.|$)|keys\[\d+\]\.(bearer|header|query)(\.|$))|^sink\.postgres\.url$|\.(headers|query)(\.|$)`)

// private reports whether a field's value may be a misplaced secret, which is never shown.
func private(path string) bool { return privateFields.MatchString(path) }
