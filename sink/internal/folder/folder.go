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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-go/headway/internal/disk"
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

// EndsLine reports whether the first n bytes of a file, at least one, end with
// a line.
func (d Folder) EndsLine(name string, n int64) (bool, error) {
	f, err := os.Open(d.Path(name))
	if err != nil {
		return false, Explain(d.Sink, "open", d.Path(name), err)
	}
	defer func() { _ = f.Close() }()
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, n-1); err != nil {
		return false, Explain(d.Sink, "read", d.Path(name), err)
	}
	return last[0] == '\n', nil
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
