package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// position is what is committed: the length of each file, by name.
type position struct {
	Files map[string]extent `json:"files"`
}

type extent struct {
	// Length is in bytes.
	Length int64 `json:"length"`
	// Tail is a digest of the last of them, so that another file that took the
	// place of this one is noticed; empty is unknown.
	Tail string `json:"tail,omitempty"`
}

// parsePosition reads a committed position; nil is the very beginning.
func parsePosition(b json.RawMessage) (position, error) {
	if len(b) == 0 || string(b) == "null" {
		return position{Files: map[string]extent{}}, nil
	}
	var p position
	wrong := func(err error) (position, error) {
		return position{}, fmt.Errorf("jsonl: the committed position cannot be read; no file was changed: %w: "+
			"is the connection's sink still the same? Start over with `headway collect --fresh` if it is not", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields() // another sink's position is not an empty one
	if err := d.Decode(&p); err != nil {
		return wrong(err)
	}
	if p.Files == nil {
		return wrong(errors.New("it names no files"))
	}
	seen := owners{}
	for name, e := range p.Files {
		if err := checkName(name); err != nil {
			return wrong(err)
		}
		if err := seen.claim("", name); err != nil {
			return wrong(err)
		}
		if e.Length < 0 {
			return wrong(fmt.Errorf("file %q has the length %d", name, e.Length))
		}
	}
	return p, nil
}
