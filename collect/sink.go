package collect

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"time"
)

// Sink takes records. The runtime calls it from one goroutine.
//
// The order is Open, then for each slice any number of Write and one Sync,
// whose position goes into the store's commit of that slice, then Close. A
// further Write or Sync means that the position before was committed; a runtime
// whose commit failed closes the sink.
type Sink interface {
	// Open brings the sink back to a committed position: whatever was written
	// after it is discarded. A nil position is the very beginning. It is an
	// error when less is there than was committed. Streams are all that will be
	// written to.
	Open(ctx context.Context, committed json.RawMessage, streams []StreamInfo) error
	// Write appends records to a stream. They are not durable yet.
	Write(ctx context.Context, stream string, records []Record) error
	// Sync makes everything written durable and gives the position to commit.
	Sync(ctx context.Context) (json.RawMessage, error)
	// Close releases the sink. Records written since the last Sync may be lost.
	Close() error
}

// StreamInfo describes a stream to a sink.
type StreamInfo struct {
	Name string
	// Parent is the stream whose items' details these are; empty for a list.
	Parent string
	// KeyField is the top-level field of the records that holds their key; empty
	// when the key is computed otherwise.
	KeyField string
}

// Record is one record on its way to a sink.
type Record struct {
	// Key identifies the record: in its stream, and for details among those of
	// the item Parent.
	Key, Parent string
	// Data is one JSON value, without newlines.
	Data json.RawMessage
}

// Transactional is a sink whose records live in the store's own database, so
// that they become durable in the very transaction that moves the cursor. Its
// Sync is called too, and has nothing to do.
type Transactional interface {
	Sink
	// Pending returns a function that writes the records since the last call, or nil if
	// there are no records. The store calls that function inside the commit's transaction.
	Pending() func(ctx context.Context, tx Execer) error
}

// Execer is a transaction of the store's database.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Informed is a sink that is notified of each commit, for one that passes positions
// on to somebody else and may do so only once they hold.
type Informed interface {
	Sink
	// Committed says that the store has committed a position that Sync gave. A
	// process that dies in between never says so, but the next one begins with
	// Open at that position, a Sync and its commit. An error ends the run; what
	// was committed stays so.
	Committed(ctx context.Context, position json.RawMessage) error
}

// Asider is a sink that can set aside what it holds of some streams, so that a
// connection can start over without deleting anything. It is called before Open.
type Asider interface {
	SetAside(streams []string, at time.Time) (aside []string, err error)
}

// Burier is an append-only sink: it marks a record as gone by appending another one, a
// tombstone.
type Burier interface {
	Sink
	// Gone writes a tombstone for each of the keys: records of the item parent that were
	// found gone at the instant at. It is part of the slice, as Write is.
	Gone(ctx context.Context, stream, parent string, keys []string, at time.Time) error
}

// Tombstone is the record that says that another is gone.
type Tombstone struct {
	DeletedAt string `json:"_headway_deleted_at"`
	Parent    string `json:"_headway_parent"`
	Key       string `json:"_headway_key"`
}

// Bury writes a tombstone for each key as a record, in their order: what most sinks do
// as a [Burier].
func Bury(ctx context.Context, to Sink, stream, parent string, keys []string, at time.Time) error {
	records, err := tombstones(parent, keys, at)
	if err != nil {
		return err
	}
	return to.Write(ctx, stream, records)
}

// tombstones returns a tombstone for each key. Each holds its own key, for sinks that
// find keys in the records.
func tombstones(parent string, keys []string, at time.Time) ([]Record, error) {
	records := make([]Record, len(keys))
	for i, key := range keys {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(Tombstone{at.UTC().Format(time.RFC3339), parent, key}); err != nil {
			return nil, err
		}
		records[i] = Record{Key: key, Parent: parent, Data: bytes.TrimSuffix(b.Bytes(), []byte("\n"))}
	}
	return records, nil
}

// Marker is a sink that can mark records of a detail that are no longer there.
type Marker interface {
	Sink
	// Remain is called when records of the item parent are gone, with the keys of those
	// that it still has: all others of the item in this stream are to be marked as gone at
	// the instant at. It is part of the slice, as Write is, and comes after the records
	// written so far.
	Remain(ctx context.Context, stream, parent string, keys []string, at time.Time) error
}

// Location is where a sink writes. Sinks with the same location are the same sink.
type Location struct {
	// Kind is what it is: "jsonl", "sqlite", "postgres". "state" is the state file itself.
	Kind string `json:"kind"`
	// Path is the file or folder as the connection names it; empty for a sink without one,
	// such as standard output.
	Path string `json:"path,omitempty"`
}

// String says it in words: "jsonl in ./out".
func (l Location) String() string {
	switch {
	case l.Kind == "":
		return "an unknown sink"
	case l.Kind == "state":
		return "sqlite in the state file"
	case l.Path == "":
		return l.Kind
	}
	return l.Kind + " in " + l.Path
}

