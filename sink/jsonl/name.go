package jsonl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headway-go/headway/sink/internal/folder"
)

// suffix of each stream's file.
const suffix = ".jsonl"

// fileName is the name of a stream's file.
func fileName(stream string) (string, error) {
	name, wrong := folder.Name(stream)
	if wrong != "" {
		return "", fmt.Errorf("jsonl: stream %q cannot name a file: %s: rename the stream", stream, wrong)
	}
	return name + suffix, nil
}

// checkName refuses a file name of a position that no stream can have given,
// so that a position cannot reach outside the folder.
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

// owners remembers which stream writes to which file. Names that differ only
// in case are the same file on some systems, so they are the same everywhere.
type owners map[string]owner

type owner struct {
	// stream is empty for a file of the position that nobody has written to yet.
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

// CheckName says what keeps a stream's name from being a file's; empty is nothing.
// See [collect.Namer].
func (s *Sink) CheckName(stream string) string {
	_, wrong := folder.Name(stream)
	return wrong
}
