package parquet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// SetAside renames the folders of the given streams to NAME.TIME.bak, for a
// collection that starts over; at is the time in the name. It deletes nothing,
// and gives the new paths. Streams without a folder are left out. The sink must
// not be open.
//
// A call that was cut short may be repeated.
func (s *Sink) SetAside(streams []string, at time.Time) (paths []string, err error) {
	if s.lock != nil {
		return nil, errors.New("parquet: the sink is open: set folders aside before Open")
	}
	dir, err := filepath.Abs(s.dir)
	if err != nil {
		return nil, explain("find", s.dir, err)
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	lock, err := takeFolder(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	top := folder{dir, s.step}
	for _, stream := range streams {
		name, err := folderName(stream)
		if err != nil {
			return paths, err
		}
		if _, err := os.Lstat(top.path(name)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		to, err := free(top, name+"."+at.UTC().Format("20060102T150405Z"))
		if err != nil {
			return paths, err
		}
		if err := top.rename(name, to); err != nil {
			return paths, err
		}
		paths = append(paths, top.path(to))
	}
	return paths, top.sync()
}

// free is the first name with this stem that nothing has.
func free(top folder, stem string) (string, error) {
	for n := 1; ; n++ {
		name := stem + ".bak"
		if n > 1 {
			name = fmt.Sprintf("%s.%d.bak", stem, n)
		}
		_, err := os.Lstat(top.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
		if err != nil {
			return "", explain("look at", top.path(name), err)
		}
	}
}
