package dataverse

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// SetCounts is what one set holds and what was done to it.
type SetCounts struct {
	// Rows is how many rows are held.
	Rows int64 `json:"rows"`
	// Creates and Updates count what was written, by whatever operation.
	Creates int64 `json:"creates"`
	Updates int64 `json:"updates"`
	// Duplicates is the part of Creates whose columns another row without a name
	// has already.
	Duplicates int64 `json:"duplicates"`
	// Refused counts, each time, rows that were not written because of themselves; those of a
	// standard table's batch that failed with them are not counted.
	Refused int64 `json:"refused"`
	// Checksum is the same for two sets that hold the same rows under the same ids.
	Checksum string `json:"checksum"`
}

// table is what one set holds.
type table struct {
	name     string
	seed     uint64
	rows     map[identity]uint64   // the hash of the columns
	unnamed  map[uint64]struct{}   // hashes of rows that were created without a name
	failed   map[identity]struct{} // rows whose trouble was had
	counts   SetCounts
	checksum uint64
	made     uint64 // ids that were given
}

func newTable(name string, seed uint64) *table {
	return &table{
		name: name, seed: seed,
		rows: make(map[identity]uint64), unnamed: make(map[uint64]struct{}), failed: make(map[identity]struct{}),
	}
}

// outcome is what became of a row.
type outcome struct {
	id identity
	problem
}

// change is what undoes a write.
type change struct {
	id      identity
	old     uint64
	existed bool
	sum     uint64
	unnamed bool // its sum is new among the unnamed
}

// batch is what a request did.
type batch struct {
	rows []outcome
	// failed is the first row that did; -1 without.
	failed  int
	written int
	// cut and garbled are troubles that rows asked for.
	cut, garbled bool
}

// write writes rows: all that can be, or with atomic all or none.
func (t *table) write(op operation, rows []row, atomic bool) batch {
	b := batch{rows: make([]outcome, len(rows)), failed: -1}
	before, checksum := t.counts, t.checksum
	var undo []change
	for i := range rows {
		r := &rows[i]
		o := t.check(op, r, atomic)
		b.rows[i] = o
		if o.status >= http.StatusBadRequest {
			if b.failed < 0 {
				b.failed = i
			}
			if atomic {
				t.counts, t.checksum = before, checksum
				t.counts.Refused++
				t.undo(undo)
				return batch{rows: b.rows, failed: i}
			}
			t.counts.Refused++
			continue
		}
		c := t.put(r, o.id)
		if atomic {
			undo = append(undo, c)
		}
		b.written++
	}
	for i := range rows {
		if r := &rows[i]; (r.trouble == cutting || r.trouble == garbling) && b.rows[i].status < http.StatusBadRequest && t.first(r) {
			b.cut, b.garbled = b.cut || r.trouble == cutting, b.garbled || r.trouble == garbling
		}
	}
	return b
}

// check says what is to become of a row, and its id.
func (t *table) check(op operation, r *row, atomic bool) outcome {
	_, held := t.rows[r.id]
	held = held && r.named
	switch {
	case r.fails || r.trouble == rejecting:
		return outcome{r.id, problem{http.StatusBadRequest, codeTooLong, "A validation error occurred. A string value provided is too long."}}
	case r.trouble == throttling && !atomic && t.first(r):
		return outcome{r.id, problem{http.StatusTooManyRequests, codeRequests, "Too many requests to the partition of this row."}}
	case op == create && held && r.byKey:
		return outcome{r.id, problem{http.StatusPreconditionFailed, codeKeyHeld, "A record that has the attribute values of the alternate key already exists. The entity key requires that this set of attributes contains unique values."}}
	case op == create && held:
		return outcome{r.id, problem{http.StatusPreconditionFailed, codeHeld, "Cannot insert duplicate key."}}
	case op == update && !r.named:
		return outcome{r.id, problem{http.StatusBadRequest, codeUnexpected, "The row tells neither its primary key nor an alternate key."}}
	case op == update && !held && r.byKey:
		return outcome{r.id, problem{http.StatusNotFound, codeNoKey, fmt.Sprintf("A record with the specified key values does not exist in %s entity", t.name)}}
	case op == update && !held:
		return outcome{r.id, problem{http.StatusNotFound, codeNoRow, fmt.Sprintf("Entity of %s With Id = %s Does Not Exist", t.name, r.id)}}
	}
	o := outcome{id: r.id, problem: problem{status: http.StatusCreated}}
	if held {
		o.status = http.StatusOK
	}
	if !r.named {
		t.made++
		o.id = digest(t.name, strconv.FormatUint(t.seed, 10), strconv.FormatUint(t.made, 10))
	}
	return o
}

// first says whether a row's trouble is had for the first time.
func (t *table) first(r *row) bool {
	about := r.id
	if !r.named {
		about = digest(strconv.FormatUint(r.sum, 10))
	}
	_, had := t.failed[about]
	t.failed[about] = struct{}{}
	return !had
}

func (t *table) put(r *row, id identity) change {
	old, existed := t.rows[id]
	c := change{id: id, old: old, existed: existed, sum: r.sum}
	t.rows[id] = r.sum
	t.checksum ^= mix(id, r.sum)
	if existed {
		t.checksum ^= mix(id, old)
		t.counts.Updates++
		return c
	}
	t.counts.Creates++
	if !r.named {
		if _, twice := t.unnamed[r.sum]; twice {
			t.counts.Duplicates++
		} else {
			t.unnamed[r.sum], c.unnamed = struct{}{}, true
		}
	}
	return c
}

func (t *table) undo(changes []change) {
	for _, c := range slices.Backward(changes) {
		if c.unnamed {
			delete(t.unnamed, c.sum)
		}
		if c.existed {
			t.rows[c.id] = c.old
		} else {
			delete(t.rows, c.id)
		}
	}
}

// report is the counts with what is held.
func (t *table) report() SetCounts {
	c := t.counts
	c.Rows, c.Checksum = int64(len(t.rows)), fmt.Sprintf("%016x", t.checksum)
	return c
}

// mix makes a number of a row that, exclusive-or'd over all rows, tells two sets
// apart.
func mix(id identity, sum uint64) uint64 {
	x := binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:])*0x9e3779b97f4a7c15 ^ sum
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
