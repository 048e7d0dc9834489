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
		// Only a row that is not JSON can do this: keep it as text.
		r.Text, r.Row = string(r.Row), nil
		b.Truncate(len(to))
		_ = e.Encode(r) // of texts and numbers
	}
	return b.Bytes()
}

// Rejects are the rejected rows of a load's folder, in the order in which they
// were rejected. It may be called while the load runs. After an error comes
// nothing more; it matches [ErrNone] when no load was started there.
func Rejects(dir string) iter.Seq2[Reject, error] {
	return sideRows(dir, journal.RejectsFile, func(c ledger.Counts) int64 { return c.Rejected })
}

// Uncertain are the rows of a load's folder of which nobody knows whether they
// were written; see [Rejects].
func Uncertain(dir string) iter.Seq2[Reject, error] {
	return sideRows(dir, journal.UncertainFile, func(c ledger.Counts) int64 { return c.Uncertain })
}

// sideRows are as many rows of a side file as the journal counts: what comes
// after them may be half of a line.
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
