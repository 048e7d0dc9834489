package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/sqlitefile"
	"github.com/headway-go/headway/store/internal/sqlstore"
)

// hint keeps SQLite from using the index of a column: it reads the table in its own order.
const hint = "+"

// view is how this process sees the state now.
func (r *Reader) view() sqlstore.View {
	now := time.Now()
	return sqlstore.View{Now: now, Alive: `$1 IS NOT NULL`, Lives: func(connection, token int64, expires time.Time) bool {
		return lives(r.path, connection, token, expires, now)
	}}
}

// Connections lists every connection, by name. See [collect.Reader].
func (r *Reader) Connections(ctx context.Context) ([]collect.ConnectionStatus, error) {
	return value(ctx, r, "list connections", func(t *snapshot) ([]collect.ConnectionStatus, error) { return sqlstore.Connections(t, r.view()) })
}

// Runs lists runs, newest first. See [collect.Reader]. A run that is stored as running but
// has no live lease is shown as abandoned, with the end of its lease as its end.
func (r *Reader) Runs(ctx context.Context, connection string, limit int) ([]collect.Run, error) {
	return value(ctx, r, "list runs", func(t *snapshot) ([]collect.Run, error) { return sqlstore.Runs(t, r.view(), connection, limit) })
}

// Gaps lists gaps by id, that is, in the order in which they were first seen. See
// [collect.Reader].
func (r *Reader) Gaps(ctx context.Context, f collect.GapFilter) ([]collect.Gap, error) {
	return value(ctx, r, "list gaps", func(t *snapshot) ([]collect.Gap, error) { return sqlstore.Gaps(t, f, hint) })
}

// Events lists the events of a run in order. See [collect.Reader]. An unreadable event is
// left out.
func (r *Reader) Events(ctx context.Context, run string) ([]event.Event, error) {
	return value(ctx, r, "list events", func(t *snapshot) ([]event.Event, error) { return sqlstore.Events(t, run) })
}

// explain wraps an error with the file, the failed action and advice. An error about a held
// or lost lease is returned unchanged.
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

// adviseCode returns advice by the primary error code, which is the low byte of code.
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
