package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/events"
)

// filter selects the entries of a stream.
type filter struct {
	caller                       Caller
	types, connections, provider []string
}

// passes reports whether an entry is selected and visible to the caller. A record of dropped
// entries always passes.
func (f *filter) passes(e *events.Entry) bool {
	if e.Type == events.Dropped {
		return true
	}
	return asked(f.types, e.Type) && asked(f.connections, e.Connection) && asked(f.provider, e.Provider) && f.caller.hears(e)
}

func asked(names []string, name string) bool { return len(names) == 0 || slices.Contains(names, name) }

// hears reports whether a caller may see an event. A caller with a role sees all events; others
// see those that concern them, of providers that they may use.
func (c *Caller) hears(e *events.Entry) bool {
	switch {
	case c.Role != "":
		return true
	case e.Provider == "" || !c.may(e.Provider, ""):
		return false
	case e.Quota == nil:
		return true
	}
	return c.sees(e.Quota.Scope) && (e.Quota.Model == "" || c.may(e.Provider, e.Quota.Model))
}

// maxNames bounds the number of names in a filter.
const maxNames = 64

// stream sends events as server-sent events until the client goes away or is too slow, or the
// hub is closed. It has no queue: a client that falls behind the hub's buffer gets the number of
// events it missed.
func (a *API) stream(w http.ResponseWriter, r *http.Request, c Caller) error {
	ask := ask(r, "since", "type*", "connection*", "provider*")
	since := ask.text("since")
	f := filter{c, ask.values["type"], ask.values["connection"], ask.values["provider"]}
	for name, names := range map[string][]string{"type": f.types, "connection": f.connections, "provider": f.provider} {
		if len(names) > maxNames {
			ask.fail(badField(name, fmt.Sprintf("given %d times", len(names)), fmt.Sprintf("given at most %d times", maxNames)))
		}
	}
	if ask.err != nil {
		return ask.err
	}
	// A browser that reconnects uses the same URL and adds this header.
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		since = last
	}
	if !a.streams.take(c, a.o.Streams) {
		return &Problem{
			Status: http.StatusServiceUnavailable, Title: "Too many streams", RetryInMS: heartbeat.Milliseconds(),
			Detail: fmt.Sprintf("all streams of events that this key may have, of %d, are open", a.o.Streams),
		}
	}
	defer a.streams.leave(c)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers events
	if r.Method == http.MethodHead {
		return nil
	}
	s := sse{w: w, control: http.NewResponseController(w)}
	s.tell(r, a.o.Events.Read(since), &f, func() bool {
		_, err := a.o.Authorize(r, "")
		return err == nil
	})
	return nil
}

// sse writes a stream of server-sent events.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buffer  bytes.Buffer
}

// tell writes events until the stream ends. It calls welcome from time to time, since the key
// may be revoked.
func (s *sse) tell(r *http.Request, from *events.Reader, f *filter, welcome func() bool) {
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	s.buffer.WriteString(": headway events\nretry: 3000\n\n")
	checked := time.Now()
	for {
		if time.Since(checked) >= heartbeat {
			if checked = time.Now(); !welcome() {
				return
			}
		}
		entries, more, open := from.Next()
		for i := range entries {
			if f.passes(&entries[i]) {
				s.put(&entries[i])
			}
		}
		if s.flush() != nil || !open {
			return
		}
		if len(entries) > 0 {
			if r.Context().Err() != nil {
				return
			}
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-more:
		case <-alive.C:
			// Send the new id even if no event was selected.
			fmt.Fprintf(&s.buffer, ": alive\nid: %s\n\n", from.ID())
		}
	}
}

// put adds one event. Its JSON contains no line break.
func (s *sse) put(e *events.Entry) {
	body, err := json.Marshal(e)
	if err != nil {
		return // cannot happen: every event can be encoded
	}
	fmt.Fprintf(&s.buffer, "id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Type, body)
}

// flush sends the added events. An error means that the client has gone or is too slow.
func (s *sse) flush() error {
	if s.buffer.Len() == 0 {
		return nil
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTime))
	defer s.buffer.Reset()
	if _, err := s.w.Write(s.buffer.Bytes()); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// seats counts the open streams of events by caller. The zero value is ready for use. It is safe
// for concurrent use.
type seats struct {
	mu     sync.Mutex
	all    int
	guests int            // streams of callers without a role
	taken  map[string]int // streams of each of those callers
}

// take takes a seat for a caller, of at most limit in all. It returns false if there is none:
// a single guest cannot use up all seats of guests, and guests leave some to those with a role.
func (s *seats) take(c Caller, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= limit {
		return false
	}
	if c.Role == "" {
		if s.taken[c.ID] >= (limit+3)/4 || s.guests >= limit-limit/8 {
			return false
		}
		if s.taken == nil {
			s.taken = map[string]int{}
		}
		s.taken[c.ID]++
		s.guests++
	}
	s.all++
	return true
}

// leave gives back a seat that the caller took.
func (s *seats) leave(c Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if c.Role != "" {
		return
	}
	s.guests--
	if s.taken[c.ID]--; s.taken[c.ID] == 0 {
		delete(s.taken, c.ID)
	}
}
