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

// Sink writes Singer messages. Create one with [New]. It is not safe for concurrent use.
type Sink struct {
	w io.Writer

	// The rest is set between Open and Close.
	out     *pipe.Writer
	streams map[string]*pipe.Stream
	// done is the position of each stream, including all written records.
	done map[string]progress
	// sent holds the shape of each stream's last SCHEMA.
	sent map[string]*shape
}

var (
	_ collect.Informed = (*Sink)(nil)
	_ collect.Located  = (*Sink)(nil)
)

// Location returns the kind "singer" without a path.
func (s *Sink) Location() collect.Location { return collect.Location{Kind: "singer"} }

// New returns a sink that writes messages to w, which it does not close. Nothing else may
// be written to w.
func New(w io.Writer) *Sink { return &Sink{w: w} }

// Open resumes at a committed position: the count and schema of each stream. It writes
// nothing. See [collect.Sink]. After Close a sink can be opened again; its messages then
// continue the same output.
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

// Write writes a RECORD for each record, preceded by a SCHEMA if it is the stream's first
// call or the records do not fit the last schema. See [collect.Sink]. If a record has no
// key or too many fields, Write returns an error and writes nothing. After an error of the
// output nothing is written until the sink is opened again.
func (s *Sink) Write(ctx context.Context, stream string, records []collect.Record) error {
	if err := sinkstate.MayWrite(ctx, "singer", s.out != nil); err != nil {
		return err
	}
	about, ok := s.streams[stream]
	if !ok {
		return fmt.Errorf("singer: stream %q was not passed to Open", stream)
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
		return fmt.Errorf("singer: stream %q %w; none of %d records was written: select fewer fields in the records expression",
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

// Sync writes all buffered messages to the pipe and returns the position to commit. See
// [collect.Sink].
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

// Close closes the sink, but not its writer. Messages since the last Sync may be missing
// from the output, but none is cut in half. See [collect.Sink].
func (s *Sink) Close() error {
	*s = Sink{w: s.w}
	return nil
}

// position is the committed position: the count and the schema of each stream.
type position struct {
	Streams map[string]extent `json:"streams"`
}

type extent struct {
	// Position counts the stream's records.
	Position int64 `json:"position"`
	// Schema is the learned schema of the records, an object at the top.
	Schema schema `json:"schema"`
}

// progress is an extent in memory.
type progress struct {
	records int64
	shape   *shape
}

// parsePosition parses a committed position; nil means the beginning.
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

// encode returns the position that parsePosition parses.
func encode(streams map[string]progress) (json.RawMessage, error) {
	p := position{map[string]extent{}}
	for name, s := range streams {
		p.Streams[name] = extent{s.records, s.shape.schema()}
	}
	return json.Marshal(p)
}

// bookmark is a stream's entry in STATE.
type bookmark struct {
	Position int64 `json:"position"`
}

type state struct {
	Bookmarks map[string]bookmark `json:"bookmarks"`
}

// bookmarks returns the part of a position that STATE contains.
func bookmarks(streams map[string]progress) state {
	s := state{map[string]bookmark{}}
	for name, p := range streams {
		s.Bookmarks[name] = bookmark{p.records}
	}
	return s
}
