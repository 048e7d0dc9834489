package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

// Filter selects events. Empty fields select all.
type Filter struct {
	// Since goes on after the entry with this id; [Oldest] begins with the
	// oldest that is kept. Empty begins with what comes from now on.
	Since string
	// Types, Connections and Providers: only of these.
	Types, Connections, Providers []string
}

const (
	// maxLine is the longest line of a stream that is read, in bytes.
	maxLine = 1 << 20
	// silence is how long a stream may say nothing: three heartbeats.
	silence = 45 * time.Second
)

// errSilent says that a stream was silent for too long.
var errSilent = errors.New("nothing was heard for too long")

// Events gives what happens, until the loop is left or the stream ends. It
// always ends with an error, the context's or that of the stream; to go on,
// range again with the ID of the last entry as Filter.Since: what was missed
// meanwhile comes first, or an entry of type [Dropped] says that it is
// lost.
func (c *Client) Events(ctx context.Context, f Filter) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := c.follow(ctx, f, func(e Entry) bool { return yield(e, nil) }); err != nil {
			yield(Entry{}, err)
		}
	}
}

// follow reads one stream; nil says that the loop was left.
func (c *Client) follow(ctx context.Context, f Filter, yield func(Entry) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watch.Stop()
	q := of("since", f.Since)
	q["type"], q["connection"], q["provider"] = f.Types, f.Connections, f.Providers
	at := c.url(q, "v1", "events")
	failed := func(err error) error {
		if why := context.Cause(ctx); why != nil {
			err = why
		}
		return fmt.Errorf("client: events of the daemon at %s: %w", c.base.Host, err)
	}
	res, err := c.send(ctx, http.MethodGet, at, nil, http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		if ctx.Err() != nil {
			return failed(err)
		}
		return err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		watch.Reset(silence)
		// The daemon writes each event on one line of data, its id and type in it;
		// a line that broke off is not JSON.
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		var e Entry
		if err := json.Unmarshal(data, &e); err != nil {
			return failed(fmt.Errorf("an event is not what a daemon of this version gives: %w", err))
		}
		if !yield(e) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return failed(err)
	}
	return failed(io.ErrUnexpectedEOF)
}
