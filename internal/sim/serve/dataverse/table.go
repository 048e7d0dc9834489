package dataverse

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// SetCounts has the counts of one set.
type SetCounts struct {
	// Rows is the number of stored rows.
	Rows int64 `json:"rows"`
	// Creates and Updates count writes by any operation.
	Creates int64 `json:"creates"`
	Updates int64 `json:"updates"`
	// Duplicates is the part of Creates whose columns equal those of another row without a
	// name.
	Duplicates int64 `json:"duplicates"`
	// Refused counts rows that were refused because of themselves, each time, but not the
	// other rows of a standard table's batch.
	Refused int64 `json:"refused"`
	// Checksum is equal for two sets with the same rows under the same ids.
	Checksum string `json:"checksum"`
}

// table is the content of one set.
type table struct {
	name     string
	seed     uint64
	rows     map[identity]uint64   // the hash of the columns
	unnamed  map[uint64]struct{}   // hashes of rows that were created without a name
	failed   map[identity]struct{} // rows whose fault has happened
	counts   SetCounts
	checksum uint64
	made     uint64 // number of ids that were assigned
}

func newTable(name string, seed uint64) *table {
	return &table{
		name: name, seed: seed,
		rows: make(map[identity]uint64), unnamed: make(map[uint64]struct{}), failed: make(map[identity]struct{}),
	}
}

// outcome is the result of a row.
type outcome struct {
	id identity
	problem
}

// change undoes a write.
type change struct {
	id      identity
	old     uint64
	existed bool
	sum     uint64
	unnamed bool // no other unnamed row has its sum
}

// batch is the result of a request.
type batch struct {
	rows []outcome
	// failed is the index of the first row that failed; -1 if none did.
	failed  int
	written int
	// cut and garbled are faults that rows asked for.
	cut, garbled bool
}

// write writes rows: all that can be written or, if atomic, all or none.
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

// check returns the expected result of a row, with its id.
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

// first reports whether a row's fault happens for the first time.
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

// report returns the counts.
func (t *table) report() SetCounts {
	c := t.counts
	c.Rows, c.Checksum = int64(len(t.rows)), fmt.Sprintf("%016x", t.checksum)
	return c
}

// mix returns a number for a row. The exclusive-or over all rows distinguishes two sets.
func mix(id identity, sum uint64) uint64 {
	x := binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:])*0x9e3779b97f4a7c15 ^ sum
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
