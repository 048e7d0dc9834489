// Package disk defines the operations that change files as an interface, so that a test can
// observe them and simulate a power cut between two of them (package powercut). Packages
// whose files must survive a power cut write them through a [Disk]; programs use [OS]. It
// is as safe for concurrent use as the operating system's files.
package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Disk changes files. Paths and errors are those of package os.
type Disk interface {
	OpenFile(path string, flag int, perm fs.FileMode) (File, error)
	Mkdir(path string, perm fs.FileMode) error
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir makes the names in a folder durable. Syncing a file does not do so: after a
	// file was created, renamed or removed, its name may be lost.
	SyncDir(path string) error
}

// File is an open file.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Closer
	Name() string
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	// Sync makes the content durable, but not the name.
	Sync() error
}

// OS is the operating system's disk.
type OS struct{}

// OpenFile is os.OpenFile.
func (OS) OpenFile(path string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Mkdir is os.Mkdir.
func (OS) Mkdir(path string, perm fs.FileMode) error { return os.Mkdir(path, perm) }

// Rename is os.Rename.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove is os.Remove.
func (OS) Remove(path string) error { return os.Remove(path) }

// SyncDir makes the names in a folder durable.
func (OS) SyncDir(path string) error { return SyncDir(path) }

// MkdirAll creates a folder and its missing parents, and makes their names durable,
// including those that a killed process created before.
func MkdirAll(d Disk, dir string, perm fs.FileMode) error {
	parent := filepath.Dir(dir)
	switch info, err := os.Stat(dir); {
	case err == nil && !info.IsDir():
		return errors.New("it is a file: name a folder")
	case err == nil:
		// A user who may not read the parent did not create this folder.
		if err := d.SyncDir(parent); !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EINVAL) {
			return err
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := MkdirAll(d, parent, perm); err != nil {
		return err
	}
	if err := d.Mkdir(dir, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.SyncDir(parent)
}

// SyncDir makes the names in a folder durable. The error is the system's. On Windows it
// does nothing: NTFS journals names itself and has no call to wait for that.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
