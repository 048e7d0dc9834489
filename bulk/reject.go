package bulk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/internal/ledger"
)

// The first line of the side files. Sources of JSON lines recognize it and take the rows
// out of their envelopes, so that a corrected file can be loaded directly.
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
	// Number, from 0, and Line, from 1, are the position of the row in the input.
	Number int64 `json:"number"`
	Line   int64 `json:"line,omitempty"`
	// Error is the server's error. It has only a Message if the row was not sent.
	Error Problem `json:"error"`
}

// appendReject appends a line. Text that JSON cannot hold is replaced.
func appendReject(to []byte, r Reject) []byte {
	b := bytes.NewBuffer(to)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if e.Encode(r) != nil {
		// The row is not JSON: keep it as text.
		r.Text, r.Row = string(r.Row), nil
		b.Truncate(len(to))
		_ = e.Encode(r) // never fails: texts and numbers only
	}
	return b.Bytes()
}

// Rejects returns the rejected rows of a load's folder, in the order in which they were
// rejected. It may be called while the load runs. An error ends the sequence; it matches
// [ErrNone] if the folder has no load.
func Rejects(dir string) iter.Seq2[Reject, error] {
	return sideRows(dir, journal.RejectsFile, func(c ledger.Counts) int64 { return c.Rejected })
}

// Uncertain returns the rows of a load's folder that may or may not have been written. See
// [Rejects].
func Uncertain(dir string) iter.Seq2[Reject, error] {
	return sideRows(dir, journal.UncertainFile, func(c ledger.Counts) int64 { return c.Uncertain })
}

// sideRows returns as many rows of a side file as the journal counts. Lines after them may
// be incomplete.
func sideRows(dir, name string, counted func(ledger.Counts) int64) iter.Seq2[Reject, error] {
	return func(yield func(Reject, error) bool) {
		state, err := journal.Read(dir)
		if err != nil {
			yield(Reject{}, fmt.Errorf("bulk: %w", err))
			return
		}
		left := counted(state.Counts)
		if left == 0 {
			return
		}
		path := filepath.Join(dir, name)
		f, err := os.Open(path)
		if err != nil {
			yield(Reject{}, fmt.Errorf("bulk: %w; put it back, the rows in it are not sent again", err))
			return
		}
		defer func() { _ = f.Close() }() // it was only read
		in := json.NewDecoder(f)
		err = in.Decode(new(json.RawMessage)) // the preamble
		for ; err == nil && left > 0; left-- {
			var r Reject
			if err = in.Decode(&r); err == nil && !yield(r, nil) {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			yield(Reject{}, fmt.Errorf("bulk: %s: %w: the journal counts %d rows more: put the file back as it was", path, err, left+1))
		}
	}
}
