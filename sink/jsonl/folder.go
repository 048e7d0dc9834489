package jsonl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/headway-go/headway/internal/filelock"
)

// lockName is the file whose lock is the right to write to the folder.
const lockName = ".headway.lock"

// markers tell how far a file's first slice has come. See the package comment.
const (
	markerNew    = ".new"
	markerSynced = ".synced"
)

func marker(file, state string) string { return "." + file + state }

// folder is a locked folder. Its methods take names, not paths.
type folder struct {
	dir  string
	lock *os.File
	step func() // as in Sink
}

// lockFolder creates what is missing of dir and locks it.
func lockFolder(dir string, step func()) (*folder, error) {
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
	return &folder{dir: dir, lock: f, step: step}, nil
}

func (d *folder) unlock() error { return d.lock.Close() }

func (d *folder) path(name string) string { return filepath.Join(d.dir, name) }

func (d *folder) sync() error {
	d.step()
	if err := syncFolder(d.dir); err != nil {
		return explain("sync folder", d.dir, err)
	}
	return nil
}

// size is a regular file's length; there is false when there is no such file.
func (d *folder) size(name string) (n int64, there bool, err error) {
	info, err := os.Stat(d.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, false, nil
	case err != nil:
		return 0, false, explain("look at", d.path(name), err)
	case !info.Mode().IsRegular():
		return 0, false, fmt.Errorf("jsonl: %s is not a file (%s): move it away", d.path(name), info.Mode().Type())
	}
	return info.Size(), true, nil
}

// put creates an empty file that is on disk when it returns.
func (d *folder) put(name string) error {
	d.step()
	f, err := os.OpenFile(d.path(name), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return explain("create", d.path(name), err)
	}
	if err := f.Close(); err != nil {
		return explain("create", d.path(name), err)
	}
	return d.sync()
}

func (d *folder) rename(from, to string) error {
	d.step()
	if err := os.Rename(d.path(from), d.path(to)); err != nil {
		return explain("rename", d.path(from), err)
	}
	return nil
}

// remove removes a marker; one that is not there is removed already.
func (d *folder) remove(name string) error {
	d.step()
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explain("remove", d.path(name), err)
	}
	return nil
}

// cut shortens a file to n bytes, on disk when it returns.
func (d *folder) cut(name string, n int64) error {
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

// aside renames a file to the first name that is free.
func (d *folder) aside(name string, to func(n int) string) (string, error) {
	for n := 1; ; n++ {
		_, err := os.Lstat(d.path(to(n)))
		if errors.Is(err, fs.ErrNotExist) {
			return d.path(to(n)), d.rename(name, to(n))
		}
		if err != nil {
			return "", explain("look at", d.path(to(n)), err)
		}
	}
}

// discardNew empties the files whose first slice was never synced. No position
// was given out for them, so whoever wrote them has nothing committed there.
func (d *folder) discardNew(committed map[string]extent) error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return explain("list", d.dir, err)
	}
	for _, e := range entries {
		hidden, ok := strings.CutSuffix(e.Name(), markerNew)
		file, dotted := strings.CutPrefix(hidden, ".")
		if !ok || !dotted || checkName(file) != nil {
			continue
		}
		if _, known := committed[file]; !known {
			size, _, err := d.size(file)
			if err != nil {
				return err
			}
			if size > 0 {
				if err := d.cut(file, 0); err != nil {
					return err
				}
			}
		}
		if err := d.remove(e.Name()); err != nil {
			return err
		}
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
