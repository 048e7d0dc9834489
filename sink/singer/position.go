package singer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// position is what is committed: how far each stream is, and what is known of
// its records.
type position struct {
	Streams map[string]extent `json:"streams"`
}

type extent struct {
	// Position counts the stream's records.
	Position int64 `json:"position"`
	// Schema is what they were learned to be; its top is an object.
	Schema schema `json:"schema"`
}

// progress is an extent in memory.
type progress struct {
	records int64
	shape   *shape
}

// parsePosition reads a committed position; nil is the very beginning.
func parsePosition(b json.RawMessage) (map[string]progress, error) {
	streams := map[string]progress{}
	if len(b) == 0 || string(b) == "null" {
		return streams, nil
	}
	wrong := func(err error) (map[string]progress, error) {
		return nil, fmt.Errorf("singer: the committed position cannot be read: %w: "+
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
		s, err := e.Schema.shaped(columns)
		switch {
		case err != nil:
			return wrong(fmt.Errorf("stream %q: %w", name, err))
		case e.Position < 0:
			return wrong(fmt.Errorf("stream %q has the position %d", name, e.Position))
		}
		streams[name] = progress{e.Position, s}
	}
	return streams, nil
}

// encode is what parsePosition reads.
func encode(streams map[string]progress) (json.RawMessage, error) {
	p := position{map[string]extent{}}
	for name, s := range streams {
		p.Streams[name] = extent{s.records, s.shape.schema()}
	}
	return json.Marshal(p)
}

// bookmark is how far a stream is, in the words of the specification.
type bookmark struct {
	Position int64 `json:"position"`
}

type state struct {
	Bookmarks map[string]bookmark `json:"bookmarks"`
}

// bookmarks are the part of a position that a target is told.
func bookmarks(streams map[string]progress) state {
	s := state{map[string]bookmark{}}
	for name, p := range streams {
		s.Bookmarks[name] = bookmark{p.records}
	}
	return s
}
