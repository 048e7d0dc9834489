package jsonl

import (
	"errors"
	"fmt"

	"github.com/headway-go/headway/sink/internal/folder"
)

// LostError says that a file no longer holds what was committed to it.
type LostError struct {
	// Path is the file.
	Path string
	// Have and Committed are lengths in bytes.
	Have, Committed int64
}

// Error says which file, what is there, what was committed, and what to do.
func (e *LostError) Error() string {
	const advice = "restore the file from a backup, or move it away and run again, which begins a new one"
	if e.Have < e.Committed {
		return fmt.Sprintf("jsonl: %s has %d bytes of the %d that were committed, so it was cut; it was not changed: %s",
			e.Path, e.Have, e.Committed, advice)
	}
	return fmt.Sprintf("jsonl: %s has %d bytes, but not those that were committed up to %d, so it is another file; it was not changed: %s",
		e.Path, e.Have, e.Committed, advice)
}

// ForeignError says that a file that a stream needs has bytes that this
// connection did not write. It was not changed.
type ForeignError struct {
	// Path is the file, Stream what would be written to it.
	Path, Stream string
	// Bytes is its length.
	Bytes int64
}

// Error says which file, how much is there, and what to do.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("jsonl: stream %q: %s has %d bytes that this connection did not write; it was not changed: "+
		"move it away, give the connection a folder of its own, or start over with `headway collect --fresh`", e.Stream, e.Path, e.Bytes)
}

// LockedError says that another collection is writing to the folder, its Dir.
type LockedError = folder.LockedError

// errClosed is what a sink says that is not open.
var errClosed = errors.New("jsonl: the sink is not open: call Open first")
