package journal

import (
	"fmt"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/ledger"
)

// Header says what a load is of. A load is resumed only with the same one.
type Header struct {
	// Load is the load's own name, drawn at random when it starts; idempotency keys
	// are made from it.
	Load string `json:"load"`
	// Input is the file that the rows come from.
	Input Input `json:"input"`
	// Target names where they go and what is done there; no credential.
	Target string `json:"target"`
}

// Input is how an input is distinguished from another.
type Input struct {
	// Name is what it was called; it may change.
	Name string `json:"name"`
	// Format is how its bytes are made rows, all options included.
	Format string `json:"format"`
	// Size is its length in bytes, and Hash one of its first bytes. Both are
	// missing for a stream, which cannot be read again.
	Size int64  `json:"size,omitempty"`
	Hash string `json:"hash,omitempty"`
	// Modified is when the file was written last. It may differ: copies have
	// another one.
	Modified time.Time `json:"modified,omitzero"`
}

// Stream reports whether the input cannot be read again.
func (i Input) Stream() bool { return i.Hash == "" }

// check says what of a header is not that of the journal.
func (h Header) check(now Header) error {
	switch a, b := h.Input, now.Input; {
	case a.Stream() || b.Stream():
		return fmt.Errorf("the load reads from a stream, which cannot be read again: save it to a file and start a new load in another folder (rows of this one that are written already would be sent twice)")
	case a.Format != b.Format:
		return fmt.Errorf("the load was started on %s and is resumed on %s: use the same options, or another folder for another load", a.Format, b.Format)
	case a.Size != b.Size:
		return fmt.Errorf("the input has %d bytes and had %d when the load was started: resume with the same file, or start another load in another folder", b.Size, a.Size)
	case a.Hash != b.Hash:
		return fmt.Errorf("the input begins otherwise than when the load was started: resume with the same file, or start another load in another folder")
	case h.Target != now.Target:
		return fmt.Errorf("the load was started for %s and is resumed for %s: use the same target, or another folder for another load", h.Target, now.Target)
	}
	return nil
}

// State is what a journal says.
type State struct {
	Header Header
	// Settled are the rows that have an outcome.
	Settled ledger.Set
	Counts  ledger.Counts
	// Open are the batches that were sent and whose outcome is not known, in the
	// order in which they were sent.
	Open []ledger.Batch
	// LastBatch is the highest number of a batch.
	LastBatch int64
	// Rows is how many rows the input has; -1 while its end was not reached.
	Rows int64

	lengths length
}

// Complete reports whether every row of the input has an outcome.
func (s *State) Complete() bool { return s.Rows >= 0 && s.Settled.Len() == s.Rows }

// Clone is a state of its own.
func (s *State) Clone() State {
	c := *s
	c.Settled, c.Open = s.Settled.Clone(), slices.Clone(s.Open)
	return c
}

// Entry is what is made durable together.
type Entry struct {
	// Batch is the number of the batch that the entry is about; 0 for none.
	Batch int64
	// Sent are the rows of a batch that is about to be sent.
	Sent []ledger.Span
	// The rows that have an outcome now. A batch with any, or with none of these
	// and nothing Sent, is no longer open.
	Acknowledged, Rejected, Uncertain []ledger.Span
	// Rejects and Doubts are the lines of the side files for those rows.
	Rejects, Doubts []byte
	// End says that the input has Rows rows.
	End  bool
	Rows int64
}

func (e *Entry) record() record {
	switch {
	case e.End:
		return record{Kind: kindEnd, Rows: &e.Rows}
	case len(e.Sent) > 0:
		return record{Kind: kindSent, Batch: e.Batch, Sent: pairs(e.Sent)}
	}
	return record{
		Kind: kindDone, Batch: e.Batch,
		Acknowledged: pairs(e.Acknowledged), Rejected: pairs(e.Rejected), Uncertain: pairs(e.Uncertain),
	}
}
