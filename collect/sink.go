package collect

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"time"
)

// Sink writes records. It is called from one goroutine.
//
// The order of calls is Open, then for each slice any number of Write and one Sync, then
// Close. The position that Sync returns is committed to the store with the slice. A
// further Write or Sync means that this commit succeeded; after a failed commit only
// Close is called.
type Sink interface {
	// Open resets the sink to a committed position and discards what was written after
	// it. A nil position is the beginning. If the sink holds less than was committed, Open
	// returns an error. streams are all streams that will be written.
	Open(ctx context.Context, committed json.RawMessage, streams []StreamInfo) error
	// Write appends records to a stream. They are durable only after Sync.
	Write(ctx context.Context, stream string, records []Record) error
	// Sync makes all written records durable and returns the position to commit.
	Sync(ctx context.Context) (json.RawMessage, error)
	// Close releases the sink. Records written since the last Sync may be lost.
	Close() error
}

// StreamInfo describes a stream to a sink.
type StreamInfo struct {
	Name string
	// Parent is the list stream to which these details belong; empty for a list stream.
	Parent string
	// KeyField is the top-level field of a record that holds its key; empty if the key is
	// computed in another way.
	KeyField string
}

// Record is one record to write to a sink.
type Record struct {
	// Key identifies the record in its stream or, for a detail, among the details of
	// the item Parent.
	Key, Parent string
	// Data is one JSON value, without newlines.
	Data json.RawMessage
}

// Transactional is a sink in the store's own database, whose records are written in the
// transaction that moves the cursor. Its Sync is called too, and has nothing to do.
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

// Informed is a sink that is notified of each commit, for example because it reports
// committed positions to another program.
type Informed interface {
	Sink
	// Committed is called after the store has committed a position returned by Sync. If
	// the process is killed in between it is not called, but the next run begins with
	// Open at that position, a Sync and a commit. An error ends the run, but the commit
	// stays.
	Committed(ctx context.Context, position json.RawMessage) error
}

// Asider is a sink that can set the data of streams aside, so that a connection can start
// over without deleting anything. SetAside is called before Open and returns the new
// names of what it set aside.
type Asider interface {
	SetAside(streams []string, at time.Time) (aside []string, err error)
}

// Burier is an append-only sink: it marks a record as gone by appending another one, a
// tombstone.
type Burier interface {
	Sink
	// Gone writes a tombstone for each of the keys: records of the item parent that were
	// found deleted at the time at. Like Write, it belongs to the slice.
	Gone(ctx context.Context, stream, parent string, keys []string, at time.Time) error
}

// Tombstone is a record that marks another record as deleted.
type Tombstone struct {
	DeletedAt string `json:"_headway_deleted_at"`
	Parent    string `json:"_headway_parent"`
	Key       string `json:"_headway_key"`
}

// Bury writes a tombstone for each key as a record, in the order of the keys. Most sinks
// implement [Burier] with it.
func Bury(ctx context.Context, to Sink, stream, parent string, keys []string, at time.Time) error {
	records, err := tombstones(parent, keys, at)
	if err != nil {
		return err
	}
	return to.Write(ctx, stream, records)
}

// tombstones returns a tombstone for each key.
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

// Marker is a sink that can mark records in place as deleted.
type Marker interface {
	Sink
	// Remain marks all records of the item parent in the stream as deleted at the time at,
	// except those with the given keys. It is called when records of the item were
	// deleted. Like Write, it belongs to the slice, and applies to the records written
	// before it.
	Remain(ctx context.Context, stream, parent string, keys []string, at time.Time) error
}

// Location is where a sink writes. Sinks with the same location are the same sink.
type Location struct {
	// Kind is the kind of the sink, such as "jsonl", "sqlite" or "postgres". "state" is
	// the state file itself.
	Kind string `json:"kind"`
	// Path is the file or folder as the connection names it; empty for a sink without one,
	// such as standard output.
	Path string `json:"path,omitempty"`
}

// String returns kind and path, for example "jsonl in ./out".
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

// Located is a sink that reports where it writes, so that a change of the sink is noticed.
type Located interface {
	Sink
	Location() Location
}

// Recognizer is a sink that can recognize its files after they were moved to another
// path. The run then continues with them.
type Recognizer interface {
	Located
	// Recognizes reports whether the files at the sink's path hold what was committed at
	// a position. It changes nothing and is called before Open.
	Recognizes(ctx context.Context, committed json.RawMessage) bool
}

// Noticer is a sink that can continue although its files were changed from outside, and
// reports what changed.
type Noticer interface {
	Sink
	// Noticed returns the changes that the last Open found.
	Noticed() []Change
}

// Namer is a sink that restricts the names of streams, such as one that names tables
// after them.
type Namer interface {
	Sink
	// CheckName returns why a stream cannot have that name, or "" if it can.
	CheckName(stream string) string
}

// SinkChange compares the former sink of a connection with its current one. ok is false if
// they are the same or either is unknown.
func SinkChange(was, is Location) (c Change, ok bool) {
	if was.Kind == "" || is.Kind == "" || was.Kind == is.Kind && (was.Path == "" || was.Path == is.Path) {
		return Change{}, false
	}
	return Change{Kind: SinkChanged, Was: &was, Is: &is}, true
}

// openSink opens the sink at its committed position. A sink that the last run did not use
// continues at its position among the former sinks or, if it is new, at the beginning.
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
				return impossible("a replay of %s into %s is not finished, and records collected now would come before older ones: "+
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

// returned returns the list of replays to store, or nil to leave it unchanged. If the
// connection has gone back to a former sink, replays into it are refused from now on.
func (r *execution) returned(state State) []Replay {
	if !slices.ContainsFunc(r.noticed, func(c Change) bool { return c.Kind == SinkReturned }) {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(state.Replays), func(p Replay) bool { return p.To == r.at })
	return append(left, Replay{To: r.at, State: ReplayRefused})
}

// notice reports a change of the sink, by an event and in the summary.
func (r *execution) notice(c Change) {
	r.say(c)
	r.noticed = append(r.noticed, c)
}

// sinkText describes a change of the sink.
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
		return "its file was moved away or emptied since the last run: a new file begins, earlier records are in the old one"
	case SinkAhead:
		return "the sink holds more than the state, which is an older copy: records that are collected again replace those in the sink"
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
