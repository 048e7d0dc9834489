package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/internal/configfile"
)

// generated stands at the top of each page.
const generated = `<!-- Written by go generate ./cmd/headway/reference from its fields.txtar. -->

# Reference

Every field of every configuration file. Type and bounds are what the program itself says of
wrong values. ` + "`NAME` stands for a name that you choose, `[]`" + ` for an item of a list. A field may be
left out, unless it is required.

`

// write makes all files, by their paths in the repository.
func write(repository, folder string) (map[string]string, error) {
	files := map[string]string{}
	schemas, byName := pairs{}, map[string]any{}
	text := strings.Builder{}
	text.WriteString(generated)
	for _, k := range kinds(folder) {
		s, err := k.shapeOf()
		if err != nil {
			return nil, err
		}
		byName[k.name] = json.RawMessage(rest.Schema())
		if k.name != "connection" {
			byName[k.name] = k.schema(s)
		}
		schemas = append(schemas, pair{k.name, byName[k.name]})
		text.WriteString(k.page(s))
	}
	seen, err := observed(repository)
	if err != nil {
		return nil, err
	}
	text.WriteString(seen)
	files["docs/commands.md"] = commands()
	within(byName["daemon"], byName["quota"])
	b, err := json.Marshal(schemas)
	if err != nil {
		return nil, err
	}
	files["internal/cli/schemas.json"] = string(b) + "\n"
	files["docs/reference.md"] = strings.TrimRight(text.String(), "\n") + "\n"
	return files, nil
}

// within puts the schema of a quota into that of the daemon, where it is referred to.
func within(daemon, quota any) {
	if p, ok := daemon.(*node); ok {
		q := *quota.(*node)
		q.Schema, q.ID = "", ""
		p.Defs = map[string]*node{"quota": &q}
	}
}

// A node is a JSON Schema.
type node struct {
	Schema      string           `json:"$schema,omitempty"`
	ID          string           `json:"$id,omitempty"`
	Title       string           `json:"title,omitempty"`
	Ref         string           `json:"$ref,omitempty"`
	Description string           `json:"description,omitempty"`
	Default     any              `json:"default,omitempty"`
	Type        any              `json:"type,omitempty"`
	Enum        []any            `json:"enum,omitempty"`
	Pattern     string           `json:"pattern,omitempty"`
	Minimum     json.Number      `json:"minimum,omitempty"`
	Maximum     json.Number      `json:"maximum,omitempty"`
	Required    []string         `json:"required,omitempty"`
	Properties  pairs            `json:"properties,omitempty"`
	Items       *node            `json:"items,omitempty"`
	More        any              `json:"additionalProperties,omitempty"`
	Examples    []any            `json:"examples,omitempty"`
	Defs        map[string]*node `json:"$defs,omitempty"`
}

func (k *kind) schema(s *shape) *node {
	n := s.schema(k.name)
	n.Schema = "https://json-schema.org/draft/2020-12/schema"
	n.ID = "https://github.com/headway-go/headway/schema/" + k.name + ".json"
	n.Title, n.Description = k.title, strings.ReplaceAll(k.intro, "`", "")
	return n
}

// anyJSON are the fields that hold JSON of the owner's own.
var anyJSON = []string{"target:http.body", "timeline:[].patch"}

const durations = `^-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d))+$|^0$`

func (s *shape) schema(kind string) *node {
	n := &node{Description: s.describes()}
	if s.Default != "" {
		n.Default = scalar(s.Default)
	}
	if len(s.below) == 0 && s.path != "" {
		n.Examples = []any{plain(s.seen[0].node, nil)}
	}
	switch {
	case s.refers != "":
		n.Ref, n.Examples = "#/$defs/"+s.refers, nil
		return n
	case slices.Contains(anyJSON, kind+":"+s.path):
		return n
	}
	types := []any{}
	for _, k := range s.kinds {
		types = append(types, string(k))
	}
	v := s.value()
	switch {
	case v.name == "number" && !slices.Contains(s.kinds, configfile.Number):
		types = []any{"number"}
	case v.name == "reference to a secret", strings.HasPrefix(v.name, "text or reference"):
		types = append(types, "object")
	}
	for _, c := range s.below {
		switch c.name {
		case "[]":
			n.Items = c.schema(kind)
		case "NAME":
			n.More = c.schema(kind)
		default:
			n.Properties = append(n.Properties, pair{c.name, c.schema(kind)})
			if c.required {
				n.Required = append(n.Required, c.name)
			}
		}
	}
	if slices.Contains(s.kinds, configfile.Table) && n.More == nil {
		n.More = false
	}
	if n.More != nil && slices.Contains(s.kinds, configfile.Table) && s.path != "" {
		types = append(types, "null") // a name, or a section, of which nothing is said
	}
	if s.one {
		types = append(types, string(configfile.Text))
	}
	if s.off() {
		types = append(types, string(configfile.Boolean))
	}
	if n.Type = types; len(types) == 1 {
		n.Type = types[0]
	}
	switch v.name {
	case "duration":
		n.Pattern = durations
	case "word":
		for _, w := range v.words {
			n.Enum = append(n.Enum, w)
		}
	}
	n.Minimum, n.Maximum = json.Number(v.low), json.Number(v.high)
	return n
}

