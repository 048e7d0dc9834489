package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/field"
)

// maxPending bounds the records of one slice, in bytes.
const maxPending = 256 << 20

// Sink writes records into the store's own file. Make one with [New]. It is
// not safe for concurrent use.
type Sink struct {
	connection string
	max        int

	// own says that the store's tables are in another file.
	own bool

	// aside is when SetAside was called; Open takes it over.
	aside string

	// The rest is set between Open and Close.
	open bool
	// begun is when this connection last started over, "" when it never did.
	// Tables of another beginning are set aside.
	begun   string
	streams []collect.StreamInfo
	pending map[string][]record
	size    int
}

// record waits for the commit. One with remaining is not a record: it says which
// keys of the parent are left.
type record struct {
	key, parent string
	data        []byte
	remaining   *remaining
	older       *older // nil for one that replaces its row
}

var (
	_ collect.Transactional = (*Sink)(nil)
	_ collect.Asider        = (*Sink)(nil)
	_ collect.Marker        = (*Sink)(nil)
	_ collect.Located       = (*Sink)(nil)
)

// New gives a sink for one connection's records, in the file of the store that
// commits them. The connection's name keeps its tables apart from those of the
// other connections in the store.
func New(connection string) *Sink { return &Sink{connection: connection, max: maxPending} }

// Location is the state file, wherever that is.
func (s *Sink) Location() collect.Location { return collect.Location{Kind: "state"} }

// position is what is committed. The rows themselves are in the same
// transaction, so there is nothing to count.
type position struct {
	SQLite *tables `json:"sqlite"`
}

type tables struct {
	Begun string `json:"begun,omitzero"`
}

// Open checks the names of the streams, and that the position is one of this
// sink's. See [collect.Sink]. What was not committed is not in the file.
func (s *Sink) Open(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	if s.open {
		return errors.New("sqlite sink: it is open already: Close it first")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqlite sink: open: %w", err)
	}
	if s.connection == "" {
		return errors.New("sqlite sink: the connection has no name")
	}
	p := position{SQLite: &tables{}}
	if len(committed) > 0 && string(committed) != "null" {
		d := json.NewDecoder(bytes.NewReader(committed))
		d.DisallowUnknownFields() // another sink's position is not an empty one
		if err := d.Decode(&p); err != nil {
			return unreadable(err)
		}
		if p.SQLite == nil {
			return unreadable(errors.New("it is not of this sink"))
		}
	}
	if err := checkNames(streams, s.own); err != nil {
		return err
	}
	begun := p.SQLite.Begun
	if s.aside != "" {
		begun = s.aside
	}
	*s = Sink{
		connection: s.connection, max: s.max, own: s.own,
		open: true, begun: begun, streams: slices.Clone(streams), pending: map[string][]record{},
	}
	return nil
}

func unreadable(err error) error {
	return fmt.Errorf("sqlite sink: the committed position cannot be read; nothing was changed: %w: "+
		"is the connection's sink still the same? Start over with `headway collect --fresh` if it is not", err)
}

// Write keeps records for the commit. See [collect.Sink]. A record that is not
// JSON in UTF-8 or has no key is an error, and nothing of the call is kept. So
// is a slice of more than 256 MiB.
func (s *Sink) Write(ctx context.Context, stream string, records []collect.Record) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	info, err := s.info(stream)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	added := make([]record, len(records))
	size := s.size
	for i, r := range records {
		b.Reset()
		wrong := ""
		switch {
		case !field.Record(&b, r.Data):
			wrong = "is not JSON in UTF-8"
		case r.Key == "":
			wrong = "has no key, so no row of its own"
		case r.Parent == "" && info.Parent != "":
			wrong = "has no parent, and the stream's rows have one"
		case r.Parent != "" && info.Parent == "":
			wrong = "has a parent, and the stream's rows have none"
		}
		if wrong != "" {
			return fmt.Errorf("sqlite sink: stream %q: record %d of %d %s; none of them was written: "+
				"the connector must give one JSON value and a key for each record", stream, i+1, len(records), wrong)
		}
		added[i] = record{key: r.Key, parent: r.Parent, data: bytes.Clone(b.Bytes())}
		if size += len(r.Key) + len(r.Parent) + b.Len(); size > s.max {
			return fmt.Errorf("sqlite sink: stream %q: the slice has more than %d bytes, which wait in memory for its commit: "+
				"ask for smaller pages", stream, s.max)
		}
	}
	s.pending[stream], s.size = append(s.pending[stream], added...), size
	return nil
}

// Sync gives the position to commit. See [collect.Sink]. The records become
// durable with the transaction that [Sink.Pending] is part of.
func (s *Sink) Sync(ctx context.Context) (json.RawMessage, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return json.Marshal(position{&tables{Begun: s.begun}})
}

// Pending gives what writes the records since the last call. See
// [collect.Transactional]. It may be called again when its transaction was
// rolled back.
func (s *Sink) Pending() func(ctx context.Context, tx collect.Execer) error {
	if !s.open || s.size == 0 {
		return nil
	}
	c := change{connection: s.connection, begun: s.begun, streams: s.streams, records: s.pending}
	s.pending, s.size = map[string][]record{}, 0
	return c.apply
}

// Close releases the sink. See [collect.Sink]. Records that were not committed
// are gone.
func (s *Sink) Close() error {
	*s = Sink{connection: s.connection, max: s.max, own: s.own}
	return nil
}

// SetAside has the connection's tables renamed to NAME_TIME_bak, for a
// collection that starts over. See [collect.Asider]. This happens with the
// first commit that has records, in its transaction, and to all streams that
// Open was given; so nothing is renamed yet, and no names are returned. The
// sink must not be open, and the connection's state must be forgotten before
// it is.
//
// A call that was cut short may be repeated.
func (s *Sink) SetAside(_ []string, at time.Time) ([]string, error) {
	if s.open {
		return nil, errors.New("sqlite sink: it is open: set tables aside before Open")
	}
	s.aside = at.UTC().Format(time.RFC3339Nano)
	return nil, nil
}

func (s *Sink) usable(ctx context.Context) error {
	if !s.open {
		return errors.New("sqlite sink: it is not open: call Open first")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqlite sink: %w", err)
	}
	return nil
}

func (s *Sink) info(stream string) (collect.StreamInfo, error) {
	i := slices.IndexFunc(s.streams, func(i collect.StreamInfo) bool { return i.Name == stream })
	if i < 0 {
		return collect.StreamInfo{}, fmt.Errorf("sqlite sink: the stream %q was not among those of Open", stream)
	}
	return s.streams[i], nil
}

// reserved are the tables and indexes of the store, which live in the same
// file. Later versions of the store name theirs headway_something.
var reserved = []string{
	"connections", "events", "gaps", "gaps_by_rank", "gaps_by_status", "items", "lanes", "runs", "runs_of_connection", "streams",
}
