package journal

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/ledger"
)

// version is the version of the format. A journal of another version is an error.
const version = 1

// maxLine is the maximum length of a line in bytes. The longest line is a snapshot with a
// gap after each batch that was given up.
const maxLine = 64 << 20

// Kinds of record.
const (
	kindStart    = "start"
	kindSent     = "sent"
	kindDone     = "done"
	kindEnd      = "end"
	kindSnapshot = "snapshot"
)

// record is one line. Which fields it has depends on its kind.
type record struct {
	Kind string `json:"k"`
	// Group is the offset in the file at which the write of this line began; 0 for the
	// first line of a write. After a crash a disk may hold the end of an unsynced write
	// without its beginning.
	Group int64 `json:"g,omitempty"`

	// start and snapshot
	Version int     `json:"version,omitempty"`
	Header  *Header `json:"header,omitempty"`

	// sent and done; in a snapshot Sets are all that is settled
	Batch        int64   `json:"b,omitempty"`
	Sent         []pair  `json:"s,omitempty"`
	Acknowledged []pair  `json:"a,omitempty"`
	Rejected     []pair  `json:"r,omitempty"`
	Uncertain    []pair  `json:"u,omitempty"`
	Lengths      *length `json:"l,omitempty"`

	// end: how many rows the input has
	Rows *int64 `json:"n,omitempty"`

	// snapshot
	Settled []pair     `json:"settled,omitempty"`
	Open    []openPair `json:"open,omitempty"`
	Counts  *tally     `json:"counts,omitempty"`
}

type pair [2]int64

// tally is the encoding of [ledger.Counts] in a snapshot.
type tally struct {
	Acknowledged int64 `json:"a"`
	Rejected     int64 `json:"r"`
	Uncertain    int64 `json:"u"`
}

// length holds the counted lengths of the side files, in bytes.
type length struct {
	Rejects   int64 `json:"r"`
	Uncertain int64 `json:"u"`
}

type openPair struct {
	Batch int64  `json:"b"`
	Rows  []pair `json:"s"`
}

func pairs(spans []ledger.Span) []pair {
	out := make([]pair, len(spans))
	for i, s := range spans {
		out[i] = pair{s.First, s.Last}
	}
	return out
}

func spans(p []pair) []ledger.Span {
	out := make([]ledger.Span, len(p))
	for i, a := range p {
		out[i] = ledger.Span{First: a[0], Last: a[1]}
	}
	return out
}

var table = crc32.MakeTable(crc32.Castagnoli)

// appendRecord appends a record as a line: its checksum, a space, its JSON.
func appendRecord(to []byte, r record) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return to, err
	}
	to = fmt.Appendf(to, "%08x ", crc32.Checksum(body, table))
	return append(append(to, body...), '\n'), nil
}

