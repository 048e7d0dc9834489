package jsonl

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// suffix of each stream's file.
const suffix = ".jsonl"

// maxName bounds a stream's name in bytes: file systems take 255, and a file's
// name has to have room for what is put around it.
const maxName = 180

// fileName is the name of a stream's file. Letters, digits, dot, dash and
// underscore stay; anything else becomes an underscore.
func fileName(stream string) (string, error) {
	var wrong string
	switch {
	case stream == "":
		wrong = "it is empty"
	case len(stream) > maxName:
		wrong = fmt.Sprintf("it has %d bytes, and at most %d fit a file name", len(stream), maxName)
	case !utf8.ValidString(stream):
		wrong = "it is not UTF-8"
	case stream[0] == '.':
		wrong = "it begins with a dot, so its file would be hidden or outside the folder"
	case strings.ContainsAny(stream, `/\`):
		wrong = "it holds a path separator"
	case strings.ContainsFunc(stream, unicode.IsControl):
		wrong = "it holds a control character"
	}
	if wrong != "" {
		return "", fmt.Errorf("jsonl: stream %q cannot name a file: %s: rename the stream", stream, wrong)
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, stream) + suffix, nil
}

// checkName refuses a file name of a position that no stream can have given,
// so that a position cannot reach outside the folder.
func checkName(name string) error {
	stem, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return fmt.Errorf("file %q does not end in %s", name, suffix)
	}
	if got, err := fileName(stem); err != nil || got != name {
		return fmt.Errorf("file %q is no stream's", name)
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
