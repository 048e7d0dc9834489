package parquet

import (
	"errors"
	"fmt"

	"github.com/headway-go/headway/sink/internal/folder"
)

// LostError says that a file no longer holds what was committed to it.
type LostError struct {
	// Path is the file, a part or a spool.
	Path string
	// What is wrong with it.
	What string
}

// Error says which file, what is wrong with it, and what to do.
func (e *LostError) Error() string {
	return fmt.Sprintf("parquet: %s %s, and rows in it were committed; no file was changed: "+
		"restore it from a backup, or start over with `headway collect --fresh`", e.Path, e.What)
}

// ForeignError says that a stream's folder has parts that this connection did
// not write. They were not changed.
type ForeignError struct {
	// Path is one of the files, Stream what would be written beside it.
	Path, Stream string
}

// Error says which file and what to do.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("parquet: stream %q: this connection did not write %s; it was not changed: "+
		"move it away, give the connection a folder of its own, or start over with `headway collect --fresh`", e.Stream, e.Path)
}

// LockedError says that another collection is writing to the folder, its Dir.
type LockedError = folder.LockedError

// errClosed is what a sink says that is not open.
var errClosed = errors.New("parquet: the sink is not open: call Open first")