// off reports whether the word off stands for a section, and so does false.
func (s *shape) off() bool {
	return slices.Contains(s.kinds, configfile.Table) && slices.ContainsFunc(s.seen, func(o occurrence) bool { return o.node.Written == "off" })
}

// describes is the meaning with the bounds, for an editor.
func (s *shape) describes() string {
	text := markdown.ReplaceAllString(s.Meaning, "$1")
	if s.path == "" || s.comment == "" {
		return text
	}
	if v := s.value(); v.bound != "" || s.Unit != "" {
		text += " " + strings.ToUpper(v.name[:1]) + v.String(s.Unit)[1:] + "."
	}
	return strings.TrimSpace(text)
}

var markdown = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// scalar reads a default as YAML has it.
func scalar(text string) any {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	return json.RawMessage(text)
}

// describe takes meanings from the JSON Schema of connections, where they are kept.
func (s *shape) describe(schema []byte) {
	var root map[string]any
	if err := json.Unmarshal(schema, &root); err != nil {
		panic(err) // it is in the binary
	}
	resolve := func(def map[string]any) map[string]any {
		for def["$ref"] != nil {
			next, _ := root["$defs"].(map[string]any)[filepath.Base(def["$ref"].(string))].(map[string]any)
			for key, v := range def { // what stands beside the reference goes before
				if key != "$ref" {
					copied := map[string]any{}
					maps.Copy(copied, next)
					copied[key], next = v, copied
				}
			}
			def = next
		}
		return def
	}
	var general []string
	for name, def := range root["$defs"].(map[string]any) {
		of := def.(map[string]any)
		if text, _ := of["description"].(string); of["type"] != "object" && of["properties"] == nil && name != "name" && name != "path" || name == "secret" {
			general = append(general, text)
		}
	}
	var walk func(s *shape, def map[string]any)
	walk = func(s *shape, def map[string]any) {
		s.comment, _ = def["description"].(string)
		s.Meaning, s.general = s.comment, general
		if m := schemaDefault.FindStringSubmatch(s.comment); m != nil {
			s.Meaning, s.Default = m[1], m[2]
		}
		for _, c := range s.below {
			next, _ := def["items"].(map[string]any)
			if c.name == "NAME" {
				next, _ = def["additionalProperties"].(map[string]any)
			} else if c.name != "[]" {
				properties, _ := def["properties"].(map[string]any)
				next, _ = properties[c.name].(map[string]any)
			}
			if next != nil {
				walk(c, resolve(next))
			}
		}
	}
	walk(s, resolve(root))
}

var schemaDefault = regexp.MustCompile(`^(.*?) ?Default ([0-9][^ ]*|aimd|cycle|quarantine|false|true|\./out)\.$`)

// page writes the reference of one kind of file.
func (k *kind) page(s *shape) string {
	p := &page{kind: k.name, sections: map[string]*shape{}}
	p.printf("## %s\n\n%s\n\n", k.title, k.intro)
	p.printf("`headway schema %s >%s.schema.json` writes the JSON Schema. An editor uses it when the file begins with\n", k.name, k.name)
	p.printf("`# yaml-language-server: $schema=%s.schema.json`.\n\n", k.name)
	p.section(s, s.path == "" && len(s.below) > 0 && s.below[0].name == "[]")
	return p.String()
}

