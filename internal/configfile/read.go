// Package configfile reads YAML files written by people: connections, bulk targets, the
// daemon's configuration, quotas, scenarios and timelines. It reports all problems of a
// file at once, each with file, line, column, field and what is required there, in the
// same words for every kind of file.
//
//	root, file := configfile.Parse("x.yaml", src, configfile.Options{What: "scenario"})
//	s := root.Section()
//	s.Text("name", &name)
//	s.Duration("horizon", &horizon, time.Second, time.Hour)
//	s.Done()
//	return file.Err()
//
// [Parse] returns a tree of [Node]s with their positions. [Node.Section] reads a mapping
// key by key; all its methods do nothing on a nil Section, which stands for a mapping
// that is absent or was already reported. A secret is a reference: ${NAME} to the
// environment, ${file:PATH} to a file. $${ is a literal ${. Problems never contain the
// value of a secret, or what was written in its place.
//
// Anchors, aliases, merge keys and tags are rejected. A [File] and its nodes are not safe
// for concurrent use; a [Secret] and an [Error] may be read concurrently.
package configfile

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxDepth bounds nesting, because the YAML parser takes time quadratic in it.
const maxDepth = 32

// Options describe a kind of file.
type Options struct {
	// What is what the file describes, such as "connection".
	What string
	// Want is what the file must hold, such as "connection, provider and streams".
	Want string
	// MaxBytes bounds the file. Default 1 MiB.
	MaxBytes int
	// Env looks up references to the environment; nil has no variables.
	Env Env
	// Fill replaces references in every text; otherwise only [Section.Secret] and similar
	// methods do.
	Fill bool
	// Secret reports the paths that only accept references, Private those whose values
	// are never shown, for files that are read without a [Section]. Both may be nil.
	Secret, Private func(path string) bool
}

// DefaultMaxBytes is the default of Options.MaxBytes.
const DefaultMaxBytes = 1 << 20

func (o Options) maxBytes() int {
	if o.MaxBytes > 0 {
		return o.MaxBytes
	}
	return DefaultMaxBytes
}

// Load reads a file for [Parse], up to one byte more than is allowed.
func Load(path string, o Options) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", path, cause(err))
	}
	defer func() { _ = f.Close() }() // it was only read
	src, err := io.ReadAll(io.LimitReader(f, int64(o.maxBytes())+1))
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", path, cause(err))
	}
	return src, nil
}

// Parse parses src, which must hold one document; name stands for the file in problems.
// If it cannot be parsed, the node is nil and the problem is in the file. No input makes
// it panic.
func Parse(name string, src []byte, o Options) (*Node, *File) {
	f := NewFile(name, o)
	body := f.document(src)
	if body == nil {
		return nil, f
	}
	root := f.convert(body, "")
	if o.Fill {
		root.fill()
	}
	return root, f
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

// document returns the body of the one document; nil, with a problem, if there is none.
func (f *File) document(src []byte) ast.Node {
	text, o := strings.TrimPrefix(string(src), "\ufeff"), f.options
	switch {
	case len(src) > o.maxBytes():
		f.Fail(Place{}, "", "has more than %d bytes", o.maxBytes())
		return nil
	case !utf8.ValidString(text):
		f.Fail(Place{}, "", "is not UTF-8 text: save it as UTF-8")
		return nil
	case strings.ContainsRune(text, 0):
		f.Fail(Place{}, "", "holds a zero byte: it is not a text file")
		return nil
	case strings.ContainsAny(text, string(hiddenOpen)+string(hiddenClose)):
		f.Fail(Place{}, "", "holds the private characters U+E001 or U+E002: remove them")
		return nil
	}
	tokens := lexer.Tokenize(braces.ReplaceAllStringFunc(text, hide.Replace))
	if at, ok := tooDeep(tokens); ok {
		f.Fail(at, "", "is nested more than %d levels deep: a %s needs fewer than ten", maxDepth, o.What)
		return nil
	}
	// Duplicate keys are accepted here and reported with everything else.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at, message := Place{}, "cannot be read"
		if e, ok := errors.AsType[yaml.Error](err); ok {
			at, message = placeOf(e.GetToken()), show.Replace(e.GetMessage())
		}
		f.Fail(at, "", "is not valid YAML here: %s", message)
		return nil
	}
	var body ast.Node
	for _, d := range file.Docs {
		switch {
		case d.Body == nil:
		case body != nil:
			f.Fail(start(d.Body), "", "holds a second document: write each %s into a file of its own", o.What)
			return nil
		default:
			body = d.Body
		}
	}
	if body == nil {
		f.Fail(Place{}, "", "is empty: it needs %s", o.Want)
	}
	return body
}

