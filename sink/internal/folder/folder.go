// Package folder is shared by the sinks that write to a folder of files. It locks the
// folder, so that one process at a time writes there, makes durable changes to files,
// converts names of streams to safe names of files, and adds advice to disk errors.
//
// It does not know the content of the files. Nothing here is safe for concurrent use. It
// reads no clock.
package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/lockfile"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

// Folder is the folder of a sink. Its methods take names, not paths.
type Folder struct {
	// Sink is how errors name the sink.
	Sink string
	// Dir is the folder's absolute path.
	Dir string
	// Step is called before each change to the disk, where tests kill the process.
	Step func()
	// Disk makes the changes.
	Disk disk.Disk
}

// In returns a folder inside this one.
func (d Folder) In(name string) Folder { return Folder{d.Sink, d.Path(name), d.Step, d.Disk} }

// Path returns the path of a name in the folder.
func (d Folder) Path(name string) string { return filepath.Join(d.Dir, name) }

// Make creates the folder and missing parents durably, readable by their owner only.
func (d Folder) Make() error {
	if err := disk.MkdirAll(d.Disk, d.Dir, 0o700); err != nil {
		return Explain(d.Sink, "create folder", d.Dir, err)
	}
	return nil
}

// Sync makes the names in the folder durable.
func (d Folder) Sync() error {
	d.Step()
	if err := d.Disk.SyncDir(d.Dir); err != nil {
		return Explain(d.Sink, "sync folder", d.Dir, err)
	}
	return nil
}

