package jsonl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/internal/rawjson"
	"github.com/headway-go/headway/sink/internal/folder"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

// bufferSize of each stream, in bytes.
const bufferSize = 64 << 10

// Sink writes JSON lines to the files of one folder. Make one with [New]. It
// is not safe for concurrent use.
type Sink struct {
	dir string
	// step is called before each change to the disk, where tests die.
	step func()
	// disk is where files are changed.
	disk disk.Disk

	// The rest is set between Open and Close.
	folder *folder.Locked
	// lengths are those of the position that Sync will give.
	lengths map[string]extent
	// tails are the last bytes that were committed to each file.
	tails map[string]tail
	// noticed is what Open found.
	noticed []collect.Change
	owners  owners
	streams map[string]*file
	// unproven are the files that were synced for the first time and whose
	// commit nothing has proved yet.
	unproven []string
}

var (
	_ collect.Located = (*Sink)(nil)
	_ collect.Blank   = (*Sink)(nil)
	_ collect.Burier  = (*Sink)(nil)
)

// file is one stream's file, open for appending.
type file struct {
	name  string
	tail  tail
	f     disk.File
	w     *bufio.Writer
	dirty bool
	// fresh says that the first slice is under way: the marker is "new".
	fresh bool
}

// New gives a sink for the files of one folder, which Open creates when it
// does not exist.
func New(dir string) *Sink { return &Sink{dir: dir, step: changing, disk: disk.OS{}} }

// Location is the folder as it was given to New.
func (s *Sink) Location() collect.Location { return collect.Location{Kind: "jsonl", Path: s.dir} }

// changing is what a sink's step is outside its own tests. (In a function
// literal the point would not be inlined where New is.)
func changing() { fault.Point(fault.JSONLChanging) }

