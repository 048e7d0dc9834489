package parquet

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/headway-go/headway/sink/internal/folder"
)

// folderName is the name of a stream's folder.
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
		wrong = "names that end in .bak are those of folders set aside"
	}
	return name, wrong
}

// CheckName says what keeps a stream's name from being a folder's; empty is nothing.
// See [collect.Namer].
func (s *Sink) CheckName(stream string) string {
	_, wrong := nameOf(stream)
	return wrong
}

var errShared = errors.New("parquet: two streams have the same folder")

// folders finds a stream's folder, and remembers which stream has it. Names
// that differ only in case are the same folder on some systems, so they are
// the same everywhere.
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

// partName is the name of the n-th part.
func partName(n int64) string { return fmt.Sprintf("part-%06d.parquet", n) }

// spoolName is the name of the spool that the n-th part is made of.
func spoolName(n int64) string { return fmt.Sprintf(".part-%06d.jsonl", n) }

// temporary is the name of a part that is being written.
const temporary = ".part.tmp"

// numberOf is the number of a part or spool, when name is the name of one.
func numberOf(name string, of func(int64) string) (n int64, ok bool) {
	_, digits, _ := strings.Cut(name, "part-")
	digits, _, _ = strings.Cut(digits, ".")
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n > 0 && of(n) == name
}

// LostError says that a file no longer holds what was committed to it.
type LostError struct {
	// Path is the file, a part or a spool.
	Path string
	// What is wrong with it.
	What string
}

// Error says which file, what is wrong with it, and what to do.
func (e *LostError) Error() string {
	return fmt.Sprintf("parquet: %s %s, and rows in it were committed; no file was changed: "+
		"restore it from a backup, or start over with `headway collect --fresh`", e.Path, e.What)
}

// ForeignError says that a stream's folder has parts that this connection did
// not write. They were not changed.
type ForeignError struct {
	// Path is one of the files, Stream what would be written beside it.
	Path, Stream string
}

// Error says which file and what to do.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("parquet: stream %q: this connection did not write %s; it was not changed: "+
		"move it away, give the connection a folder of its own, or start over with `headway collect --fresh`", e.Stream, e.Path)
}

// LockedError says that another collection is writing to the folder, its Dir.
type LockedError = folder.LockedError

// errClosed is what a sink says that is not open.
var errClosed = errors.New("parquet: the sink is not open: call Open first")