// tooDeep finds where nesting exceeds the bound, before the parser runs.
func tooDeep(tokens token.Tokens) (Place, bool) {
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
			if flow == 0 { // else brackets say how deep it is
				run++
			}
		default:
		}
		// Indented levels need a column each; a line's own entries nest too.
		if flow > maxDepth || flow == 0 && (run > maxDepth || t.Position.IndentNum > 8*maxDepth) {
			return placeOf(t), true
		}
	}
	return Place{}, false
}

// placeOf returns where a token begins.
func placeOf(t *token.Token) Place {
	if t == nil || t.Position == nil {
		return Place{}
	}
	return Place{Line: max(1, t.Position.Line), Column: max(1, t.Position.Column)}
}

// start returns where a value begins; for the parser a mapping begins at a colon.
func start(n ast.Node) Place {
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

// convert makes a node of the parser's result; unsupported constructs are reported and
// become null.
func (f *File) convert(n ast.Node, path string) *Node {
	out := &Node{Kind: Null, At: start(n), Path: path, file: f}
	scalar := func(kind Kind, value string) {
		out.Kind, out.Written, out.Value = kind, n.GetToken().Value, value
	}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		scalar(Boolean, strconv.FormatBool(n.Value))
	case *ast.IntegerNode:
		scalar(Integer, fmt.Sprint(n.Value))
	case *ast.FloatNode:
		if math.IsInf(n.Value, 0) || math.IsNaN(n.Value) {
			out.Fail("is a number too large to hold")
			break
		}
		scalar(Number, strconv.FormatFloat(n.Value, 'g', -1, 64))
	case *ast.StringNode:
		out.text(show.Replace(n.Value))
	case *ast.LiteralNode:
		out.text(show.Replace(n.Value.Value))
	case *ast.SequenceNode:
		out.Kind = List
		for i, v := range n.Values {
			out.Items = append(out.Items, f.convert(v, fmt.Sprintf("%s[%d]", path, i)))
		}
	case *ast.MappingNode:
		out.table(n.Values...)
	case *ast.MappingValueNode:
		out.table(n)
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		out.Fail("is an anchor or alias, which %s files do not have: write the value out", f.options.What)
	case *ast.TagNode:
		out.Fail("has a YAML tag, which %s files do not have: leave the tag out", f.options.What)
	default:
		out.Fail("is a YAML value that no field takes: want a text, number, true, false, list or mapping")
	}
	return out
}

func (n *Node) text(s string) {
	n.Kind, n.Written, n.Value = Text, s, s
	for range references(s) {
		n.refs++
	}
}

// table reads the entries of a mapping.
func (n *Node) table(values ...*ast.MappingValueNode) {
	n.Kind = Table
	first := make(map[string]Place, len(values))
	for _, v := range values {
		key := v.Key.GetToken()
		at, name := placeOf(key), ""
		switch k := v.Key.(type) {
		case *ast.MergeKeyNode:
			n.file.Fail(at, n.Below("<<"), "merges another mapping, which %s files do not have: write the values out", n.file.options.What)
			continue
		case *ast.StringNode:
			name = show.Replace(k.Value)
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			name = key.Value // a tenant may be called 42
		default:
			n.file.Fail(at, n.Below("?"), "is not a plain key: write a name")
			continue
		}
		path := n.Below(name)
		if name == "" {
			n.file.Fail(at, n.Below(`""`), "has no name: remove the entry")
			continue
		}
		if before, twice := first[name]; twice {
			n.file.note(at, path, "is set twice, first at line %d: remove one", before.Line)
			continue
		}
		first[name] = at
		n.Fields = append(n.Fields, Field{Name: name, At: at, Node: n.file.convert(v.Value, path)})
	}
}

// Entries is a mapping that keeps the order of its entries, for [Write].
type Entries = yaml.MapSlice

// Entry is an entry of [Entries].
type Entry = yaml.MapItem

// Write returns a value as YAML for people to put into a file. Structs have the keys of
// their yaml tags.
func Write(v any) ([]byte, error) { return yaml.Marshal(v) }
