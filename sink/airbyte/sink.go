package airbyte

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/pipe"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

// Options are the options of a [Sink]. All are optional.
type Options struct {
	// Now returns the time for emitted_at. Default time.Now.
	Now func() time.Time
	// Live returns the state of the run: [collect.Collector.Live]. Without it the sink
	// writes no estimates and no quota_reset.
	Live func() (collect.Live, bool)
}

// Sink writes Airbyte messages. Create one with [New]. It is safe for concurrent use, so
// that OnEvent may be called at any time.
type Sink struct {
	w io.Writer
	o Options

	mu sync.Mutex
	// out is kept after Close, since the final status of the streams is written later.
	out     *pipe.Writer
	open    bool
	streams []*stream
	// others holds the positions of streams that the connection no longer has.
	others map[string]extent
	// at is the run's current stream.
	at string
}

// stream is one of the streams of a run.
type stream struct {
	*pipe.Stream
	parent string
	status status
	// limits is the last RATE_LIMITED; nil after a record.
	limits []cause

	// position counts all written records, and committed the committed ones. stated is
	// the position of the last STATE; -1 before the first.
	position, committed, stated int64
	// pending counts the records since the last STATE.
	pending int64
	// rows and writes count the records and the calls of Write of this run.
	rows, writes int64
	// guess is the last estimate; guessed reports that it was made since the last commit.
	guess   int64
	guessed bool
}

var (
	_ collect.Informed = (*Sink)(nil)
	_ collect.Located  = (*Sink)(nil)
)

// Location returns the kind "airbyte" without a path.
func (s *Sink) Location() collect.Location { return collect.Location{Kind: "airbyte"} }

// New returns a sink that writes messages to w, which it does not close. Nothing else may
// be written to w.
func New(w io.Writer, o Options) *Sink {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Sink{w: w, o: o}
}

// Open resumes at a committed position: the count of each stream. It writes nothing. See
// [collect.Sink].
func (s *Sink) Open(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := sinkstate.MayOpen(ctx, "airbyte", "", s.open); err != nil {
		return err
	}
	p, err := parsePosition(committed)
	if err != nil {
		return err
	}
	s.out, s.open, s.streams, s.others, s.at = pipe.NewWriter("airbyte", s.w), true, nil, p.Streams, ""
	for _, info := range streams {
		s.streams = append(s.streams, &stream{
			Stream: pipe.NewStream(info), parent: info.Parent,
			position: p.Streams[info.Name].Position, stated: -1,
		})
		delete(s.others, info.Name)
	}
	return nil
}

// Write writes a RECORD for each record, and the status RUNNING before a stream's first.
// See [collect.Sink]. If a record has no key, Write returns an error and writes nothing.
// After an error of the output nothing is written until the sink is opened again.
func (s *Sink) Write(ctx context.Context, name string, records []collect.Record) error {
	now, live := s.live() // before locking, since it takes other locks
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := sinkstate.MayWrite(ctx, "airbyte", s.open); err != nil {
		return err
	}
	st := s.stream(name)
	if st == nil {
		return fmt.Errorf("airbyte: stream %q was not passed to Open", name)
	}
	if len(records) == 0 {
		return nil
	}
	objects, err := st.Records(records)
	if err != nil {
		return fmt.Errorf("airbyte: %w", err)
	}
	if err := s.run(st); err != nil {
		return err
	}
	quoted, at := pipe.Quote(name), s.o.Now().UnixMilli()
	for _, o := range objects {
		if err := s.out.Line(recordLine(quoted, pipe.AppendObject(nil, o), at)); err != nil {
			return err
		}
	}
	n := int64(len(records))
	st.position, st.pending, st.rows, st.writes = st.position+n, st.pending+n, st.rows+n, st.writes+1
	if live {
		return s.estimates(st, now)
	}
	return nil
}

// estimates writes the estimated number of rows of a detail stream and its list, once
// after each commit if no further page follows.
func (s *Sink) estimates(details *stream, now collect.Live) error {
	if details.parent == "" || now.More || details.guessed {
		return nil
	}
	details.guessed = true
	each := float64(details.rows) / float64(details.writes)
	if err := s.estimate(details, details.rows+int64(each*float64(max(now.Owed, 0))+0.5)); err != nil {
		return err
	}
	if list := s.stream(details.parent); list != nil && list.rows > 0 {
		return s.estimate(list, list.rows)
	}
	return nil
}

func (s *Sink) estimate(st *stream, rows int64) error {
	if rows == st.guess {
		return nil
	}
	st.guess = rows
	return s.trace(trace{Type: "ESTIMATE", Estimate: &estimate{st.Name, "STREAM", rows}})
}

// Sync writes all buffered messages to the pipe and returns the position to commit. See
// [collect.Sink].
func (s *Sink) Sync(ctx context.Context) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := sinkstate.MayWrite(ctx, "airbyte", s.open); err != nil {
		return nil, err
	}
	if err := s.out.Flush(); err != nil {
		return nil, err
	}
	p := position{map[string]extent{}}
	maps.Copy(p.Streams, s.others)
	for _, st := range s.streams {
		if st.position > 0 {
			p.Streams[st.Name] = extent{st.position}
		}
	}
	return json.Marshal(p)
}

// Committed writes the STATE of each stream with newly committed records. See
// [collect.Informed].
func (s *Sink) Committed(ctx context.Context, committed json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := sinkstate.MayWrite(ctx, "airbyte", s.open); err != nil {
		return err
	}
	p, err := parsePosition(committed)
	if err != nil {
		return err
	}
	for _, st := range s.streams {
		st.committed, st.guessed = p.Streams[st.Name].Position, false
		if err := s.state(st); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// state writes a stream's STATE if the stream has begun and its position is new.
func (s *Sink) state(st *stream) error {
	if st.status == "" || st.committed == st.stated || st.committed == 0 {
		return nil
	}
	if err := s.out.Message(stateOf(st.Name, st.committed, st.pending)); err != nil {
		return err
	}
	st.stated, st.pending = st.committed, 0
	return nil
}

// Close ends the writing of records; the final status of the streams follows with the
// event of the run's end. Messages since the last Sync may be missing from the output, but
// none is cut in half. See [collect.Sink].
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		s.out.Discard()
		s.open = false
	}
	return nil
}

func (s *Sink) stream(name string) *stream {
	for _, st := range s.streams {
		if st.Name == name {
			return st
		}
	}
	return nil
}

func (s *Sink) trace(t trace) error {
	t.EmittedAt = s.o.Now().UnixMilli()
	return s.out.Message(traceMessage{"TRACE", t})
}

func (s *Sink) live() (collect.Live, bool) {
	if s.o.Live == nil {
		return collect.Live{}, false
	}
	return s.o.Live()
}

// position is the committed position: the count of each stream.
type position struct {
	Streams map[string]extent `json:"streams"`
}

// extent is also the content of a stream's STATE.
type extent struct {
	// Position counts the stream's records.
	Position int64 `json:"position"`
}

// parsePosition parses a committed position; nil means the beginning.
func parsePosition(b json.RawMessage) (position, error) {
	var p position
	err := sinkstate.Entries("airbyte", "", "streams", b, &p, &p.Streams, func(name string, e extent) error {
		if e.Position < 0 {
			return fmt.Errorf("stream %q has the position %d", name, e.Position)
		}
		return nil
	})
	return p, err
}
