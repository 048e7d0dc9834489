// Package yamlnode says in words what stands where in a YAML file, for problems
// that a person can mend. It reads nothing, keeps no state and is safe for
// concurrent use.
package yamlnode

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
)

// Position is where a node begins, from 1; 0 for none.
func Position(n ast.Node) (line, column int) {
	switch v := n.(type) {
	case nil:
		return 0, 0
	case *ast.MappingNode: // the parser has a mapping begin at its first colon
		if len(v.Values) > 0 && !v.IsFlowStyle {
			return Position(v.Values[0])
		}
	case *ast.MappingValueNode:
		return Position(v.Key)
	}
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return 0, 0
	}
	return max(1, t.Position.Line), max(1, t.Position.Column)
}

// Key is a key as it is written: a tenant may be called 42. Ok is false for what
// is not a plain key.
func Key(n ast.Node) (name string, ok bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	default:
		return "", false
	}
}

// Kind is a value in words.
func Kind(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "empty"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return Quoted(n.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return Clip(n.GetToken().Value)
	case *ast.AliasNode, *ast.AnchorNode, *ast.MergeKeyNode, *ast.TagNode:
		return "an anchor, alias, merge or tag, which these files do not have"
	default:
		return fmt.Sprintf("a YAML %s", strings.ToLower(n.Type().String()))
	}
}

// Clip keeps text of a file on one short line.
func Clip(s string) string {
	if len(s) > 60 || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return fmt.Sprintf("%.60q", s)
	}
	return s
}

// Quoted is Clip, always in quotes.
func Quoted(s string) string {
	if c := Clip(s); c != s {
		return c
	}
	return strconv.Quote(s)
}
