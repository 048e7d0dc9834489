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

// bufferSize is the size of each stream's buffer, in bytes.
const bufferSize = 64 << 10

// Sink writes JSON lines to the files of one folder. Create one with [New]. It
// is not safe for concurrent use.
type Sink struct {
	dir string
	// step is called before each change to the disk, where tests kill the process.
	step func()
	disk disk.Disk

	// The rest is set between Open and Close.
	folder *folder.Locked
	// lengths are the file lengths that Sync will return.
	lengths map[string]extent
	// tails are the last committed bytes of each file.
	tails map[string]tail
	// noticed are the changes that Open found.
	noticed []collect.Change
	owners  owners
	streams map[string]*file
	// unproven are the files that were synced for the first time and may not be
	// committed yet.
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
	// fresh reports that the file has not been synced yet: its marker is "new".
	fresh bool
}

// New returns a sink for the files of one folder, which Open creates if needed.
func New(dir string) *Sink { return &Sink{dir: dir, step: changing, disk: disk.OS{}} }

// Location returns the folder as it was passed to New.
func (s *Sink) Location() collect.Location { return collect.Location{Kind: "jsonl", Path: s.dir} }

// changing is the step of a sink outside its own tests. (In a function literal the
// fault point would not be inlined.)
func changing() { fault.Point(fault.JSONLChanging) }

// Open locks the folder and truncates its files to a committed position. See
// [collect.Sink]. It returns a *[LockedError] if another sink holds the folder, and a
// *[LostError] if a file holds less than was committed; then it has truncated nothing.
// After Close a sink can be opened again.
//
// If a file is missing or empty, it was moved away: a new file begins, and
// [Sink.Noticed] reports it.
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

// restore resets the files to a position. It checks all of them before it truncates the
// first.
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

// Write appends records to a stream's file, one per line. See [collect.Sink]. If a record
// is not JSON in UTF-8, Write returns an error and writes nothing. A stream's first Write
// returns a *[ForeignError] if its file holds bytes that this connection did not write.
// After a disk error the sink writes nothing until it is opened again.
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
	// A call after Sync means that the slice before was committed.
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

// Sync makes all written records durable and returns the position to commit. See
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

// Close releases the folder. See [collect.Sink]. Records written since the last Sync are
// lost.
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

// prove removes the markers of files whose first position has been committed. The next
// call after Sync shows that.
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

// begin renames an uncommitted file out of the way, and creates the marker of a new one.
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
	// Create the new marker before removing the old one: a file without a marker would
	// count as another program's.
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

// Blank reports whether nothing was written up to the position. See [collect.Blank].
func (s *Sink) Blank(committed json.RawMessage) bool {
	p, err := parsePosition(committed)
	return err == nil && len(p.Files) == 0
}

// Gone writes a tombstone for each key. See [collect.Burier] and the package
// comment.
func (s *Sink) Gone(ctx context.Context, stream, parent string, keys []string, at time.Time) error {
	return collect.Bury(ctx, s, stream, parent, keys, at)
}
