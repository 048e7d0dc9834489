package parquet

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
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

// LockedError says that another collection is writing to the folder.
type LockedError struct {
	Dir string
}

// Error says which folder and what to do.
func (e *LockedError) Error() string {
	return fmt.Sprintf("parquet: another collection is writing to %s: wait for it to end, or give each connection a folder of its own", e.Dir)
}

// errClosed is what a sink says that is not open.
var errClosed = errors.New("parquet: the sink is not open: call Open first")

// explain says what failed, where, and what to do about it.
func explain(what, path string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		advice = ": no space is left: free some, then run again; what was committed is kept"
	case errors.Is(err, syscall.EFBIG):
		advice = ": the file may not grow further (a limit of the file system or of the process): raise the limit, then run again; " +
			"what was committed is kept"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		advice = ": it cannot be written: give this user the right to write there, or name another folder"
	case errors.Is(err, syscall.EIO):
		advice = ": the disk refused: check it, then run again; what was committed is kept"
	}
	return fmt.Errorf("parquet: %s %s%s: %w", what, path, advice, err)
}
