package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	// maxSource bounds a connection file: one is a page or two long.
	maxSource = 128 << 10
	// maxDepth bounds nesting: the YAML parser takes quadratic time in it.
	maxDepth = 32
)

// place is a position in the file, from 1.
type place struct{ line, column int }

// kind is a node's type in the words of JSON.
type kind string

const (
	kindNull    kind = "null"
	kindBoolean kind = "boolean"
	kindInteger kind = "integer"
	kindNumber  kind = "number"
	kindText    kind = "string"
	kindList    kind = "array"
	kindTable   kind = "object"
)

// node is a value of the file with its place.
type node struct {
	kind kind
	at   place
	path string // such as streams[0].list
	// written is a scalar as it stands in the file; value has the environment in it.
	written, value string
	refs           []reference
	items          []*node
	fields         []field
}

// field is an entry of a table.
type field struct {
	name string
	at   place
	node *node
}

// get is the table's entry of that name; nil when n is no table or has none.
func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	for _, f := range n.fields {
		if f.name == name {
			return f.node
		}
	}
	return nil
}

// below is the path of the table's entry of that name.
func (n *node) below(name string) string {
	if n.path == "" {
		return name
	}
	return n.path + "." + name
}

// json is the value as the schema sees it: with the environment in it, but for
// secrets, which the schema wants to see as references.
func (n *node) json() any {
	switch n.kind {
	case kindNull:
		return nil
	case kindBoolean:
		return n.value == "true"
	case kindInteger, kindNumber:
		return json.Number(n.value)
	case kindText:
		if secretField(n.path) {
			return n.written
		}
		return n.value
	case kindList:
		list := make([]any, len(n.items))
		for i, v := range n.items {
			list[i] = v.json()
		}
		return list
	default:
		table := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			table[f.name] = f.node.json()
		}
		return table
	}
}

// Inside braces YAML ends a plain text at a brace, so that ${NAME} could not
// be written without quotes. The braces of ${NAME} and {key} are therefore
// hidden from the YAML parser, as characters that it takes for letters: one
// for one, so that columns stay right, and put back into every text.
const (
	hiddenOpen  = '\ue001'
	hiddenClose = '\ue002'
)

var (
	braces = regexp.MustCompile(`\$\{[^{}\n"',]*\}|\{key\}`)
	hide   = strings.NewReplacer("{", string(hiddenOpen), "}", string(hiddenClose))
	show   = strings.NewReplacer(string(hiddenOpen), "{", string(hiddenClose), "}")
)

// readSource parses src; nil when it cannot be parsed, with the problem in r.
func readSource(src []byte, r *report) *node {
	text := strings.TrimPrefix(string(src), "\ufeff")
	switch {
	case len(src) > maxSource:
		r.add(place{}, "", "is %d bytes long, at most %d are read: a connection file is a page or two", len(src), maxSource)
		return nil
	case !utf8.ValidString(text):
		r.add(place{}, "", "is not UTF-8 text: save it as UTF-8")
		return nil
	case strings.ContainsRune(text, 0):
		r.add(place{}, "", "holds a zero byte: it is not a text file")
		return nil
	case strings.ContainsAny(text, string(hiddenOpen)+string(hiddenClose)):
		r.add(place{}, "", "holds the private characters U+E001 or U+E002: remove them")
		return nil
	}
	tokens := lexer.Tokenize(braces.ReplaceAllStringFunc(text, hide.Replace))
	if at, ok := tooDeep(tokens); ok {
		r.add(at, "", "is nested more than %d levels deep: a connection needs no more than 6", maxDepth)
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at, message := place{}, "cannot be read"
		if e, ok := errors.AsType[yaml.Error](err); ok {
			at, message = placeOf(e.GetToken()), show.Replace(e.GetMessage())
		}
		r.add(at, "", "is not valid YAML here: %s", message)
		return nil
	}
	var body ast.Node
	for _, d := range file.Docs {
		switch {
		case d.Body == nil:
		case body != nil:
			r.add(start(d.Body), "", "holds a second document: write each connection into a file of its own")
			return nil
		default:
			body = d.Body
		}
	}
	if body == nil {
		r.add(place{}, "", "is empty: it needs connection, provider and streams")
		return nil
	}
	return convert(body, "", r)
}

