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

// filter selects entries of the stream.
type filter struct {
	caller                       Caller
	types, connections, provider []string
}

// passes says whether an entry is asked for and may be seen. A mark of what was
// dropped always is.
func (f *filter) passes(e *events.Entry) bool {
	if e.Type == events.Dropped {
		return true
	}
	return asked(f.types, e.Type) && asked(f.connections, e.Connection) && asked(f.provider, e.Provider) && f.caller.hears(e)
}

func asked(names []string, name string) bool { return len(names) == 0 || slices.Contains(names, name) }

// hears says whether a caller may know of an event: an admin of all, others of
// what concerns them at a provider that they may use.
func (c *Caller) hears(e *events.Entry) bool {
	switch {
	case c.Admin:
		return true
	case e.Provider == "" || !c.may(e.Provider, ""):
		return false
	case e.Quota == nil:
		return true
	}
	return c.sees(e.Quota.Scope) && (e.Quota.Model == "" || c.may(e.Provider, e.Quota.Model))
}

// maxNames is how many names a filter may list.
const maxNames = 64

// stream tells what happens, as server-sent events, until the client goes, the
// hub is closed or the client is too slow. It holds no queue: a client that
// falls behind what the hub keeps learns how much it missed.
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
	// A browser that reconnects asks with the same address and adds the header.
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
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	if r.Method == http.MethodHead {
		return nil
	}
	s := sse{w: w, control: http.NewResponseController(w)}
	s.tell(r, a.o.Events.Read(since), &f, func() bool {
		_, err := a.o.Authorize(r, false)
		return err == nil
	})
	return nil
}

// sse writes one stream.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buffer  bytes.Buffer
}

// tell writes until there is an end. A key may be taken away meanwhile, so that
// now and then welcome is asked.
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
			// The id moves on also when nothing that happened was asked for.
			fmt.Fprintf(&s.buffer, ": alive\nid: %s\n\n", from.ID())
		}
	}
}

// put adds one event. Its JSON has no line break.
func (s *sse) put(e *events.Entry) {
	body, err := json.Marshal(e)
	if err != nil {
		return // cannot be: no value in an event is without JSON
	}
	fmt.Fprintf(&s.buffer, "id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Type, body)
}

// flush sends what was added; the error says that the client is gone or too slow.
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

// seats are the open streams of events, and whose they are. The zero value is
// ready. Safe for concurrent use.
type seats struct {
	mu     sync.Mutex
	all    int
	guests int            // of those, who are not admins
	taken  map[string]int // by each guest
}

// take gives a caller a seat, of as many as limit, if there is one for it: one guest cannot
// keep the others out, nor all guests the admins.
func (s *seats) take(c Caller, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= limit {
		return false
	}
	if !c.Admin {
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

// leave gives a seat back that the same caller took.
func (s *seats) leave(c Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if c.Admin {
		return
	}
	s.guests--
	if s.taken[c.ID]--; s.taken[c.ID] == 0 {
		delete(s.taken, c.ID)
	}
}
