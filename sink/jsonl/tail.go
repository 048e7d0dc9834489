package jsonl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/folder"
)

// tailSize is how many bytes at the end of what was committed tell a file from
// another.
const tailSize = 64

// tail is the end of a file's committed lines, with the last line's end.
type tail []byte

// after is the tail once a line was written; it takes the place of t.
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

// verify checks that a file holds what was committed, as far as that can be
// told without reading all of it, and gives its tail. The tail is nil when nothing
// was committed, and when the file is missing or empty.
func verify(d folder.Folder, name string, committed extent) (tail, error) {
	size, _, err := d.Size(name)
	if err != nil || committed.Length == 0 || size == 0 {
		return nil, err
	}
	lost := &LostError{Path: d.Path(name), Have: size, Committed: committed.Length}
	if size < committed.Length {
		return nil, lost
	}
	t, err := readTail(d, name, committed.Length)
	if err == nil && (t[len(t)-1] != '\n' || committed.Tail != "" && t.digest() != committed.Tail) {
		return nil, lost
	}
	return t, err
}

// readTail reads the last of the first n bytes of a file, at least one.
func readTail(d folder.Folder, name string, n int64) (tail, error) {
	f, err := os.Open(d.Path(name))
	if err != nil {
		return nil, folder.Explain(d.Sink, "open", d.Path(name), err)
	}
	defer func() { _ = f.Close() }()
	t := make(tail, min(n, tailSize))
	if _, err := f.ReadAt(t, n-int64(len(t))); err != nil {
		return nil, folder.Explain(d.Sink, "read", d.Path(name), err)
	}
	return t, nil
}

// letGo forgets a file that was moved away or emptied: the stream's next record
// begins another.
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

// Noticed says which files were moved away or emptied. See [collect.Noticer].
func (s *Sink) Noticed() []collect.Change { return s.noticed }

// Recognizes reports whether one of the files of a position is in the folder. See
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
