package airbyte

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// The messages of the protocol that a read writes.

type stateMessage struct {
	Type  string `json:"type"`
	State state  `json:"state"`
}

type state struct {
	Type   string      `json:"type"`
	Stream streamState `json:"stream"`
	Stats  stats       `json:"sourceStats"`
}

type streamState struct {
	Descriptor descriptor `json:"stream_descriptor"`
	State      extent     `json:"stream_state"`
}

type stats struct {
	Records decimal `json:"recordCount"`
}

type descriptor struct {
	Name string `json:"name"`
}

// decimal is a whole number that the protocol requires with a decimal point.
type decimal int64

// MarshalJSON writes the number with a decimal point.
func (d decimal) MarshalJSON() ([]byte, error) {
	return append(strconv.AppendInt(nil, int64(d), 10), ".0"...), nil
}

func stateOf(stream string, position, records int64) stateMessage {
	return stateMessage{"STATE", state{"STREAM", streamState{descriptor{stream}, extent{position}}, stats{decimal(records)}}}
}

type traceMessage struct {
	Type  string `json:"type"`
	Trace trace  `json:"trace"`
}

type trace struct {
	Type      string        `json:"type"`
	EmittedAt int64         `json:"emitted_at"`
	Estimate  *estimate     `json:"estimate,omitempty"`
	Status    *streamStatus `json:"stream_status,omitempty"`
}

type estimate struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Rows int64  `json:"row_estimate"`
}

type streamStatus struct {
	Descriptor descriptor `json:"stream_descriptor"`
	Status     status     `json:"status"`
	Reasons    []cause    `json:"reasons,omitempty"`
}

// cause is why a stream has its status.
type cause struct {
	Type    string      `json:"type"`
	Limited rateLimited `json:"rate_limited"`
}

type rateLimited struct {
	// QuotaReset is in milliseconds since 1970; 0 means unknown.
	QuotaReset int64 `json:"quota_reset,omitzero"`
}

// status is the status of a stream.
type status string

const (
	started    status = "STARTED"
	running    status = "RUNNING"
	complete   status = "COMPLETE"
	incomplete status = "INCOMPLETE"
)

// limited returns RATE_LIMITED, the only reason that the protocol has.
func limited(until time.Time) []cause {
	c := cause{Type: "RATE_LIMITED"}
	if !until.IsZero() {
		c.Limited.QuotaReset = until.UnixMilli()
	}
	return []cause{c}
}

// recordLine returns a RECORD message. data must be an object.
func recordLine(stream, data json.RawMessage, at int64) []byte {
	b := append([]byte(`{"type":"RECORD","record":{"stream":`), stream...)
	b = append(append(b, `,"data":`...), data...)
	b = strconv.AppendInt(append(b, `,"emitted_at":`...), at, 10)
	return append(b, '}', '}')
}

// OnEvent writes the streams' status after an event of the run. Set it as OnEvent in
// [collect.Options]. Like Write it blocks while the reader of the pipe is slow. The next
// Write or Sync returns its errors. It may be called at any time, from several goroutines.
func (s *Sink) OnEvent(e event.Event) {
	var until time.Time
	if pressed(e) {
		if now, ok := s.live(); ok {
			until = now.Pacing.RetryAt
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		return
	}
	// The writer keeps the first failure for the next Write or Sync.
	if s.react(e, until) == nil {
		_ = s.out.Flush()
	}
}

// pressed reports whether an event means pressure of the provider, or the end of a run
// because of it.
func pressed(e event.Event) bool {
	why := e.Reason
	if e.Type == event.CollectionRate && e.Note == backOff && e.Rate != nil && e.Rate.LastBackoff != nil {
		why = e.Rate.LastBackoff.Reason
	}
	if e.Type == event.Circuit && (e.Circuit == nil || e.Circuit.State != "open") {
		return false
	}
	return why.Kind() == reason.KindPressure || why == reason.Cooldown || why == reason.QuotaExhausted
}

// backOff is the note of a rate that was cut.
const backOff = "back_off"

func (s *Sink) react(e event.Event, until time.Time) error {
	switch e.Type {
	case event.Phase:
		if s.stream(e.Stream) == nil {
			return nil
		}
		s.at = e.Stream
		return s.each(s.begin)
	case event.RunEnd:
		return s.end(e, until)
	case event.CollectionRate, event.Circuit, event.Deferral:
		if pressed(e) {
			return s.each(func(st *stream) error { return s.limit(st, until) })
		}
	default:
	}
	return nil
}

// each calls do for the run's current stream and for its details.
func (s *Sink) each(do func(*stream) error) error {
	for _, st := range s.streams {
		if st.Name != s.at && (st.parent != s.at || s.at == "") {
			continue
		}
		if err := do(st); err != nil {
			return err
		}
	}
	return nil
}

// begin writes the status STARTED and the last STATE of a stream, once.
func (s *Sink) begin(st *stream) error {
	if st.status != "" {
		return nil
	}
	if err := s.become(st, started, nil); err != nil {
		return err
	}
	return s.state(st)
}

// run writes the status RUNNING of a stream that gets records, if it has another status.
func (s *Sink) run(st *stream) error {
	if st.status == running && st.limits == nil {
		return nil
	}
	if err := s.begin(st); err != nil {
		return err
	}
	return s.become(st, running, nil)
}

// limit writes that a stream waits because of pressure.
func (s *Sink) limit(st *stream, until time.Time) error {
	why := limited(until)
	if slices.Equal(st.limits, why) || st.status == complete || st.status == incomplete {
		return nil
	}
	if err := s.begin(st); err != nil {
		return err
	}
	return s.become(st, running, why)
}

// end writes the final status of each stream. A stream that was never begun has none,
// unless the run drained.
func (s *Sink) end(e event.Event, until time.Time) error {
	for _, st := range s.streams {
		last, why := incomplete, []cause(nil)
		switch {
		case st.status == complete, st.status == incomplete:
			continue
		case e.Reason == reason.Drained:
			if err := s.begin(st); err != nil {
				return err
			}
			last = complete
		case st.status == "":
			continue
		case pressed(e):
			why = limited(until)
		}
		if err := s.become(st, last, why); err != nil {
			return err
		}
	}
	return nil
}

// become writes a status at once, since Close may drop buffered messages.
func (s *Sink) become(st *stream, now status, why []cause) error {
	st.status, st.limits = now, why
	err := s.trace(trace{Type: "STREAM_STATUS", Status: &streamStatus{descriptor{st.Name}, now, why}})
	if err != nil {
		return err
	}
	return s.out.Flush()
}