// Names returns the sorted names in the folder; none if it does not exist.
func (d Folder) Names() ([]string, error) {
	entries, err := os.ReadDir(d.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, Explain(d.Sink, "list", d.Dir, err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// Size returns the length of a regular file in bytes; there is false if the file does not
// exist.
func (d Folder) Size(name string) (n int64, there bool, err error) {
	info, err := os.Stat(d.Path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, false, nil
	case err != nil:
		return 0, false, Explain(d.Sink, "look at", d.Path(name), err)
	case !info.Mode().IsRegular():
		return 0, false, fmt.Errorf("%s: %s is not a file (%s): move it away", d.Sink, d.Path(name), info.Mode().Type())
	}
	return info.Size(), true, nil
}

// Tail returns the last size of the first n bytes of a file, or all n if n is less than
// size.
func (d Folder) Tail(name string, n, size int64) ([]byte, error) {
	f, err := os.Open(d.Path(name))
	if err != nil {
		return nil, Explain(d.Sink, "open", d.Path(name), err)
	}
	defer func() { _ = f.Close() }()
	tail := make([]byte, min(n, size))
	if _, err := f.ReadAt(tail, n-int64(len(tail))); err != nil {
		return nil, Explain(d.Sink, "read", d.Path(name), err)
	}
	return tail, nil
}

// Append opens a file for appending. If it does not exist, it is created, readable by its
// owner only.
func (d Folder) Append(name string) (disk.File, error) {
	d.Step()
	f, err := d.Disk.OpenFile(d.Path(name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, Explain(d.Sink, "open", d.Path(name), err)
	}
	return f, nil
}

// Rename renames a file or folder. The change is durable after Sync.
func (d Folder) Rename(from, to string) error {
	d.Step()
	if err := d.Disk.Rename(d.Path(from), d.Path(to)); err != nil {
		return Explain(d.Sink, "rename", d.Path(from), err)
	}
	return nil
}

// Remove removes a file. It is no error if the file does not exist.
func (d Folder) Remove(name string) error {
	d.Step()
	if err := d.Disk.Remove(d.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Explain(d.Sink, "remove", d.Path(name), err)
	}
	return nil
}

// Cut truncates a file to n bytes durably.
func (d Folder) Cut(name string, n int64) error {
	d.Step()
	f, err := d.Disk.OpenFile(d.Path(name), os.O_RDWR, 0)
	if err != nil {
		return Explain(d.Sink, "open", d.Path(name), err)
	}
	if err := errors.Join(f.Truncate(n), f.Sync(), f.Close()); err != nil {
		return Explain(d.Sink, "truncate", d.Path(name), err)
	}
	return nil
}

// Aside renames a file or folder to the first free name of to(1), to(2) and so on, and
// returns the new path.
func (d Folder) Aside(name string, to func(n int) string) (path string, err error) {
	for n := 1; ; n++ {
		_, err := os.Lstat(d.Path(to(n)))
		if errors.Is(err, fs.ErrNotExist) {
			return d.Path(to(n)), d.Rename(name, to(n))
		}
		if err != nil {
			return "", Explain(d.Sink, "look at", d.Path(to(n)), err)
		}
	}
}

// Backup returns the names for [Folder.Aside] of a file that is set aside at a time:
// NAME.TIME.bak, then NAME.TIME.2.bak and so on.
func Backup(name string, at time.Time) func(n int) string {
	stem := name + "." + at.UTC().Format("20060102T150405Z")
	return func(n int) string {
		if n == 1 {
			return stem + ".bak"
		}
		return fmt.Sprintf("%s.%d.bak", stem, n)
	}
}

// LockedError reports that another collection is writing to a folder.
type LockedError struct {
	// Sink is the kind of the sink that tried to lock the folder Dir.
	Sink, Dir string
	// Holder describes the process that holds the lock.
	Holder string
}

// Error names the folder and the holder, and says what to do.
func (e *LockedError) Error() string {
	return fmt.Sprintf("%s: another collection is writing to %s: wait for it to end, or give each connection a folder of its own; %s has it", e.Sink, e.Dir, e.Holder)
}

// Explain wraps a disk error with the failed action, the path, and advice.
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
		advice = ": the disk reported an error: check it, then run again; what was committed is kept"
	}
	return fmt.Errorf("%s: %s %s%s: %w", sink, what, path, advice, err)
}

// LockName is the name of the lock file.
const LockName = ".headway.lock"

// Locked is a folder that is locked until Unlock, or until the process ends.
type Locked struct {
	Folder
	// Broken is the first write error, after which the sink must be opened again.
	Broken error
	lock   *lockfile.Lock
}

// Lock creates the folder dir if needed and locks it. It returns a *[LockedError] if
// another sink holds the lock. The other arguments are the fields of [Folder].
func Lock(sink, dir string, step func(), on disk.Disk) (*Locked, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, Explain(sink, "find", dir, err)
	}
	d := Folder{Sink: sink, Dir: abs, Step: step, Disk: on}
	if err := d.Make(); err != nil {
		return nil, err
	}
	lock, err := lockfile.Open(d.Path(LockName))
	if held, ok := errors.AsType[*lockfile.HeldError](err); ok {
		return nil, &LockedError{Sink: sink, Dir: abs, Holder: held.Holder()}
	}
	if err != nil {
		return nil, Explain(sink, "lock", d.Path(LockName), err)
	}
	return &Locked{Folder: d, lock: lock}, nil
}

// LockExisting is like Lock, but returns nil and creates nothing if the folder does not
// exist.
func LockExisting(sink, dir string, step func(), on disk.Disk) (*Locked, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return Lock(sink, dir, step, on)
}

// Usable returns an error if a sink may not write: it is not open (l is nil), failed
// before, or its context has ended.
func (l *Locked) Usable(ctx context.Context, sink string) error {
	switch {
	case l == nil:
		return fmt.Errorf("%s: %w", sink, sinkstate.ErrNotOpen)
	case l.Broken != nil:
		return fmt.Errorf("%s: the sink failed before and writes nothing until it is opened again: %w", sink, l.Broken)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %s: %w", sink, l.Dir, ctx.Err())
	}
	return nil
}

// Fail records a write error, after which the sink cannot commit: the file may end in half
// a line. It returns err.
func (l *Locked) Fail(err error) error {
	l.Broken = err
	return err
}

// Unlock releases the lock. It is safe to call it again.
func (l *Locked) Unlock() error { return l.lock.Close() }

// MaxName is the maximum length of a stream's name in bytes. File systems allow 255, and
// prefixes and suffixes are added to the name.
const MaxName = 180

// Name converts a stream's name to a file name: characters other than letters, digits,
// dot, dash and underscore become underscores. If that is not possible, wrong says why;
// otherwise it is empty.
func Name(stream string) (name, wrong string) {
	switch {
	case stream == "":
		return "", "it is empty"
	case len(stream) > MaxName:
		return "", fmt.Sprintf("it has %d bytes, and at most %d fit a name on disk", len(stream), MaxName)
	case !utf8.ValidString(stream):
		return "", "it is not UTF-8"
	case stream[0] == '.':
		return "", "it begins with a dot, so what it names would be hidden or outside the folder"
	case strings.ContainsAny(stream, `/\`):
		return "", "it holds a path separator"
	case strings.ContainsFunc(stream, unicode.IsControl):
		return "", "it holds a control character"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, stream), ""
}