// parseLine parses a line without its line break. ok is false if appendRecord did not write
// it.
func parseLine(line []byte) (r record, ok bool) {
	if len(line) < 10 || line[8] != ' ' {
		return record{}, false
	}
	var sum [4]byte
	if _, err := hex.Decode(sum[:], line[:8]); err != nil {
		return record{}, false
	}
	body := line[9:]
	if uint32(sum[0])<<24|uint32(sum[1])<<16|uint32(sum[2])<<8|uint32(sum[3]) != crc32.Checksum(body, table) {
		return record{}, false
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err := decoder.Decode(&r); err != nil {
		return record{}, false
	}
	return r, true
}

// apply applies a record to a state. After an error the state must not be used.
func (s *State) apply(r record) error {
	if started := s.Header != (Header{}); started == (r.Kind == kindStart) && r.Kind != kindSnapshot {
		return fmt.Errorf("a %s record where none belongs", r.Kind)
	}
	switch r.Kind {
	case kindStart, kindSnapshot:
		return s.begin(r)
	case kindSent:
		if r.Batch <= s.LastBatch {
			return fmt.Errorf("batch %d after batch %d", r.Batch, s.LastBatch)
		}
		rows := spans(r.Sent)
		for _, a := range rows {
			if !a.Valid() {
				return fmt.Errorf("invalid rows %d to %d", a.First, a.Last)
			}
		}
		s.LastBatch = r.Batch
		s.Open = append(s.Open, ledger.Batch{Number: r.Batch, Rows: rows})
	case kindDone:
		return s.settle(r)
	case kindEnd:
		if r.Rows == nil || *r.Rows < s.Settled.Len() {
			return fmt.Errorf("an end before rows that are settled")
		}
		s.Rows = *r.Rows
	default:
		return fmt.Errorf("a record of kind %q, which this version does not know", r.Kind)
	}
	return nil
}

// begin applies the first record, or a snapshot, which replaces all records before it.
func (s *State) begin(r record) error {
	if r.Version != version || r.Header == nil || *r.Header == (Header{}) {
		return fmt.Errorf("a %s record of version %d, this one knows version %d", r.Kind, r.Version, version)
	}
	*s = State{Header: *r.Header, Rows: -1}
	if r.Kind == kindStart {
		return nil
	}
	if r.Counts == nil || r.Lengths == nil {
		return fmt.Errorf("a snapshot without totals")
	}
	for _, a := range spans(r.Settled) {
		if err := s.Settled.Add(a); err != nil {
			return err
		}
	}
	s.Counts, s.lengths, s.LastBatch = ledger.Counts(*r.Counts), *r.Lengths, r.Batch
	for _, o := range r.Open {
		s.Open = append(s.Open, ledger.Batch{Number: o.Batch, Rows: spans(o.Rows)})
	}
	if r.Rows != nil {
		s.Rows = *r.Rows
	}
	if s.Counts.Rows() != s.Settled.Len() {
		return fmt.Errorf("a snapshot whose totals of %d rows are not its %d settled rows", s.Counts.Rows(), s.Settled.Len())
	}
	return nil
}

func (s *State) settle(r record) error {
	for _, f := range []struct {
		rows  []pair
		count *int64
	}{{r.Acknowledged, &s.Counts.Acknowledged}, {r.Rejected, &s.Counts.Rejected}, {r.Uncertain, &s.Counts.Uncertain}} {
		for _, a := range spans(f.rows) {
			if err := s.Settled.Add(a); err != nil {
				return err
			}
			*f.count += a.Rows()
		}
	}
	if r.Batch != 0 {
		s.Open = slices.DeleteFunc(s.Open, func(o ledger.Batch) bool { return o.Number == r.Batch })
	}
	if r.Lengths != nil {
		if r.Lengths.Rejects < s.lengths.Rejects || r.Lengths.Uncertain < s.lengths.Uncertain {
			return fmt.Errorf("a side file that becomes shorter")
		}
		s.lengths = *r.Lengths
	}
	return nil
}

// snapshot returns the state as one record.
func (s *State) snapshot() record {
	r := record{
		Kind: kindSnapshot, Version: version, Header: &s.Header, Batch: s.LastBatch,
		Settled: pairs(s.Settled.Spans()), Counts: (*tally)(&s.Counts), Lengths: &s.lengths,
	}
	for _, o := range s.Open {
		r.Open = append(r.Open, openPair{o.Number, pairs(o.Rows)})
	}
	if s.Rows >= 0 {
		r.Rows = &s.Rows
	}
	return r
}

// Header describes a load. A load can be resumed only with the same header.
type Header struct {
	// Load is the load's own name, drawn at random when it starts; idempotency keys
	// are made from it.
	Load string `json:"load"`
	// Input is the file that the rows come from.
	Input Input `json:"input"`
	// Target is the destination and the operation, without credentials.
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

// check returns an error if the header differs from the journal's.
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

// State is the state of a load according to its journal.
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

// Clone returns a copy of the state.
func (s *State) Clone() State {
	c := *s
	c.Settled, c.Open = s.Settled.Clone(), slices.Clone(s.Open)
	return c
}

// Entry is a change of the state that becomes durable as a whole.
type Entry struct {
	// Batch is the number of the batch; 0 if the entry does not concern one.
	Batch int64
	// Sent are the rows of a batch that is about to be sent.
	Sent []ledger.Span
	// The rows that have an outcome now. After an entry with a Batch and without Sent,
	// the batch is no longer open.
	Acknowledged, Rejected, Uncertain []ledger.Span
	// Rejects and Doubts are the lines of the side files for those rows.
	Rejects, Doubts []byte
	// End reports that the input has Rows rows.
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
