package parquet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// position is what is committed, by stream.
type position struct {
	Streams map[string]mark `json:"streams"`
}

// mark is how far a stream has come.
type mark struct {
	// Part is the number of the part that grows, from 1; those before it are
	// complete.
	Part int64 `json:"part"`
	// Spool is how many bytes of its spool count.
	Spool int64 `json:"spool"`
}

// parsePosition reads a committed position; nil is the very beginning.
func parsePosition(b json.RawMessage) (position, error) {
	if len(b) == 0 || string(b) == "null" {
		return position{Streams: map[string]mark{}}, nil
	}
	var p position
	wrong := func(err error) (position, error) {
		return position{}, fmt.Errorf("parquet: the committed position cannot be read; no file was changed: %w: "+
			"is the connection's sink still the same? Start over with `headway collect --fresh` if it is not", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields() // another sink's position is not an empty one
	if err := d.Decode(&p); err != nil {
		return wrong(err)
	}
	if p.Streams == nil {
		return wrong(errors.New("it names no streams"))
	}
	seen := folders{}
	for name, m := range p.Streams {
		if _, err := seen.claim(name); err != nil {
			return wrong(err)
		}
		if m.Part < 1 || m.Spool < 0 {
			return wrong(fmt.Errorf("stream %q has part %d and %d bytes of its spool", name, m.Part, m.Spool))
		}
	}
	return p, nil
}
