package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// explain says what failed, on which file, and what to do about it. The cause
// stays matchable. A lease that is held or lost is no fault of the file, and
// passes as it is.
func explain(path, what string, err error) error {
	if err == nil {
		return nil
	}
	if _, held := errors.AsType[*collect.HeldError](err); held || errors.Is(err, collect.ErrLeaseLost) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("store %s: %s: %w", path, what, err)
	}
	if advice := advise(path, err); advice != "" {
		return fmt.Errorf("store %s: %s: %s: %w", path, what, advice, err)
	}
	return fmt.Errorf("store %s: %s: %w", path, what, err)
}

func advise(path string, err error) string {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return adviseCode(path, e.Code())
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return full(path)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return readOnly(path)
	default:
		return ""
	}
}

// adviseCode goes by the primary code, which is the low byte.
func adviseCode(path string, code int) string {
	switch code & 0xff {
	case lib.SQLITE_FULL:
		return full(path)
	case lib.SQLITE_IOERR:
		return fmt.Sprintf("the disk refused to read or write: check free space and health of the disk that holds %s, "+
			"then run again; what was committed is kept", filepath.Dir(path))
	case lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PERM:
		return readOnly(path)
	case lib.SQLITE_NOTADB:
		return "this is not an SQLite database, so not a Headway store; nothing was changed: " +
			"check the path, or move the file away to start with an empty store"
	case lib.SQLITE_CORRUPT:
		return fmt.Sprintf("the file is damaged; nothing was changed: restore %s together with its -wal file from a backup, "+
			"or save what can be read with `sqlite3 %s .recover`, or move it away and start over with `headway collect --fresh`",
			filepath.Base(path), filepath.Base(path))
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		return fmt.Sprintf("another process kept the file locked for more than %s: "+
			"see which one has it open, then run again", sqlitefile.BusyTimeout)
	default:
		return ""
	}
}

func full(path string) string {
	return fmt.Sprintf("no space is left: free some on the disk that holds %s, then run again; what was committed is kept",
		filepath.Dir(path))
}

func readOnly(path string) string {
	return fmt.Sprintf("the file or its folder cannot be written: give this user the right to write %s and to create files in %s "+
		"(the store keeps a -wal and a -shm file beside it), or name another place", filepath.Base(path), filepath.Dir(path))
}
