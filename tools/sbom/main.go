// Command sbom prints what a Go binary was built from, as a CycloneDX 1.6
// document in JSON. It reads only the build information that the Go linker puts
// into every binary, so it needs no network, and the same binary always gives
// the same bytes: the document carries no time and no serial number.
//
// Usage: sbom BINARY > sbom.cdx.json
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
)

// A document is the part of a CycloneDX document that we fill.
type document struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	URL        string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write describes the binary at path.
func write(w io.Writer, path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w (build it with \"make build\" first)", path, err)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(describe(info))
}

// describe lists the main module, the standard library and every module that
// the linker used, a replaced one under the name of its replacement.
func describe(info *debug.BuildInfo) document {
	doc := document{Format: "CycloneDX", SpecVersion: "1.6", Version: 1}
	doc.Metadata.Component = module("application", info.Main)
	for _, s := range info.Settings {
		doc.Metadata.Component.Properties = append(doc.Metadata.Component.Properties, property{"go:build:" + s.Key, s.Value})
	}
	doc.Components = append(doc.Components, module("library", debug.Module{
		Path:    "std",
		Version: strings.TrimPrefix(info.GoVersion, "go"),
	}))
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		doc.Components = append(doc.Components, module("library", *dep))
	}
	return doc
}

// module describes one module; its sum is the one that go.sum records.
func module(kind string, m debug.Module) component {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := component{Type: kind, Ref: url, Name: m.Path, Version: m.Version, URL: url}
	if m.Sum != "" {
		c.Properties = []property{{"go:sum", m.Sum}}
	}
	return c
}