// FormerSink is a sink that a connection had before, with its position.
type FormerSink struct {
	Location
	Position json.RawMessage
}

// Located is a sink that says where it writes, so that another one is noticed.
type Located interface {
	Sink
	Location() Location
}

// Recognizer is a sink that can tell files that were moved along from others: one
// at another path that recognizes what was committed continues with it.
type Recognizer interface {
	Located
	// Recognizes reports whether what is there is what was committed at a
	// position. It changes nothing. It is called before Open.
	Recognizes(ctx context.Context, committed json.RawMessage) bool
}

// Noticer is a sink that can go on although its files are not as it left them, and says
// what changed.
type Noticer interface {
	Sink
	// Noticed gives what the last Open found.
	Noticed() []Change
}

// Namer is a sink that a stream's name has to suit, such as one of tables.
type Namer interface {
	Sink
	// CheckName says why a stream cannot have that name; "" if it can.
	CheckName(stream string) string
}

// SinkChange compares the sink that a connection had with the one it has; ok is
// false when it is the same, or when either is unknown.
func SinkChange(was, is Location) (c Change, ok bool) {
	if was.Kind == "" || is.Kind == "" || was.Kind == is.Kind && (was.Path == "" || was.Path == is.Path) {
		return Change{}, false
	}
	return Change{Kind: SinkChanged, Was: &was, Is: &is}, true
}

// openSink opens the sink at its committed position. A sink that the last run did not
// have resumes at the position that it had in its own last run, or starts from the
// beginning; what the former sink holds stays there.
func (r *execution) openSink(ctx context.Context, state State) error {
	position := state.Sink
	if sink, ok := r.o.Sink.(Located); ok {
		r.at = sink.Location()
	}
	if c, changed := SinkChange(state.SinkAt, r.at); changed {
		moved := false
		if sink, ok := r.o.Sink.(Recognizer); ok && c.Was.Kind == c.Is.Kind {
			moved = sink.Recognizes(ctx, position)
		}
		if moved {
			c.Kind = SinkMoved
		} else {
			position = nil
			for _, f := range state.FormerSinks {
				if f.Location == r.at {
					position, c.Kind = f.Position, SinkReturned
				}
			}
		}
		r.notice(c)
	}
	if _, tables := r.o.Sink.(Restorer); !tables {
		for _, p := range state.Replays {
			if p.To == r.at && p.State == ReplayUnfinished {
				return impossible("a replay of %s into %s is not finished, and what is collected now would stand before older records: "+
					"finish it with `headway replay`, or start over with --fresh", p.From, p.To)
			}
		}
	}
	if err := r.o.Sink.Open(ctx, position, r.streams()); err != nil {
		return err
	}
	if sink, ok := r.o.Sink.(Noticer); ok {
		for _, c := range sink.Noticed() {
			r.notice(c)
		}
	}
	return nil
}

// returned is the list of replays to keep from now on; nil leaves the list as it is.
// Nothing can be replayed any more into a sink that the connection has gone back to.
func (r *execution) returned(state State) []Replay {
	if !slices.ContainsFunc(r.noticed, func(c Change) bool { return c.Kind == SinkReturned }) {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(state.Replays), func(p Replay) bool { return p.To == r.at })
	return append(left, Replay{To: r.at, State: ReplayRefused})
}

// notice says what differs in the sink, at the start and in the summary.
func (r *execution) notice(c Change) {
	r.say(c)
	r.noticed = append(r.noticed, c)
}

// sinkText says what a change of the sink means.
func (c Change) sinkText() string {
	was, is := "the other", "it is another one"
	if c.Was != nil && c.Is != nil {
		was, is = c.Was.String(), "it is "+c.Is.String()+" and was "+c.Was.String()
	}
	switch c.Kind {
	case SinkMoved:
		return "the sink's files are at another place, and it continues with them"
	case SinkReturned:
		return "the sink changed back: " + is + "; it goes on where it was, and what was collected in between is in " + was
	case SinkFileGone:
		return "its file was moved away or emptied since the last run: a new one begins, what was written before is where it was moved to"
	case SinkAhead:
		return "the sink holds more than the state knows, which is an older copy: records that come again replace those that are there"
	default:
		text := "the sink changed: " + is + "; it gets what is collected from now on. What was collected before stays where it is: "
		const fresh = "collect with --fresh, which fetches all of it again"
		switch {
		case c.Was == nil || c.Is == nil:
			return text + "to have it here too, `headway replay` copies what a sqlite or postgres sink kept; else " + fresh
		case !Replayable(*c.Was):
			return text + "to have it here too, " + fresh
		case Replayable(*c.Is):
			return text + "to have it here too, `headway replay`, which fetches nothing"
		}
		return text + "to have it here too, `headway replay` while nothing else was written here, which fetches nothing; after that " + fresh
	}
}
