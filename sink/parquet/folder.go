package parquet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headway-go/headway/internal/filelock"
)

// lockName is the file whose lock is the right to write to the folder.
const lockName = ".headway.lock"

// takeFolder creates what is missing of dir and locks it, until the file that
// it gives is closed.
func takeFolder(dir string) (lock *os.File, err error) {
	if err := makeFolder(dir); err != nil {
		return nil, explain("create folder", dir, err)
	}
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, explain("open", path, err)
	}
	taken, err := filelock.Try(f)
	switch {
	case err != nil:
		_ = f.Close()
		return nil, explain("lock", path, err)
	case !taken:
		_ = f.Close()
		return nil, &LockedError{Dir: dir}
	}
	return f, nil
}

// folder is a stream's folder. Its methods take names, not paths.
type folder struct {
	dir string
	// step is called before each change to the disk; it does nothing, except
	// in tests, where the process dies there.
	step func()
}

func (d folder) path(name string) string { return filepath.Join(d.dir, name) }

func (d folder) sync() error {
	d.step()
	if err := syncFolder(d.dir); err != nil {
		return explain("sync folder", d.dir, err)
	}
	return nil
}

// names lists the folder; none when it does not exist.
func (d folder) names() ([]string, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, explain("list", d.dir, err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// size is a regular file's length; there is false when there is no such file.
func (d folder) size(name string) (n int64, there bool, err error) {
	info, err := os.Stat(d.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, false, nil
	case err != nil:
		return 0, false, explain("look at", d.path(name), err)
	case !info.Mode().IsRegular():
		return 0, false, fmt.Errorf("parquet: %s is not a file (%s): move it away", d.path(name), info.Mode().Type())
	}
	return info.Size(), true, nil
}

func (d folder) rename(from, to string) error {
	d.step()
	if err := os.Rename(d.path(from), d.path(to)); err != nil {
		return explain("rename", d.path(from), err)
	}
	return nil
}

// remove removes a file; one that is not there is removed already.
func (d folder) remove(name string) error {
	d.step()
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explain("remove", d.path(name), err)
	}
	return nil
}

// cut shortens a file to n bytes, on disk when it returns.
func (d folder) cut(name string, n int64) error {
	d.step()
	f, err := os.OpenFile(d.path(name), os.O_RDWR, 0)
	if err != nil {
		return explain("open", d.path(name), err)
	}
	if err := errors.Join(f.Truncate(n), f.Sync(), f.Close()); err != nil {
		return explain("truncate", d.path(name), err)
	}
	return nil
}

// makeFolder creates dir and what is missing above it, each confirmed on disk.
func makeFolder(dir string) error {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return errors.New("it is a file: name a folder")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeFolder(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(parent)
}
