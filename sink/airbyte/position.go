package airbyte

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// position is what is committed: how far each stream is.
type position struct {
	Streams map[string]extent `json:"streams"`
}

// extent is also a stream's state, in the words of the protocol.
type extent struct {
	// Position counts the stream's records.
	Position int64 `json:"position"`
}

// parsePosition reads a committed position; nil is the very beginning.
func parsePosition(b json.RawMessage) (position, error) {
	if len(b) == 0 || string(b) == "null" {
		return position{map[string]extent{}}, nil
	}
	wrong := func(err error) (position, error) {
		return position{}, fmt.Errorf("airbyte: the committed position cannot be read: %w: "+
			"is the connection's sink still the same? Start over with `headway collect --fresh` if it is not", err)
	}
	var p position
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields() // another sink's position is not an empty one
	if err := d.Decode(&p); err != nil {
		return wrong(err)
	}
	if p.Streams == nil {
		return wrong(errors.New("it names no streams"))
	}
	for name, e := range p.Streams {
		if e.Position < 0 {
			return wrong(fmt.Errorf("stream %q has the position %d", name, e.Position))
		}
	}
	return p, nil
}
