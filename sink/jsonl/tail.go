package jsonl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/folder"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

// tailSize is the number of bytes at the end of the committed ones by which a file is
// recognized.
const tailSize = 64

// tail is the end of a file's committed lines, with the last line's end.
type tail []byte

// after returns the tail after a line was written. It reuses t.
func (t tail) after(line []byte) tail {
	if len(line) >= tailSize {
		return append(append(t[:0], line[len(line)-tailSize+1:]...), '\n')
	}
	t = append(append(t, line...), '\n')
	if over := len(t) - tailSize; over > 0 {
		t = append(t[:0], t[over:]...)
	}
	return t
}

func (t tail) digest() string {
	sum := sha256.Sum256(t)
	return hex.EncodeToString(sum[:8])
}

// verify checks by length and tail that a file holds what was committed, and returns the
// tail. The tail is nil if nothing was committed, or if the file is missing or empty.
func verify(d folder.Folder, name string, committed extent) (tail, error) {
	size, _, err := d.Size(name)
	if err != nil || committed.Length == 0 || size == 0 {
		return nil, err
	}
	lost := &LostError{Path: d.Path(name), Have: size, Committed: committed.Length}
	if size < committed.Length {
		return nil, lost
	}
	t, err := d.Tail(name, committed.Length, tailSize)
	if err == nil && (t[len(t)-1] != '\n' || committed.Tail != "" && tail(t).digest() != committed.Tail) {
		return nil, lost
	}
	return t, err
}

// letGo forgets a file that was moved away or emptied. The stream's next record begins a
// new one.
func (s *Sink) letGo(d folder.Folder, name string, streams []collect.StreamInfo) error {
	delete(s.lengths, name)
	delete(s.owners, strings.ToLower(name))
	stream := strings.TrimSuffix(name, suffix)
	for _, info := range streams {
		if file, err := fileName(info.Name); err == nil && file == name {
			stream = info.Name
		}
	}
	s.noticed = append(s.noticed, collect.Change{Kind: collect.SinkFileGone, Stream: stream})
	return d.Remove(marker(name, markerSynced))
}

// Noticed returns the files that were moved away or emptied. See [collect.Noticer].
func (s *Sink) Noticed() []collect.Change { return s.noticed }

// Recognizes reports whether the folder holds one of the files of a position. See
// [collect.Recognizer].
func (s *Sink) Recognizes(_ context.Context, committed json.RawMessage) bool {
	p, err := parsePosition(committed)
	if err != nil {
		return false
	}
	dir, err := filepath.Abs(s.dir)
	if err != nil {
		return false
	}
	d := folder.Folder{Sink: "jsonl", Dir: dir}
	for name, e := range p.Files {
		if t, err := verify(d, name, e); err == nil && t != nil && e.Tail != "" {
			return true
		}
	}
	return false
}

// SetAside renames the files of the given streams to NAME.jsonl.TIME.bak, for a
// collection that starts over; at is the time in the name. It returns the new paths.
// Streams without a file, or with an empty one, are left out. The sink must not be open.
//
// An interrupted call may be repeated.
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

// position is what is committed: the length of each file, by name.
type position struct {
	Files map[string]extent `json:"files"`
}

type extent struct {
	// Length is in bytes.
	Length int64 `json:"length"`
	// Tail is a digest of the last bytes, by which a replaced file is noticed; empty means
	// unknown.
	Tail string `json:"tail,omitempty"`
}

// parsePosition parses a committed position; nil means the beginning.
func parsePosition(b json.RawMessage) (position, error) {
	var p position
	seen := owners{}
	err := sinkstate.Entries("jsonl", "; no file was changed", "files", b, &p, &p.Files, func(name string, e extent) error {
		if e.Length < 0 {
			return fmt.Errorf("file %q has the length %d", name, e.Length)
		}
		if err := checkName(name); err != nil {
			return err
		}
		return seen.claim("", name)
	})
	return p, err
}

// suffix of each stream's file.
const suffix = ".jsonl"

