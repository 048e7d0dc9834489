package parquet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/folder"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

// groupSize is the size of a row group in bytes of records. One row group is held in
// memory.
const groupSize = 16 << 20

// sourceKey is the metadata key of the number of bytes of the spool in a part.
const sourceKey = "headway.spool"

// record is one line of a spool.
type record struct {
	key, parent string
	data        []byte
}

// readSpool reads the first n bytes of a spool.
func readSpool(path string, n int64, each func(record) error) error {
	f, err := os.Open(path)
	if err != nil {
		return folder.Explain("parquet", "open", path, err)
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReaderSize(io.LimitReader(f, n), bufferSize)
	for number := 1; ; number++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return folder.Explain("parquet", "read", path, err)
		}
		rec, ok := parseLine(line[:len(line)-1])
		if !ok {
			return &LostError{Path: path, What: fmt.Sprintf("is damaged in line %d", number)}
		}
		if err := each(rec); err != nil {
			return err
		}
	}
}

// parseLine parses a line that appendLine wrote.
func parseLine(line []byte) (r record, ok bool) {
	if !json.Valid(line) || line[0] != '[' {
		return record{}, false
	}
	e := field.Elements(line)
	if len(e) != 3 || e[0][0] != '"' || e[1][0] != '"' {
		return record{}, false
	}
	return record{key: field.Read(e[0]).Text, parent: field.Read(e[1]).Text, data: e[2]}, true
}

// source returns how many bytes of the spool a part was made from, or -1 if there is no
// readable part.
func source(d folder.Folder, n int64) int64 {
	f, err := os.Open(d.Path(partName(n)))
	if err != nil {
		return -1
	}
	defer func() { _ = f.Close() }()
	p, err := openPart(f)
	if err != nil {
		return -1
	}
	text, _ := p.Lookup(sourceKey)
	if size, err := strconv.ParseInt(text, 10, 64); err == nil {
		return size
	}
	return -1
}

func openPart(f *os.File) (*parquet.File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return parquet.OpenFile(f, info.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
}

// sealedColumns returns the columns of a complete part.
func sealedColumns(d folder.Folder, n int64) (columns, error) {
	path := d.Path(partName(n))
	f, err := os.Open(path)
	if err != nil {
		return columns{}, folder.Explain("parquet", "open", path, err)
	}
	defer func() { _ = f.Close() }()
	p, err := openPart(f)
	if err != nil {
		return columns{}, fmt.Errorf("%w: %w", &LostError{Path: path, What: "is damaged"}, err)
	}
	return columnsOf(p.Schema()), nil
}

// convert makes the n-th part from the first size bytes of its spool, and replaces the old
// part, if any. The part has at least the columns of the part before, sealed. convert
// returns its columns.
func convert(d folder.Folder, n, size int64, sealed columns) (columns, error) {
	spool := d.Path(spoolName(n))
	c := sealed.clone()
	var split field.Splitter
	err := readSpool(spool, size, func(r record) error {
		c.parented = c.parented || r.parent != ""
		fields, _ := split.Split(r.data)
		for _, f := range fields {
			c.see(f)
		}
		return nil
	})
	if err != nil {
		return columns{}, err
	}
	d.Step()
	path := d.Path(temporary)
	f, err := d.Disk.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return columns{}, folder.Explain("parquet", "create", path, err)
	}
	if err := errors.Join(write(f, spool, size, c, d.Step), f.Close()); err != nil {
		_ = d.Disk.Remove(path) // Open removes it too
		return columns{}, folder.Explain("parquet", "write", path, err)
	}
	if err := d.Rename(temporary, partName(n)); err != nil {
		return columns{}, err
	}
	return c, d.Sync()
}

