// Package atomicfile replaces and reads whole files: a reader, also after a crash or a
// power cut, finds either the old content or the new content.
//
// The new content is written to a temporary file, see [Beside], which is then renamed. The
// caller ensures that no one else replaces the same file meanwhile, for example with a lock
// (package lockfile). The package is for files that fit in memory.
//
// It has no state and is safe for concurrent use on different files. Errors are those of
// package os. It reads no clock.
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

// mode is the mode of created files: the owner may read and write.
const mode = 0o600

// ErrTooLarge is matched by the error of [Read] for a file that exceeds its limit.
var ErrTooLarge = errors.New("larger than it may be")

// Read returns the content of the file at path. A file of more than limit bytes is an error.
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

// Beside returns the path of the temporary file for the next content of a file.
func Beside(path string) string { return path + ".new" }

// Write replaces or creates the file at path. When it returns nil the content is durable.
// After an error the file holds the old content, or possibly the new one if the error is
// that the folder could not be synced.
func Write(d disk.Disk, path string, content []byte) error {
	if err := write(d, path, content, disk.File.Sync); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(path))
}

// WriteUnsynced is like Write, but does not wait for the disk: the content may be lost in a
// power cut, after which the file may even be empty. Readers must treat an unreadable file
// as missing.
func WriteUnsynced(d disk.Disk, path string, content []byte) error {
	return write(d, path, content, func(disk.File) error { return nil })
}

// write is Write without syncing the folder.
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

// Place renames the temporary file of a file to its path, durably. It is for a process that
// finds a complete temporary file that an earlier process had not renamed.
func Place(d disk.Disk, path string) error {
	if err := d.Rename(Beside(path), path); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(path))
}

// Reserved is reserved disk space for the next content of a file. It is returned by
// [Reserve] and ends with one of its methods. It is not safe for concurrent use.
type Reserved struct {
	disk disk.Disk
	path string
	file disk.File
}

// Reserve reserves disk space in bytes for the next content of the file at path, so that a
// full disk is detected before there is content that must not be lost. It removes an
// existing temporary file.
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

// Discard removes the reserved space.
func (r *Reserved) Discard() error {
	return errors.Join(r.file.Close(), r.disk.Remove(Beside(r.path)))
}

// Leave closes the room and leaves it beside the file, zeros all of it, as a sign
// that content was expected.
func (r *Reserved) Leave() error { return r.file.Close() }
