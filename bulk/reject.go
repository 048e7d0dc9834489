package bulk

import (
	"bytes"
	"encoding/json"
)

// The first line of the side files. Sources of JSON lines know it and take the
// rows out of their envelopes, so that a corrected file can be loaded as it is.
const (
	RejectsPreamble   = `{"headway_rejects":1}` + "\n"
	UncertainPreamble = `{"headway_uncertain":1}` + "\n"
)

// Reject is one line of a side file.
type Reject struct {
	// Row is the row as it was sent. To load it again, correct it here.
	Row json.RawMessage `json:"row,omitempty"`
	// Text is a row that could not be read. To load it again, write it as Row.
	Text string `json:"text,omitempty"`
	// Number and Line say where the row stands in the input; from 0 and from 1.
	Number int64 `json:"number"`
	Line   int64 `json:"line,omitempty"`
	// Error is what the server said; Message alone where it was not asked.
	Error Problem `json:"error"`
}

// appendReject appends a line. Text that JSON cannot hold is replaced.
func appendReject(to []byte, r Reject) []byte {
	b := bytes.NewBuffer(to)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if e.Encode(r) != nil {
		// Only a row that is no JSON can do this: keep it as text.
		r.Text, r.Row = string(r.Row), nil
		b.Truncate(len(to))
		_ = e.Encode(r) // of texts and numbers
	}
	return b.Bytes()
}
