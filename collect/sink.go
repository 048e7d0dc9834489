package collect

import (
	"context"
	"encoding/json"
	"time"
)

// Sink takes records. The runtime calls it from one goroutine.
//
// The order is Open, then for each slice any number of Write and one Sync,
// whose position goes into the store's commit of that slice, then Close.
type Sink interface {
	// Open brings the sink back to a committed position: whatever was written
	// after it is discarded. A nil position is the very beginning. It is an
	// error when less is there than was committed.
	Open(ctx context.Context, committed json.RawMessage) error
	// Write appends records to a stream. They are not durable yet.
	Write(ctx context.Context, stream string, records []json.RawMessage) error
	// Sync makes everything written durable and gives the position to commit.
	Sync(ctx context.Context) (json.RawMessage, error)
	// Close releases the sink. Records written since the last Sync may be lost.
	Close() error
}

// Asider is a sink that can set aside what it holds of some streams, so that a
// connection can start over without deleting anything. It is called before Open.
type Asider interface {
	SetAside(streams []string, at time.Time) (aside []string, err error)
}
