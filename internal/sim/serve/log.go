package serve

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"
)

// Entry is one line of the log: one request that reached the limiter. Requests
// without a valid token and those to /-/ are not in it.
type Entry struct {
	// T is when it reached the limiter, in milliseconds since the start.
	T float64 `json:"t_ms"`
	// At is the same on the wall clock.
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	// Path has no query; Cursor and UpdatedAfter are the only parts of the
	// query that are kept. All three are cut at a kilobyte.
	Path         string `json:"path"`
	Cursor       string `json:"cursor,omitempty"`
	UpdatedAfter string `json:"updated_after,omitempty"`
	// Key, Model, Scope and Cost are of requests that came through the [Gate]; Key
	// is a [KeyID].
	Key   string  `json:"key,omitempty"`
	Model string  `json:"model,omitempty"`
	Scope string  `json:"scope,omitempty"`
	Cost  float64 `json:"cost,omitempty"`
	// Written is how many rows it wrote, whatever was answered.
	Written int `json:"written,omitempty"`
	// Status is what was answered: 0 when the connection was reset, 499 when
	// the client had gone away before an admitted request was answered.
	Status int `json:"status"`
	// Admitted says that it used up the limits, whatever its status.
	Admitted bool `json:"admitted"`
	// Limit names what refused it: a limit, "penalty", "outage", "reset" or
	// "suspended"; empty when admitted.
	Limit string `json:"limit,omitempty"`
	// RetryAfterMS is what the client was told to wait; absent when nothing was said.
	RetryAfterMS *float64 `json:"retry_after_ms,omitempty"`
}

// maxLine bounds a line that is read back, in bytes.
const maxLine = 64 << 10

// ReadLog reads a log back, in its order, which is the order of answers. It
// stops after the first error; an unfinished last line, as a killed server may
// leave, is one that matches io.ErrUnexpectedEOF.
func ReadLog(r io.Reader) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		in := bufio.NewReaderSize(r, maxLine)
		for number := 1; ; number++ {
			line, err := in.ReadSlice('\n')
			switch {
			case errors.Is(err, io.EOF) && len(line) == 0:
				return
			case errors.Is(err, io.EOF):
				err = io.ErrUnexpectedEOF
			case errors.Is(err, bufio.ErrBufferFull):
				err = fmt.Errorf("longer than %d bytes", maxLine)
			}
			var e Entry
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if err != nil {
				yield(Entry{}, fmt.Errorf("serve: log line %d: %w", number, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// journal writes entries, each with one Write, so that a killed process leaves
// whole lines and whoever has an answer finds its line.
type journal struct {
	mu  sync.Mutex
	to  io.Writer
	err error // the first failure to write
}

func (j *journal) add(e Entry) {
	if j.to == nil {
		return
	}
	line, err := json.Marshal(e)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		_, err = j.to.Write(append(line, '\n'))
	}
	if err != nil && j.err == nil {
		j.err = fmt.Errorf("serve: log: %w", err)
	}
}

// failure is the first failure to write the log; nil when there was none.
func (j *journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}
