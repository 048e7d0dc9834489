package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestDescribeListsEveryModuleOnce(t *testing.T) {
	doc := describe(&debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "example.com/m", Version: "v1.2.3"},
		Deps: []*debug.Module{
			{Path: "a.org/plain", Version: "v1.0.0", Sum: "h1:x"},
			{Path: "a.org/old", Version: "v1.0.0", Replace: &debug.Module{Path: "a.org/new", Version: "v2.0.0"}},
		},
	})
	if got := doc.Metadata.Component.URL; got != "pkg:golang/example.com/m@v1.2.3" {
		t.Errorf("main component is %s", got)
	}
	var got []string
	for _, c := range doc.Components {
		got = append(got, c.URL)
	}
	want := "pkg:golang/std@1.26.8 pkg:golang/a.org/plain@v1.0.0 pkg:golang/a.org/new@v2.0.0"
	if strings.Join(got, " ") != want {
		t.Errorf("components are %v, want %s", got, want)
	}
	if p := doc.Components[1].Properties; len(p) != 1 || p[0].Value != "h1:x" {
		t.Errorf("the sum of a.org/plain is %v, want h1:x", p)
	}
}

func TestWriteReadsABinary(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if err := write(b, self); err != nil {
			t.Fatal(err)
		}
	}
	if !json.Valid(first.Bytes()) || first.String() != second.String() {
		t.Errorf("not the same JSON twice:\n%s\n%s", &first, &second)
	}
}

func TestWriteSaysWhatIsNoBinary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(&bytes.Buffer{}, path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v does not name the file", err)
	}
}