// fileName returns the name of a stream's file.
func fileName(stream string) (string, error) {
	name, wrong := folder.Name(stream)
	if wrong != "" {
		return "", fmt.Errorf("jsonl: stream %q cannot name a file: %s: rename the stream", stream, wrong)
	}
	return name + suffix, nil
}

// checkName returns an error for a file name in a position that no stream can have, so
// that a position cannot name a file outside the folder.
func checkName(name string) error {
	stem, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return fmt.Errorf("file %q does not end in %s", name, suffix)
	}
	if got, err := fileName(stem); err != nil || got != name {
		return fmt.Errorf("file %q does not belong to a stream", name)
	}
	return nil
}

// owners records which stream writes to which file. Names that differ only in case count
// as the same on all systems, since they are the same file on some.
type owners map[string]owner

type owner struct {
	// stream is empty for a file of the position that was not written since Open.
	stream, file string
}

var errShared = errors.New("jsonl: two streams have the same file")

func (o owners) claim(stream, file string) error {
	key := strings.ToLower(file)
	if old, ok := o[key]; ok && (old.file != file || (old.stream != "" && old.stream != stream)) {
		return fmt.Errorf("%w: %s and %s (streams %q and %q): rename one of them", errShared, old.file, file, old.stream, stream)
	}
	o[key] = owner{stream, file}
	return nil
}

// CheckName returns why a stream's name cannot name a file, or "" if it can. See
// [collect.Namer].
func (s *Sink) CheckName(stream string) string {
	_, wrong := folder.Name(stream)
	return wrong
}

// LostError reports that a file no longer holds what was committed to it.
type LostError struct {
	// Path is the file.
	Path string
	// Have and Committed are lengths in bytes.
	Have, Committed int64
}

// Error names the file, its length, the committed length, and what to do.
func (e *LostError) Error() string {
	const advice = "restore the file from a backup, or move it away and run again, which begins a new one"
	if e.Have < e.Committed {
		return fmt.Sprintf("jsonl: %s has %d bytes of the %d that were committed, so it was truncated; nothing was changed: %s",
			e.Path, e.Have, e.Committed, advice)
	}
	return fmt.Sprintf("jsonl: %s has %d bytes, but the committed %d are others, so it is another file; nothing was changed: %s",
		e.Path, e.Have, e.Committed, advice)
}

// ForeignError reports that a stream's file holds bytes that this connection did not
// write. The file was not changed.
type ForeignError struct {
	// Path is the file; Stream is the stream that would be written to it.
	Path, Stream string
	// Bytes is the length of the file.
	Bytes int64
}

// Error names the stream, the file, its length, and what to do.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("jsonl: stream %q: %s has %d bytes that this connection did not write; it was not changed: "+
		"move it away, give the connection a folder of its own, or start over with `headway collect --fresh`", e.Stream, e.Path, e.Bytes)
}

// LockedError reports that another collection is writing to the folder.
type LockedError = folder.LockedError

// The states of the marker of a new file. See the package comment.
const (
	markerNew    = ".new"
	markerSynced = ".synced"
)

func marker(file, state string) string { return "." + file + state }

// putMarker creates an empty marker and makes it durable.
func putMarker(d folder.Folder, name string) error {
	d.Step()
	f, err := d.Disk.OpenFile(d.Path(name), os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return folder.Explain(d.Sink, "create", d.Path(name), err)
	}
	return d.Sync()
}

// discardNew empties the files whose first slice was never synced. No position was
// returned for them, so nothing in them is committed.
func discardNew(d folder.Folder, committed map[string]extent) error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		hidden, ok := strings.CutSuffix(name, markerNew)
		file, dotted := strings.CutPrefix(hidden, ".")
		if !ok || !dotted || checkName(file) != nil {
			continue
		}
		if _, known := committed[file]; !known {
			size, _, err := d.Size(file)
			if err != nil {
				return err
			}
			if size > 0 {
				if err := d.Cut(file, 0); err != nil {
					return err
				}
			}
		}
		if err := d.Remove(name); err != nil {
			return err
		}
	}
	return nil
}