// Open locks the folder and cuts its files back to a committed position. See
// [collect.Sink]. It returns *[LockedError] when another sink has the folder,
// and *[LostError] when less is there than was committed; then it has cut
// nothing. After Close a sink can be opened again.
//
// A file that is missing or empty was moved away since: a new one begins, and
// [Sink.Noticed] says so.
func (s *Sink) Open(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	if err := sinkstate.MayOpen(ctx, "jsonl", s.dir, s.folder != nil); err != nil {
		return err
	}
	p, err := parsePosition(committed)
	if err != nil {
		return err
	}
	d, err := folder.Lock("jsonl", s.dir, s.step, s.disk)
	if err != nil {
		return err
	}
	*s = Sink{dir: s.dir, step: s.step, disk: s.disk, folder: d, lengths: p.Files, owners: owners{},
		tails: map[string]tail{}, streams: map[string]*file{}}
	for name := range p.Files {
		err = errors.Join(err, s.owners.claim("", name))
	}
	if err == nil {
		err = s.restore(d.Folder, streams)
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// restore brings the files back to a position. It looks at all of them before
// it cuts the first.
func (s *Sink) restore(d folder.Folder, streams []collect.StreamInfo) error {
	names := slices.Sorted(maps.Keys(s.lengths))
	for _, name := range names {
		var err error
		if s.tails[name], err = verify(d, name, s.lengths[name]); err != nil {
			return err
		}
	}
	for _, name := range names {
		if s.lengths[name].Length > 0 && s.tails[name] == nil {
			if err := s.letGo(d, name, streams); err != nil {
				return err
			}
			continue
		}
		size, _, err := d.Size(name)
		if err != nil {
			return err
		}
		if size > s.lengths[name].Length {
			if err := d.Cut(name, s.lengths[name].Length); err != nil {
				return err
			}
		}
		if err := d.Remove(marker(name, markerSynced)); err != nil {
			return err
		}
	}
	return discardNew(d, s.lengths)
}

// Write appends records to a stream's file, one a line. See [collect.Sink].
// A record that is not JSON in UTF-8 is an error, and nothing of the call is
// written. A stream's first Write returns *[ForeignError] when its file has
// bytes that this connection did not write. After a failure of the disk the
// sink writes no more until it is opened again.
func (s *Sink) Write(ctx context.Context, stream string, records []collect.Record) error {
	if err := s.folder.Usable(ctx, "jsonl"); err != nil {
		return err
	}
	if len(records) == 0 {
		return nil
	}
	lines, err := validate(stream, records)
	if err != nil {
		return err
	}
	// Another slice: the runtime has committed the one before.
	if err := s.prove(); err != nil {
		return s.folder.Fail(err)
	}
	f, err := s.file(stream)
	if err != nil {
		return err
	}
	s.step()
	f.dirty = true
	n := int64(0)
	for _, line := range lines {
		_, err := f.w.Write(line)
		if err == nil {
			err = f.w.WriteByte('\n')
		}
		if err != nil {
			return s.folder.Fail(folder.Explain("jsonl", "write", s.folder.Path(f.name), err))
		}
		n += int64(len(line)) + 1
		f.tail = f.tail.after(line)
	}
	s.lengths[f.name] = extent{Length: s.lengths[f.name].Length + n, Tail: f.tail.digest()}
	return nil
}

// validate checks all records of a call before the first is written.
func validate(stream string, records []collect.Record) ([]json.RawMessage, error) {
	lines := make([]json.RawMessage, len(records))
	for i, record := range records {
		r := record.Data
		lines[i] = r
		if !rawjson.Valid(r) || !utf8.Valid(r) {
			return nil, fmt.Errorf("jsonl: stream %q: record %d of %d is not JSON in UTF-8; none of them was written: "+
				"the connector must give one JSON value a record", stream, i+1, len(records))
		}
		if bytes.IndexByte(r, '\n') >= 0 || bytes.IndexByte(r, '\r') >= 0 {
			lines[i] = rawjson.Compact(r)
		}
	}
	return lines, nil
}

// Sync has everything written on disk, and gives the position to commit. See
// [collect.Sink].
func (s *Sink) Sync(ctx context.Context) (json.RawMessage, error) {
	if err := s.folder.Usable(ctx, "jsonl"); err != nil {
		return nil, err
	}
	if err := s.prove(); err != nil {
		return nil, s.folder.Fail(err)
	}
	for _, f := range s.streams {
		if err := s.syncFile(f); err != nil {
			return nil, s.folder.Fail(err)
		}
	}
	if len(s.unproven) > 0 {
		// The names of new files, and of their markers.
		if err := s.folder.Sync(); err != nil {
			return nil, s.folder.Fail(err)
		}
	}
	return json.Marshal(position{s.lengths})
}

func (s *Sink) syncFile(f *file) error {
	if !f.dirty {
		return nil
	}
	s.step()
	if err := f.w.Flush(); err != nil {
		return folder.Explain("jsonl", "write", s.folder.Path(f.name), err)
	}
	s.step()
	if err := f.f.Sync(); err != nil {
		return folder.Explain("jsonl", "sync", s.folder.Path(f.name), err)
	}
	f.dirty = false
	if f.fresh {
		if err := s.folder.Rename(marker(f.name, markerNew), marker(f.name, markerSynced)); err != nil {
			return err
		}
		f.fresh, s.unproven = false, append(s.unproven, f.name)
	}
	return nil
}

// Close gives the folder back. See [collect.Sink]. What was written since the
// last Sync is not kept.
func (s *Sink) Close() error {
	if s.folder == nil {
		return nil
	}
	var errs []error
	for _, f := range s.streams {
		errs = append(errs, f.f.Close())
	}
	errs = append(errs, s.folder.Unlock())
	*s = Sink{dir: s.dir, step: s.step, disk: s.disk}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("jsonl: close %s: %w", s.dir, err)
	}
	return nil
}

// prove removes the markers of files whose first position has been committed,
// which a call after Sync tells.
func (s *Sink) prove() error {
	for _, name := range s.unproven {
		if err := s.folder.Remove(marker(name, markerSynced)); err != nil {
			return err
		}
	}
	s.unproven = nil
	return nil
}

// file opens a stream's file on its first use.
func (s *Sink) file(stream string) (*file, error) {
	if f, ok := s.streams[stream]; ok {
		return f, nil
	}
	name, err := fileName(stream)
	if err != nil {
		return nil, err
	}
	if err := s.owners.claim(stream, name); err != nil {
		return nil, err
	}
	_, committed := s.lengths[name]
	if !committed {
		if err := s.begin(stream, name); err != nil {
			return nil, err
		}
	}
	f, err := s.folder.Append(name)
	if err != nil {
		return nil, s.folder.Fail(err)
	}
	opened := &file{name: name, tail: slices.Clone(s.tails[name]), f: f, w: bufio.NewWriterSize(f, bufferSize), fresh: !committed}
	s.streams[stream] = opened
	return opened, nil
}

// begin makes room for a new file and marks it as ours before it has a byte.
func (s *Sink) begin(stream, name string) error {
	size, _, err := s.folder.Size(name)
	if err != nil {
		return err
	}
	synced := marker(name, markerSynced)
	_, ours, err := s.folder.Size(synced)
	if err != nil {
		return err
	}
	if size > 0 {
		if !ours {
			return &ForeignError{Path: s.folder.Path(name), Stream: stream, Bytes: size}
		}
		if _, err := s.folder.Aside(name, func(n int) string {
			if n == 1 {
				return name + ".uncommitted"
			}
			return fmt.Sprintf("%s.uncommitted.%d", name, n)
		}); err != nil {
			return s.folder.Fail(err)
		}
	}
	// The new marker first: without one of them the bytes to come would be
	// somebody else's.
	if err := putMarker(s.folder.Folder, marker(name, markerNew)); err != nil {
		return s.folder.Fail(err)
	}
	if ours {
		if err := s.folder.Remove(synced); err != nil {
			return s.folder.Fail(err)
		}
	}
	return nil
}

// Blank reports whether nothing was written up to a position. See [collect.Blank].
func (s *Sink) Blank(committed json.RawMessage) bool {
	p, err := parsePosition(committed)
	return err == nil && len(p.Files) == 0
}

// Gone writes a tombstone for each key. See [collect.Burier] and the package
// comment.
func (s *Sink) Gone(ctx context.Context, stream, parent string, keys []string, at time.Time) error {
	return collect.Bury(ctx, s, stream, parent, keys, at)
}
