package jsonl

import (
	"errors"
	"time"

	"github.com/headway-go/headway/sink/internal/folder"
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
	d, err := folder.LockExisting("jsonl", s.dir, s.step, s.disk)
	if d == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Unlock()) }()
	names := make([]string, len(streams))
	for i, stream := range streams {
		if names[i], err = fileName(stream); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		size, _, err := d.Size(name)
		if err != nil {
			return paths, err
		}
		if size > 0 {
			path, err := d.Aside(name, folder.Backup(name, at))
			if err != nil {
				return paths, err
			}
			paths = append(paths, path)
		}
		for _, state := range []string{markerNew, markerSynced} {
			if err := d.Remove(marker(name, state)); err != nil {
				return paths, err
			}
		}
	}
	return paths, d.Sync()
}