type page struct {
	strings.Builder
	kind     string
	sections map[string]*shape // by what they hold
	large    []*shape
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// section writes the fields of a mapping, then those of the mappings in it.
func (p *page) section(s *shape, list bool) {
	if list {
		s = s.below[0]
	}
	fields, like := s.below, (*shape)(nil)
	for _, other := range p.large {
		if len(other.below) < 5 || like != nil && len(like.below) > len(other.below) {
			continue
		}
		if !slices.ContainsFunc(other.below, func(c *shape) bool { return !slices.ContainsFunc(s.below, c.same) }) {
			like = other
		}
	}
	if like != nil {
		fields = slices.DeleteFunc(slices.Clone(fields), func(c *shape) bool { return slices.ContainsFunc(like.below, c.same) })
	}
	p.large = append(p.large, s)
	if s.path == "" || s.path == "[]" {
		p.printf("### %s: the file\n\n", p.kind)
	} else {
		p.printf("### %s: %s\n\n", p.kind, s.path)
		if s.Meaning != "" {
			p.printf("%s\n\n", s.Meaning)
		}
	}
	if like != nil {
		if len(fields) == 0 {
			p.printf("It has the fields of %s.\n\n", p.link(like))
			return
		}
		p.printf("It has the fields of %s, and:\n\n", p.link(like))
	}
	p.printf("| field | value | default | example | meaning |\n|---|---|---|---|---|\n")
	var next []*shape
	for _, c := range fields {
		next = append(next, p.row(c)...)
	}
	p.printf("\n")
	for _, c := range next {
		p.section(c, false)
	}
}

// row writes one field, and gives the mappings whose fields are still to be written.
func (p *page) row(c *shape) (next []*shape) {
	inner := c
	for len(inner.below) == 1 && (inner.below[0].name == "[]" || inner.below[0].name == "NAME") {
		inner = inner.below[0]
	}
	meaning := c.Meaning
	if c.refers != "" {
		meaning += fmt.Sprintf(" Fields as in the [%s](#%s-the-file) file.", c.refers, c.refers)
	}
	if slices.Contains(inner.kinds, configfile.Table) && len(inner.below) > 0 {
		at, ok := p.sections[inner.signature()]
		if !ok {
			at = inner
			p.sections[inner.signature()] = inner
			next = append(next, inner)
		}
		meaning += " See " + p.link(at) + "."
	}
	value := c.value().String(c.Unit)
	if inner != c && slices.Contains(inner.kinds, configfile.Table) {
		value = map[string]string{"[]": "list of mappings", "NAME": "mappings by name"}[c.below[0].name]
	} else if inner != c {
		value = strings.Replace(value, "mapping", "values by name", 1)
		if v := c.below[0].value(); v.bound != "" {
			value += ": " + v.String("")
		}
	}
	fallback := ""
	switch {
	case c.required:
		fallback = "required"
	case c.Default != "":
		fallback = "`" + c.Default + "`"
	}
	example := ""
	if inner.refers == "" && (len(inner.below) == 0 || inner.path == c.path) && !slices.Contains(c.kinds, configfile.Table) {
		example = "`" + yamlText(c.seen[0].node) + "`"
	}
	p.printf("| `%s` | %s | %s | %s | %s |\n", c.name, cell(value), cell(fallback), cell(example), cell(strings.TrimSpace(meaning)))
	return next
}

// cell is a text within a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

var notInSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// link leads to the section of a mapping.
func (p *page) link(s *shape) string {
	path := s.path
	if path == "" || path == "[]" {
		path = "the file"
	}
	title := p.kind + ": " + path
	return fmt.Sprintf("[%s](#%s)", path, strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(title), ""), " ", "-"))
}

// signature is the same for mappings that have the same fields.
func (s *shape) signature() string {
	var b strings.Builder
	var walk func(*shape)
	walk = func(s *shape) {
		fmt.Fprintf(&b, "%s|%s|%s|%s(", s.name, s.Meaning, s.Default, s.value().String(s.Unit))
		for _, c := range s.below {
			walk(c)
		}
		b.WriteByte(')')
	}
	for _, c := range s.below {
		walk(c)
	}
	return b.String()
}

// same reports whether two fields say and take the same.
func (s *shape) same(other *shape) bool {
	return s.name == other.name && s.Meaning == other.Meaning && s.signature() == other.signature()
}

// yamlText is a value as a person writes it.
func yamlText(n *configfile.Node) string {
	var all []string
	for _, v := range n.Items {
		all = append(all, yamlText(v))
	}
	for _, f := range n.Fields {
		all = append(all, f.Name+": "+yamlText(f.Node))
	}
	switch text := strings.Join(all, ", "); {
	case n.Kind == configfile.List:
		return "[" + text + "]"
	case n.Kind == configfile.Table:
		return "{" + text + "}"
	case n.Kind == configfile.Text && !plainText.MatchString(n.Written):
		return fmt.Sprintf("%q", n.Written)
	}
	return n.Written
}

var plainText = regexp.MustCompile(`^([A-Za-z./$]|[0-9.]+[A-Za-z/])[^#"]*$`)
