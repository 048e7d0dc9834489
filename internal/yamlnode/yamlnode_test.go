package yamlnode_test

import (
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/headway-go/headway/internal/yamlnode"
)

func TestNodesInWords(t *testing.T) {
	file, err := parser.ParseBytes([]byte("text: a b\n42: 7\nmap:\n  x: 1\nlist: [1]\nnone:\nlong: "+strings.Repeat("y", 70)+"\n"), 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		key, kind string
		line      int
	}{
		{"text", `"a b"`, 1}, {"42", "7", 2}, {"map", "a mapping", 4}, {"list", "a list", 5}, {"none", "empty", 6},
		{"long", `"` + strings.Repeat("y", 60) + `"`, 7},
	} {
		v := file.Docs[0].Body.(*ast.MappingNode).Values[i]
		key, ok := yamlnode.Key(v.Key)
		line, column := yamlnode.Position(v.Value)
		if key != want.key || !ok || yamlnode.Kind(v.Value) != want.kind || line != want.line || column < 1 {
			t.Errorf("%q is %s at %d:%d, want %+v", key, yamlnode.Kind(v.Value), line, column, want)
		}
	}
	if _, ok := yamlnode.Key(file.Docs[0].Body); ok {
		t.Error("a mapping is taken for a plain key")
	}
	if line, column := yamlnode.Position(nil); line != 0 || column != 0 || yamlnode.Kind(nil) != "empty" {
		t.Error("no node has a place or a value")
	}
}
