package jsonl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// SetAside renames the files of the given streams to NAME.jsonl.TIME.bak, for a
// collection that starts over; at is the time in the name. It deletes nothing,
// and gives the new paths. Streams without a file, or with an empty one, are
// left out. The sink must not be open.
//
// A call that was cut short may be repeated.
func (s *Sink) SetAside(streams []string, at time.Time) (paths []string, err error) {
	if s.folder != nil {
		return nil, errors.New("jsonl: the sink is open: set files aside before Open")
	}
	dir, err := filepath.Abs(s.dir)
	if err != nil {
		return nil, explain("find", s.dir, err)
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, len(streams))
	for i, stream := range streams {
		if names[i], err = fileName(stream); err != nil {
			return nil, err
		}
	}
	d, err := lockFolder(dir, s.step)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.unlock()) }()
	for _, name := range names {
		size, _, err := d.size(name)
		if err != nil {
			return paths, err
		}
		if size > 0 {
			path, err := d.aside(name, func(n int) string {
				stamp := at.UTC().Format("20060102T150405Z")
				if n > 1 {
					stamp = fmt.Sprintf("%s.%d", stamp, n)
				}
				return name + "." + stamp + ".bak"
			})
			if err != nil {
				return paths, err
			}
			paths = append(paths, path)
		}
		for _, state := range []string{markerNew, markerSynced} {
			if err := d.remove(marker(name, state)); err != nil {
				return paths, err
			}
		}
	}
	return paths, d.sync()
}
