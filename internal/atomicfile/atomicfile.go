// Package atomicfile replaces, and reads, a file as a whole: a reader, also after a
// crash or a power cut, finds the old content or the new content, and neither
// half of one nor nothing.
//
// The new content is written to a file beside the old one, see [Beside], and is
// then given its name. The caller makes sure that nobody else replaces the
// same file meanwhile, with a lock (package lockfile) for instance. A file that
// grows, or is too large to be held in memory, is not for this package.
//
// It keeps no state, so it is safe for concurrent use on different files. Errors
// are those of package os. It reads no clock.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headway-go/headway/internal/disk"
)

// mode is that of each file it creates: its owner may read and write it.
const mode = 0o600

// ErrTooLarge is what the error of [Read] matches for a file that is longer than it may be.
var ErrTooLarge = errors.New("larger than it may be")

// Read reads the file at path, which may have limit bytes at most.
func Read(path string, limit int64) (b []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is %w: %d bytes at most", path, ErrTooLarge, limit)
	}
	return b, err
}

// Beside is where the next content of a file is written before it gets its place.
func Beside(path string) string { return path + ".new" }

// Write replaces the file at path, or creates it. When it returns nil the content
// is durable. After an error the file holds the old content; only when the error
// is that the folder could not be synced, it may hold the new one.
func Write(d disk.Disk, path string, content []byte) error {
	if err := write(d, path, content, disk.File.Sync); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(path))
}

// WriteUnsynced is Write for content that may be lost in a power cut, and waits
// for no disk. After a power cut the file may even be empty, so its reader has to
// treat a file that it cannot read as missing.
func WriteUnsynced(d disk.Disk, path string, content []byte) error {
	return write(d, path, content, func(disk.File) error { return nil })
}

// write does all but make the name durable.
func write(d disk.Disk, path string, content []byte, sync func(disk.File) error) error {
	f, err := d.OpenFile(Beside(path), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err = f.Write(content); err == nil {
		err = sync(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.Rename(Beside(path), path)
	}
	if err != nil {
		return errors.Join(err, d.Remove(Beside(path)))
	}
	return nil
}

// Place gives what stands beside a file its place, durably. It is for a process
// that finds there what an earlier one had written whole and not placed.
func Place(d disk.Disk, path string) error {
	if err := d.Rename(Beside(path), path); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(path))
}

// Reserved is room on the disk for the next content of a file. It is made by
// [Reserve] and ends with one of its methods. It is not safe for concurrent use.
type Reserved struct {
	disk disk.Disk
	path string
	file disk.File
}

// Reserve takes room for the next content of the file at path, in bytes, so that
// a full disk is found out before there is content that must not be lost. What
// stood beside the file is removed.
func Reserve(d disk.Disk, path string, room int) (*Reserved, error) {
	if err := d.Remove(Beside(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := d.OpenFile(Beside(path), os.O_CREATE|os.O_EXCL|os.O_RDWR, mode)
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(make([]byte, room)); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), d.Remove(Beside(path)))
	}
	return &Reserved{d, path, f}, nil
}

// Commit replaces the file with content that fits into the room. When it returns
// nil the content is durable. After an error it may stand beside the file, whole
// or in part, for [Place].
func (r *Reserved) Commit(content []byte) error {
	_, err := r.file.WriteAt(content, 0)
	if err == nil {
		err = r.file.Truncate(int64(len(content)))
	}
	if err == nil {
		err = r.file.Sync()
	}
	if err = errors.Join(err, r.file.Close()); err != nil {
		return err
	}
	return Place(r.disk, r.path)
}

// Discard removes the room.
func (r *Reserved) Discard() error {
	return errors.Join(r.file.Close(), r.disk.Remove(Beside(r.path)))
}

// Leave closes the room and leaves it beside the file, zeros all of it, as a sign
// that content was expected.
func (r *Reserved) Leave() error { return r.file.Close() }