// write writes the rows of a spool to a file and syncs it.
func write(f disk.File, spool string, size int64, c columns, step func()) error {
	schema := c.schema()
	w := parquet.NewWriter(f, schema, parquet.Compression(&parquet.Zstd),
		parquet.KeyValueMetadata(sourceKey, strconv.FormatInt(size, 10)))
	m := newRowMaker(c, schema)
	one := make([]parquet.Row, 1)
	group := 0
	err := readSpool(spool, size, func(r record) error {
		one[0] = m.make(r)
		if _, err := w.WriteRows(one); err != nil {
			return err
		}
		if group += len(r.data); group >= groupSize {
			group = 0
			return w.Flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	step()
	return f.Sync()
}

// SetAside renames the folders of the given streams to NAME.TIME.bak, for a collection
// that starts over; at is the time in the name. It returns the new paths. Streams without
// a folder are left out. The sink must not be open.
//
// An interrupted call may be repeated.
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

// position is the committed position, by stream.
type position struct {
	Streams map[string]mark `json:"streams"`
}

// mark is the position of a stream.
type mark struct {
	// Part is the number of the last part, from 1; earlier parts are complete.
	Part int64 `json:"part"`
	// Spool is the length of its spool in bytes.
	Spool int64 `json:"spool"`
}

// parsePosition parses a committed position; nil means the beginning.
func parsePosition(b json.RawMessage) (position, error) {
	var p position
	seen := folders{}
	err := sinkstate.Entries("parquet", "; no file was changed", "streams", b, &p, &p.Streams, func(name string, m mark) error {
		if m.Part < 1 || m.Spool < 0 {
			return fmt.Errorf("stream %q has part %d and %d bytes of its spool", name, m.Part, m.Spool)
		}
		_, err := seen.claim(name)
		return err
	})
	return p, err
}

// folderName returns the name of a stream's folder.
func folderName(stream string) (string, error) {
	name, wrong := nameOf(stream)
	if wrong != "" {
		return "", fmt.Errorf("parquet: stream %q cannot name a folder: %s: rename the stream", stream, wrong)
	}
	return name, nil
}

func nameOf(stream string) (name, wrong string) {
	name, wrong = folder.Name(stream)
	if wrong == "" && strings.HasSuffix(stream, ".bak") {
		wrong = "names that end in .bak are for folders that were set aside"
	}
	return name, wrong
}

// CheckName returns why a stream's name cannot name a folder, or "" if it can. See
// [collect.Namer].
func (s *Sink) CheckName(stream string) string {
	_, wrong := nameOf(stream)
	return wrong
}

var errShared = errors.New("parquet: two streams have the same folder")

// folders records which stream has which folder. Names that differ only in case count as
// the same on all systems, since they are the same folder on some.
type folders map[string]string

func (f folders) claim(stream string) (string, error) {
	name, err := folderName(stream)
	if err != nil {
		return "", err
	}
	key := strings.ToLower(name)
	if other, taken := f[key]; taken && other != stream {
		return "", fmt.Errorf("%w: %s (streams %q and %q): rename one of them", errShared, name, other, stream)
	}
	f[key] = stream
	return name, nil
}

// partName returns the name of the n-th part.
func partName(n int64) string { return fmt.Sprintf("part-%06d.parquet", n) }

// spoolName returns the name of the spool of the n-th part.
func spoolName(n int64) string { return fmt.Sprintf(".part-%06d.jsonl", n) }

// temporary is the name of a part that is being written.
const temporary = ".part.tmp"

// numberOf returns the number of a part or spool; ok is false if name is not the name of
// one.
func numberOf(name string, of func(int64) string) (n int64, ok bool) {
	_, digits, _ := strings.Cut(name, "part-")
	digits, _, _ = strings.Cut(digits, ".")
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n > 0 && of(n) == name
}

// LostError reports that a file no longer holds what was committed to it.
type LostError struct {
	// Path is the file, a part or a spool.
	Path string
	// What describes the damage, such as "is missing".
	What string
}

// Error names the file and the damage, and says what to do.
func (e *LostError) Error() string {
	return fmt.Sprintf("parquet: %s %s, but it has committed rows; no file was changed: "+
		"restore it from a backup, or start over with `headway collect --fresh`", e.Path, e.What)
}

// ForeignError reports that a stream's folder has parts that this connection did not
// write. They were not changed.
type ForeignError struct {
	// Path is one of the files; Stream is the stream of the folder.
	Path, Stream string
}

// Error names the stream and the file, and says what to do.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("parquet: stream %q: this connection did not write %s; it was not changed: "+
		"move it away, give the connection a folder of its own, or start over with `headway collect --fresh`", e.Stream, e.Path)
}

// LockedError reports that another collection is writing to the folder.
type LockedError = folder.LockedError
