package configfile

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Place is a position in the file, from 1; the zero value stands for the file as a whole.
type Place struct{ Line, Column int }

// Kind is a node's type, in JSON's terms.
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

// Node is a value of the file with its position.
type Node struct {
	Kind Kind
	At   Place
	Path string // such as streams[0].list
	// Written is a scalar as written in the file. In Value, references to the environment
	// are replaced if the file allows them everywhere ([Options]), and numbers are in
	// JSON's form.
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

// NewNode returns a scalar that is not from a file, such as the value of a flag, so that
// it gets the same checks.
func NewNode(f *File, path, text string) *Node {
	return &Node{Kind: Number, Path: path, Written: text, Value: text, file: f}
}

// Get returns the named entry of a table; nil if n is not a table or has no such entry.
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

// Below returns the path of the named entry of a table.
func (n *Node) Below(name string) string {
	if n.Path == "" {
		return name
	}
	return n.Path + "." + name
}

// File returns the file that collects the node's problems.
func (n *Node) File() *File { return n.file }

// References reports whether the text has references in it.
func (n *Node) References() bool { return n.refs > 0 }

// Fail reports a problem with the node.
func (n *Node) Fail(format string, args ...any) { n.file.Fail(n.At, n.Path, format, args...) }

// Want reports that the node is not what is required.
func (n *Node) Want(bound string) { n.Fail("%s; want %s", n.Is(), bound) }

// Is describes what the node holds, without possible secrets.
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

// login reports whether a URL's text may hold a user and a password.
func login(n *Node) bool {
	return (n.Path == "url" || strings.HasSuffix(n.Path, "_url") || strings.HasSuffix(n.Path, ".url")) && strings.Contains(n.Written, "@")
}

// shape describes what the node holds, without values.
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

// JSON returns the value as a JSON schema sees it: with the environment filled in, except
// that secrets stay references.
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

// Int returns a whole number in decimal digits. 010 is rejected, because it could mean
// ten or eight.
func (n *Node) Int() (v int64, ok bool) {
	digits := strings.TrimPrefix(n.Written, "-")
	if n.Kind != Integer || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	v, err := strconv.ParseInt(n.Written, 10, 64)
	return v, err == nil
}

// Float returns a finite number.
func (n *Node) Float() (v float64, ok bool) {
	if n.Kind != Integer && n.Kind != Number {
		return 0, false
	}
	v, err := strconv.ParseFloat(n.Value, 64)
	return v, err == nil
}

// wantDuration says what is required where a duration is invalid.
const wantDuration = "a duration with a unit, such as 250ms, 20s or 15m"

// Duration returns a duration in Go's syntax. If ok is false, a problem was reported.
func (n *Node) Duration() (d time.Duration, ok bool) {
	if n.Kind == Text {
		if d, err := time.ParseDuration(n.Value); err == nil {
			return d, true
		}
	}
	n.Want(wantDuration)
	return 0, false
}
