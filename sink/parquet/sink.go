package parquet

import (
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
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/folder"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

const (
	// bufferSize is the size of each stream's buffer, in bytes.
	bufferSize = 64 << 10
	// partSize is the size of a spool in bytes at which its part is completed.
	partSize = 64 << 20
)

// Sink writes Parquet files to a folder, in one subfolder for each stream. Create one with
// [New]. It is not safe for concurrent use.
type Sink struct {
	dir string
	// target is partSize, or less in tests.
	target int64
	// step and disk are passed to each folder.
	step func()
	disk disk.Disk

	// The rest is set between Open and Close.
	top     *folder.Locked
	streams map[string]*stream
	// given reports that Sync returned a position that may not be committed yet.
	given bool
}

var (
	_ collect.Located = (*Sink)(nil)
	_ collect.Asider  = (*Sink)(nil)
	_ collect.Blank   = (*Sink)(nil)
	_ collect.Burier  = (*Sink)(nil)
)

// New returns a sink for one folder, which Open creates if needed.
func New(dir string) *Sink {
	return &Sink{dir: dir, target: partSize, step: func() {}, disk: disk.OS{}}
}

// Location returns the folder as it was passed to New.
func (s *Sink) Location() collect.Location { return collect.Location{Kind: "parquet", Path: s.dir} }

// Open locks the folder and resets its parts to a committed position. See [collect.Sink].
// It returns a *[LockedError] if another sink holds the folder, a *[LostError] if a file
// holds less than was committed, and a *[ForeignError] if a stream's folder has parts that
// are not in the position. Then it has changed nothing. After Close a sink can be opened
// again.
func (s *Sink) Open(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	if err := sinkstate.MayOpen(ctx, "parquet", s.dir, s.top != nil); err != nil {
		return err
	}
	p, err := parsePosition(committed)
	if err != nil {
		return err
	}
	top, err := folder.Lock("parquet", s.dir, s.step, s.disk)
	if err != nil {
		return err
	}
	*s = Sink{dir: s.dir, target: s.target, step: s.step, disk: s.disk, top: top, streams: map[string]*stream{}}
	if err := s.restore(top.Folder, p, streams); err != nil {
		// Not Close, which would write.
		err = errors.Join(err, top.Unlock())
		*s = Sink{dir: s.dir, target: s.target, step: s.step, disk: s.disk}
		return err
	}
	return nil
}

// restore resets all streams to a position. It checks all of them before it changes the
// first.
func (s *Sink) restore(top folder.Folder, p position, streams []collect.StreamInfo) error {
	names := folders{}
	for name := range p.Streams {
		if _, err := names.claim(name); err != nil {
			return err
		}
	}
	for _, info := range streams {
		name, err := names.claim(info.Name)
		if err != nil {
			return err
		}
		if _, known := p.Streams[info.Name]; known {
			continue
		}
		if err := empty(top.In(name), info.Name); err != nil {
			return err
		}
		p.Streams[info.Name] = mark{Part: 1}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Streams)) {
		in, err := folderName(name)
		if err != nil {
			return err
		}
		st := &stream{Folder: top.In(in), mark: p.Streams[name]}
		if err := st.verify(); err != nil {
			return err
		}
		s.streams[name] = st
	}
	for _, st := range s.all() {
		if err := st.restore(); err != nil {
			return err
		}
	}
	return nil
}

// all returns the streams sorted by name, so that the order of steps is deterministic.
func (s *Sink) all() []*stream {
	list := make([]*stream, 0, len(s.streams))
	for _, name := range slices.Sorted(maps.Keys(s.streams)) {
		list = append(list, s.streams[name])
	}
	return list
}

// Write appends records to a stream's spool. See [collect.Sink]. If a record is not JSON
// in UTF-8, Write returns an error and writes nothing. After a disk error the sink writes
// nothing until it is opened again.
func (s *Sink) Write(ctx context.Context, name string, records []collect.Record) error {
	if err := s.top.Usable(ctx, "parquet"); err != nil {
		return err
	}
	st, ok := s.streams[name]
	if !ok {
		return fmt.Errorf("parquet: the stream %q was not passed to Open", name)
	}
	if len(records) == 0 {
		return nil
	}
	var lines bytes.Buffer
	for i, r := range records {
		if !appendLine(&lines, r) {
			return fmt.Errorf("parquet: stream %q: record %d of %d is not JSON in UTF-8; none of them was written: "+
				"the connector must give one JSON value a record", name, i+1, len(records))
		}
	}
	// A call after Sync means that the slice before was committed.
	if err := s.prove(); err != nil {
		return s.top.Fail(err)
	}
	if err := st.append(lines.Bytes()); err != nil {
		return s.top.Fail(err)
	}
	return nil
}

// appendLine appends a record as a line of a spool: [key, parent, data].
func appendLine(b *bytes.Buffer, r collect.Record) bool {
	if !utf8.ValidString(r.Key) || !utf8.ValidString(r.Parent) {
		return false
	}
	b.WriteByte('[')
	for _, s := range []string{r.Key, r.Parent} {
		quoted, err := json.Marshal(s)
		if err != nil {
			return false
		}
		b.Write(quoted)
		b.WriteByte(',')
	}
	if !field.Record(b, r.Data) {
		return false
	}
	b.WriteString("]\n")
	return true
}

// Sync makes all written records durable and returns the position to commit. See
// [collect.Sink].
func (s *Sink) Sync(ctx context.Context) (json.RawMessage, error) {
	if err := s.top.Usable(ctx, "parquet"); err != nil {
		return nil, err
	}
	if err := s.prove(); err != nil {
		return nil, s.top.Fail(err)
	}
	p := position{Streams: map[string]mark{}}
	for _, st := range s.all() {
		if err := st.syncSpool(); err != nil {
			return nil, s.top.Fail(err)
		}
	}
	for name, st := range s.streams {
		p.Streams[name] = st.mark
	}
	s.given = true
	return json.Marshal(p)
}

// Close writes the synced rows to parts and releases the folder. See [collect.Sink].
// Records written since the last Sync are lost. If a part cannot be written, its rows are
// still in the spool, and the next Open writes it.
func (s *Sink) Close() error {
	if s.top == nil {
		return nil
	}
	var errs []error
	for _, st := range s.all() {
		if s.top.Broken == nil {
			errs = append(errs, st.publish())
		}
		errs = append(errs, st.close())
	}
	errs = append(errs, s.top.Unlock())
	*s = Sink{dir: s.dir, target: s.target, step: s.step, disk: s.disk}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("parquet: close %s: %w", s.dir, err)
	}
	return nil
}

// prove calls committed for each stream if the last position was committed. A call after
// Sync shows that.
func (s *Sink) prove() error {
	if !s.given {
		return nil
	}
	s.given = false
	for _, st := range s.all() {
		if err := st.committed(s.target); err != nil {
			return err
		}
	}
	return nil
}

// Blank reports whether nothing was written up to the position. See [collect.Blank].
func (s *Sink) Blank(committed json.RawMessage) bool {
	p, err := parsePosition(committed)
	return err == nil && len(p.Streams) == 0
}

// Gone writes a tombstone for each key. See [collect.Burier] and the package
// comment.
func (s *Sink) Gone(ctx context.Context, stream, parent string, keys []string, at time.Time) error {
	return collect.Bury(ctx, s, stream, parent, keys, at)
}
