package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// LockedError says that another collection is writing to a folder.
type LockedError struct {
	// Sink is the kind of the sink that wanted the folder Dir.
	Sink, Dir string
	// Holder is the process that has the folder, in words.
	Holder string
}

// Error says which folder, who has it and what to do.
func (e *LockedError) Error() string {
	return fmt.Sprintf("%s: another collection is writing to %s: wait for it to end, or give each connection a folder of its own; %s has it", e.Sink, e.Dir, e.Holder)
}

// Explain says what a sink failed to do, where, and what to do about it.
func Explain(sink, what, path string, err error) error {
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
	return fmt.Errorf("%s: %s %s%s: %w", sink, what, path, advice, err)
}