// tooDeep finds where nesting exceeds the bound, before the parser sees it.
func tooDeep(tokens token.Tokens) (place, bool) {
	flow, run, line := 0, 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType, token.AliasType, token.MappingValueType:
			if t.Position.Line != line {
				run, line = 0, t.Position.Line
			}
			run++
		default:
		}
		// Indented levels need a column each; a line's own entries nest too.
		if flow > maxDepth || flow == 0 && (run > maxDepth || t.Position.IndentNum > 8*maxDepth) {
			return placeOf(t), true
		}
	}
	return place{}, false
}

// placeOf is where a token begins.
func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{line: t.Position.Line, column: max(1, t.Position.Column)}
}

// start is where a value begins; the parser has mappings begin at a colon.
func start(n ast.Node) place {
	switch n := n.(type) {
	case *ast.MappingNode:
		if len(n.Values) > 0 && !n.IsFlowStyle {
			return start(n.Values[0])
		}
	case *ast.MappingValueNode:
		return placeOf(n.Key.GetToken())
	}
	return placeOf(n.GetToken())
}

// convert makes a node of what the parser found; what a connection file may
// not use is a problem and becomes null.
func convert(n ast.Node, path string, r *report) *node {
	out := &node{kind: kindNull, at: start(n), path: path}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		out.kind, out.written = kindBoolean, strconv.FormatBool(n.Value)
	case *ast.IntegerNode:
		out.kind, out.written = kindInteger, fmt.Sprint(n.Value)
	case *ast.FloatNode:
		if math.IsInf(n.Value, 0) || math.IsNaN(n.Value) {
			r.add(out.at, path, "is a number too large to hold")
			break
		}
		out.kind, out.written = kindNumber, strconv.FormatFloat(n.Value, 'g', -1, 64)
	case *ast.StringNode:
		out.kind, out.written = kindText, show.Replace(n.Value)
	case *ast.LiteralNode:
		out.kind, out.written = kindText, show.Replace(n.Value.Value)
	case *ast.SequenceNode:
		out.kind = kindList
		for i, v := range n.Values {
			out.items = append(out.items, convert(v, fmt.Sprintf("%s[%d]", path, i), r))
		}
	case *ast.MappingNode:
		out.kind = kindTable
		for _, v := range n.Values {
			out.entry(v, r)
		}
	case *ast.MappingValueNode:
		out.kind = kindTable
		out.entry(n, r)
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		r.add(out.at, path, "is an anchor or alias, which connection files do not have: write the value out")
	case *ast.TagNode:
		r.add(out.at, path, "has a YAML tag, which connection files do not have: leave the tag out")
	default:
		r.add(out.at, path, "is a YAML value that no field takes: want a text, number, true, false, list or mapping")
	}
	out.value = out.written
	return out
}

// entry adds one entry of a mapping to the table.
func (n *node) entry(v *ast.MappingValueNode, r *report) {
	key := v.Key.GetToken()
	if _, merge := v.Key.(*ast.MergeKeyNode); merge {
		r.add(placeOf(key), n.below("<<"), "merges another mapping, which connection files do not have: write the values out")
		return
	}
	name := ""
	if s, ok := v.Key.(ast.ScalarNode); ok {
		name = show.Replace(fmt.Sprint(s.GetValue()))
	} else {
		name = show.Replace(key.Value)
	}
	at, path := placeOf(key), n.below(name)
	if name == "" {
		r.add(at, n.below(`""`), "has no name: remove the entry")
		return
	}
	for _, f := range n.fields {
		if f.name == name {
			r.add(at, path, "is set twice, first at line %d: remove one", f.at.line)
			return
		}
	}
	n.fields = append(n.fields, field{name: name, at: at, node: convert(v.Value, path, r)})
}

// fill puts the environment into every text, and reports all variables that
// are missing.
func (n *node) fill(env Env, r *report) {
	for _, v := range n.items {
		v.fill(env, r)
	}
	for _, f := range n.fields {
		f.node.fill(env, r)
	}
	if n.kind != kindText {
		return
	}
	var missing []reference
	n.value, n.refs, missing = substitute(n.written, env)
	var names []string
	for _, ref := range missing {
		if ref.bad {
			r.add(n.at, n.path, "has a ${…} that is not a reference: write ${NAME} with letters, digits and underscores, or $${ for a literal ${")
			return
		}
		if !slices.Contains(names, ref.name) {
			names = append(names, ref.name)
		}
	}
	switch len(names) {
	case 0:
	case 1:
		r.add(n.at, n.path, "needs the environment variable %s, which is not set", names[0])
	default:
		r.add(n.at, n.path, "needs the environment variables %s, which are not set", strings.Join(names, ", "))
	}
}
