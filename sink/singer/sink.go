package singer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/pipe"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

// Sink writes Singer messages. Make one with [New]. It is not safe for
// concurrent use.
type Sink struct {
	w io.Writer

	// The rest is set between Open and Close.
	out     *pipe.Writer
	streams map[string]*pipe.Stream
	// done is how far each stream is with everything that was written.
	done map[string]progress
	// sent is the shape of each stream's last SCHEMA.
	sent map[string]*shape
}

var (
	_ collect.Informed = (*Sink)(nil)
	_ collect.Located  = (*Sink)(nil)
)

// Location is standard output, or whatever New was given: no place of its own.
func (s *Sink) Location() collect.Location { return collect.Location{Kind: "singer"} }

// New gives a sink whose messages go to w, which it does not close. Nothing
// else may be written there.
func New(w io.Writer) *Sink { return &Sink{w: w} }

// Open takes up a committed position: the count and schema of each stream. It
// writes nothing. See [collect.Sink]. After Close a sink can be opened again,
// for a reader that takes the messages for one sequence.
func (s *Sink) Open(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	if err := sinkstate.MayOpen(ctx, "singer", "", s.out != nil); err != nil {
		return err
	}
	done, err := parsePosition(committed)
	if err != nil {
		return err
	}
	*s = Sink{
		w: s.w, out: pipe.NewWriter("singer", s.w), streams: pipe.Streams(streams),
		done: done, sent: map[string]*shape{},
	}
	return nil
}

// Write writes a RECORD for each record, and before them a SCHEMA when it is
// the stream's first, or when they have fields or types that the last one does
// not describe. See [collect.Sink]. A record without its key, or with more
// fields than a target gets, is an error, and nothing of the call is written.
// Once the output fails nothing is written until the sink is opened again.
func (s *Sink) Write(ctx context.Context, stream string, records []collect.Record) error {
	if err := sinkstate.MayWrite(ctx, "singer", s.out != nil); err != nil {
		return err
	}
	about, ok := s.streams[stream]
	if !ok {
		return fmt.Errorf("singer: stream %q is not among those that the sink was opened with", stream)
	}
	if len(records) == 0 {
		return nil
	}
	objects, err := about.Records(records)
	if err != nil {
		return fmt.Errorf("singer: %w", err)
	}
	read := make([][]member, len(objects))
	for i, o := range objects {
		read[i] = readMembers(o, maxDepth)
	}
	known := s.done[stream]
	if known.shape == nil {
		known.shape = &shape{kind: object, members: map[string]*shape{}}
	}
	if known.shape, err = known.shape.learn(read); err != nil {
		return fmt.Errorf("singer: stream %q %w; none of %d records was written: take fewer fields in the records expression",
			stream, err, len(records))
	}
	if s.sent[stream] != known.shape {
		if err := s.describe(about, known.shape); err != nil {
			return err
		}
		s.sent[stream] = known.shape
	}
	for _, members := range read {
		if err := s.out.Line(recordLine(stream, known.shape.fitMembers(value{members: members}))); err != nil {
			return err
		}
		known.records++
	}
	s.done[stream] = known
	return nil
}

func recordLine(stream string, record json.RawMessage) []byte {
	b := append([]byte(`{"type":"RECORD","stream":`), pipe.Quote(stream)...)
	b = append(append(b, `,"record":`...), record...)
	return append(b, '}')
}

// describe writes a SCHEMA.
func (s *Sink) describe(stream *pipe.Stream, shape *shape) error {
	return s.out.Message(struct {
		Type   string   `json:"type"`
		Stream string   `json:"stream"`
		Schema schema   `json:"schema"`
		Keys   []string `json:"key_properties"`
	}{"SCHEMA", stream.Name, shape.table(stream.Keys), stream.Keys})
}

// Sync hands everything written over to the pipe, and gives the position to
// commit. See [collect.Sink].
func (s *Sink) Sync(ctx context.Context) (json.RawMessage, error) {
	if err := sinkstate.MayWrite(ctx, "singer", s.out != nil); err != nil {
		return nil, err
	}
	if err := s.out.Flush(); err != nil {
		return nil, err
	}
	return encode(s.done)
}

// Committed writes the STATE of a position that the store has committed. See
// [collect.Informed].
func (s *Sink) Committed(ctx context.Context, position json.RawMessage) error {
	if err := sinkstate.MayWrite(ctx, "singer", s.out != nil); err != nil {
		return err
	}
	committed, err := parsePosition(position)
	if err != nil {
		return err
	}
	if err := s.out.Message(struct {
		Type  string `json:"type"`
		Value state  `json:"value"`
	}{"STATE", bookmarks(committed)}); err != nil {
		return err
	}
	return s.out.Flush()
}

// Close ends the sink. What was written since the last Sync may be missing from
// the output, but no message is cut in half. See [collect.Sink].
func (s *Sink) Close() error {
	*s = Sink{w: s.w}
	return nil
}

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
	var p position
	streams := map[string]progress{}
	err := sinkstate.Entries("singer", "", "streams", b, &p, &p.Streams, func(name string, e extent) error {
		s, err := e.Schema.shaped(columns)
		switch {
		case err != nil:
			return fmt.Errorf("stream %q: %w", name, err)
		case e.Position < 0:
			return fmt.Errorf("stream %q has the position %d", name, e.Position)
		}
		streams[name] = progress{e.Position, s}
		return nil
	})
	return streams, err
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

// bookmarks are the part of a position that a target gets.
func bookmarks(streams map[string]progress) state {
	s := state{map[string]bookmark{}}
	for name, p := range streams {
		s.Bookmarks[name] = bookmark{p.records}
	}
	return s
}
