package collect

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
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
	// Pending gives what writes the records since the last call; nil when there
	// are none. The store calls it inside the commit's transaction.
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

// Burier is a sink that can only append, and writes a record that says that
// another is gone, a tombstone.
type Burier interface {
	Sink
	// Gone writes a tombstone for each key of the item parent that is no longer
	// there since that instant. It belongs to the slice as Write does.
	Gone(ctx context.Context, stream, parent string, keys []string, at time.Time) error
}

// Tombstone is the record that says that another is gone.
type Tombstone struct {
	DeletedAt string `json:"_headway_deleted_at"`
	Parent    string `json:"_headway_parent"`
	Key       string `json:"_headway_key"`
}

// Tombstones are those of an item's keys, in their order. They hold their own keys,
// for sinks whose records do.
func Tombstones(parent string, keys []string, at time.Time) ([]Record, error) {
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
	// Remain says which records of the item parent there are now, by key, once
	// some that there were are gone: all others of the item in this stream are
	// to be marked as gone at that instant. It belongs to the slice as Write
	// does, after the records written so far.
	Remain(ctx context.Context, stream, parent string, keys []string, at time.Time) error
}
