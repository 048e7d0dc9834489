// Package folder is what the sinks share that own a folder of files: one lock,
// so that one process at a time writes there, changes that are on disk when they
// return, names of streams that are safe as names of files, and errors that say
// what to do about a disk.
//
// It does not know what is in the files, what was committed, or in which order a
// sink may change them. A sink that hands records to another program needs none
// of it; that is package pipe. Nothing here is safe for concurrent use. It reads
// no clock.
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

// Folder is a folder that a sink has. Its methods take names, not paths.
type Folder struct {
	// Sink is how errors name the sink.
	Sink string
	// Dir is the folder's absolute path.
	Dir string
	// Step is called before each change to the disk, where tests die.
	Step func()
	// Disk is where changes are made.
	Disk disk.Disk
}

// In is a folder in this one.
func (d Folder) In(name string) Folder { return Folder{d.Sink, d.Path(name), d.Step, d.Disk} }

// Path is the path of a name in the folder.
func (d Folder) Path(name string) string { return filepath.Join(d.Dir, name) }

// Make creates the folder and what is missing above it, each readable by its
// owner only and confirmed on disk.
func (d Folder) Make() error {
	if err := disk.MkdirAll(d.Disk, d.Dir, 0o700); err != nil {
		return Explain(d.Sink, "create folder", d.Dir, err)
	}
	return nil
}

// Sync has the names in the folder on disk.
func (d Folder) Sync() error {
	d.Step()
	if err := d.Disk.SyncDir(d.Dir); err != nil {
		return Explain(d.Sink, "sync folder", d.Dir, err)
	}
	return nil
}

// Names lists the folder in order; none when it does not exist.
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

// Size is a regular file's length in bytes; there is false when there is no
// such file.
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

// Tail reads the last of the first n bytes of a file: size of them, or all n where they
// are fewer.
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

// Append opens a file to write at its end, and creates it when it is missing,
// readable by its owner only.
func (d Folder) Append(name string) (disk.File, error) {
	d.Step()
	f, err := d.Disk.OpenFile(d.Path(name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, Explain(d.Sink, "open", d.Path(name), err)
	}
	return f, nil
}

// Rename gives a file or folder another name, which is on disk after Sync.
func (d Folder) Rename(from, to string) error {
	d.Step()
	if err := d.Disk.Rename(d.Path(from), d.Path(to)); err != nil {
		return Explain(d.Sink, "rename", d.Path(from), err)
	}
	return nil
}

// Remove removes a file; one that is not there is removed already.
func (d Folder) Remove(name string) error {
	d.Step()
	if err := d.Disk.Remove(d.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Explain(d.Sink, "remove", d.Path(name), err)
	}
	return nil
}

// Cut shortens a file to n bytes, on disk when it returns.
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

// Aside renames a file or folder to the first name that is free: to(1), to(2)
// and so on. It gives the new path.
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

// Backup names what is set aside at a time, for [Folder.Aside]: NAME.TIME.bak,
// then NAME.TIME.2.bak and so on.
func Backup(name string, at time.Time) func(n int) string {
	stem := name + "." + at.UTC().Format("20060102T150405Z")
	return func(n int) string {
		if n == 1 {
			return stem + ".bak"
		}
		return fmt.Sprintf("%s.%d.bak", stem, n)
	}
}

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

// LockName is the file whose lock is the right to write to the folder.
const LockName = ".headway.lock"

// Locked is a folder that nobody else writes to until it is unlocked, or the
// process has ended.
type Locked struct {
	Folder
	// Broken is the first failure to write; only the next Open repairs what it left.
	Broken error
	lock   *lockfile.Lock
}

// Lock makes dir absolute, creates what is missing of it, and locks it. It
// returns *[LockedError] when another has it. The others are the folder's
// fields.
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

// LockExisting is Lock for a folder that is there; nil when there is none, and
// then nothing is created.
func LockExisting(sink, dir string, step func(), on disk.Disk) (*Locked, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return Lock(sink, dir, step, on)
}

// Usable says why a sink may not write now: it has no folder (l is nil), failed
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

// Fail keeps a sink from committing what may be half a line.
func (l *Locked) Fail(err error) error {
	l.Broken = err
	return err
}

// Unlock gives the folder back. It is safe to call again.
func (l *Locked) Unlock() error { return l.lock.Close() }

// MaxName bounds a stream's name in bytes: file systems take 255, and what is
// named after it has to have room for what is put around the name.
const MaxName = 180

// Name is a stream's name as a name on disk. Letters, digits, dot, dash and
// underscore stay; anything else becomes an underscore. What is wrong with a
// name that cannot be one is said in wrong, which is otherwise empty.
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
