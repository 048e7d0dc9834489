package configfile

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Place is a position in the file, from 1; the zero value is the file as a whole.
type Place struct{ Line, Column int }

// Kind is a node's type in the words of JSON.
type Kind string

// The kinds of nodes.
const (
	Null    Kind = "null"
	Boolean Kind = "boolean"
	Integer Kind = "integer"
	Number  Kind = "number"
	Text    Kind = "string"
	List    Kind = "array"
	Table   Kind = "object"
)

// Node is a value of the file with its place.
type Node struct {
	Kind Kind
	At   Place
	Path string // such as streams[0].list
	// Written is a scalar as it stands in the file. Value has the environment in it,
	// where the file may refer to it everywhere ([Options]), and numbers as JSON has them.
	Written, Value string
	Items          []*Node
	Fields         []Field

	file *File
	refs int // how many references Written has
}

// Field is an entry of a table.
type Field struct {
	Name string
	At   Place
	Node *Node
}

// NewNode is a scalar that stands in no file, such as the value of a flag, for the
// same checks.
func NewNode(f *File, path, text string) *Node {
	return &Node{Kind: Number, Path: path, Written: text, Value: text, file: f}
}

// Get is the table's entry of that name; nil when n is no table or has none.
func (n *Node) Get(name string) *Node {
	if n == nil {
		return nil
	}
	for _, f := range n.Fields {
		if f.Name == name {
			return f.Node
		}
	}
	return nil
}

// Below is the path of the table's entry of that name.
func (n *Node) Below(name string) string {
	if n.Path == "" {
		return name
	}
	return n.Path + "." + name
}

// File is what the node's problems are collected in.
func (n *Node) File() *File { return n.file }

// References reports whether the text has references in it.
func (n *Node) References() bool { return n.refs > 0 }

// Fail reports a problem with the node.
func (n *Node) Fail(format string, args ...any) { n.file.Fail(n.At, n.Path, format, args...) }

// Want reports that the node is not what is wanted.
func (n *Node) Want(bound string) { n.Fail("%s; want %s", n.Is(), bound) }

// Is says what the node holds, without what may be secret.
func (n *Node) Is() string {
	o := n.file.options
	switch {
	case n.Kind != Text && n.Kind != Integer && n.Kind != Number && n.Kind != Boolean:
		return n.shape()
	case o.Secret != nil && o.Secret(n.Path):
		return "is written out"
	case o.Private != nil && o.Private(n.Path) || login(n):
		return "has a value that is not allowed (not shown)"
	case n.Written == "":
		return "is empty"
	case n.refs > 0 && o.Fill:
		return "is " + Quote(n.Written) + ", whose value is not allowed (not shown)"
	case n.Kind == Text:
		return "is " + Quote(n.Written)
	default:
		return "is " + n.Written
	}
}

// login reports whether a URL's text holds what may be a user and a password.
func login(n *Node) bool {
	return (n.Path == "url" || strings.HasSuffix(n.Path, "_url") || strings.HasSuffix(n.Path, ".url")) && strings.Contains(n.Written, "@")
}

// shape is what the node holds without any value.
func (n *Node) shape() string {
	switch {
	case n.Kind == Null:
		return "has no value"
	case n.Kind == List && len(n.Items) == 0:
		return "is an empty list"
	case n.Kind == List:
		return "is a list"
	case n.Kind == Table:
		return "is a mapping"
	case n.Kind == Text:
		return "is a text"
	case n.Kind == Boolean:
		return "is true or false"
	default:
		return "is a number"
	}
}

// JSON is the value as a JSON schema sees it: with the environment in it, but for
// secrets, which a schema wants to see as references.
func (n *Node) JSON() any {
	switch n.Kind {
	case Null:
		return nil
	case Boolean:
		return n.Value == "true"
	case Integer, Number:
		return json.Number(n.Value)
	case Text:
		if secret := n.file.options.Secret; secret != nil && secret(n.Path) {
			return n.Written
		}
		return n.Value
	case List:
		list := make([]any, len(n.Items))
		for i, v := range n.Items {
			list[i] = v.JSON()
		}
		return list
	default:
		table := make(map[string]any, len(n.Fields))
		for _, f := range n.Fields {
			table[f.Name] = f.Node.JSON()
		}
		return table
	}
}

// Int is a whole number in decimal digits. 010 is refused: is it ten or eight?
func (n *Node) Int() (v int64, ok bool) {
	digits := strings.TrimPrefix(n.Written, "-")
	if n.Kind != Integer || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	v, err := strconv.ParseInt(n.Written, 10, 64)
	return v, err == nil
}

// Float is a finite number.
func (n *Node) Float() (v float64, ok bool) {
	if n.Kind != Integer && n.Kind != Number {
		return 0, false
	}
	v, err := strconv.ParseFloat(n.Value, 64)
	return v, err == nil
}

// wantDuration is what stands where a length of time should.
const wantDuration = "a duration with a unit, such as 250ms, 20s or 15m"

// Duration is a length of time in Go's syntax. With ok false that is reported.
func (n *Node) Duration() (d time.Duration, ok bool) {
	if n.Kind == Text {
		if d, err := time.ParseDuration(n.Value); err == nil {
			return d, true
		}
	}
	n.Want(wantDuration)
	return 0, false
}
