package airbyte

import (
	"encoding/json"
	"strconv"
	"time"
)

// The messages of the protocol, as far as a read gives them.

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

// decimal is a whole number that the protocol wants with a decimal point.
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
	// QuotaReset is in milliseconds since 1970; 0 is not known.
	QuotaReset int64 `json:"quota_reset,omitzero"`
}

// status is where a stream stands.
type status string

const (
	started    status = "STARTED"
	running    status = "RUNNING"
	complete   status = "COMPLETE"
	incomplete status = "INCOMPLETE"
)

// limited is the one reason that the protocol knows.
func limited(until time.Time) []cause {
	c := cause{Type: "RATE_LIMITED"}
	if !until.IsZero() {
		c.Limited.QuotaReset = until.UnixMilli()
	}
	return []cause{c}
}

// recordLine is a RECORD. The data is an object already.
func recordLine(stream, data json.RawMessage, at int64) []byte {
	b := append([]byte(`{"type":"RECORD","record":{"stream":`), stream...)
	b = append(append(b, `,"data":`...), data...)
	b = strconv.AppendInt(append(b, `,"emitted_at":`...), at, 10)
	return append(b, '}', '}')
}
