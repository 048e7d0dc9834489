package parquet

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/headway-go/headway/sink/internal/folder"
)

// SetAside renames the folders of the given streams to NAME.TIME.bak, for a
// collection that starts over; at is the time in the name. It deletes nothing,
// and gives the new paths. Streams without a folder are left out. The sink must
// not be open.
//
// A call that was cut short may be repeated.
func (s *Sink) SetAside(streams []string, at time.Time) (paths []string, err error) {
	if s.top != nil {
		return nil, errors.New("parquet: the sink is open: set folders aside before Open")
	}
	top, err := folder.LockExisting("parquet", s.dir, s.step, s.disk)
	if top == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, top.Unlock()) }()
	for _, stream := range streams {
		name, err := folderName(stream)
		if err != nil {
			return paths, err
		}
		if _, err := os.Lstat(top.Path(name)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		path, err := top.Aside(name, folder.Backup(name, at))
		if err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, top.Sync()
}
