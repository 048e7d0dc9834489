package parquet

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName bounds a stream's name in bytes: file systems take 255, and a
// folder's name has to have room for what is put around it.
const maxName = 180

// folderName is the name of a stream's folder. Letters, digits, dot, dash and
// underscore stay; anything else becomes an underscore.
func folderName(stream string) (string, error) {
	var wrong string
	switch {
	case stream == "":
		wrong = "it is empty"
	case len(stream) > maxName:
		wrong = fmt.Sprintf("it has %d bytes, and at most %d fit a folder's name", len(stream), maxName)
	case !utf8.ValidString(stream):
		wrong = "it is not UTF-8"
	case stream[0] == '.':
		wrong = "it begins with a dot, so its folder would be hidden or outside"
	case strings.ContainsAny(stream, `/\`):
		wrong = "it holds a path separator"
	case strings.ContainsFunc(stream, unicode.IsControl):
		wrong = "it holds a control character"
	case strings.HasSuffix(stream, ".bak"):
		wrong = "names that end in .bak are those of folders set aside"
	}
	if wrong != "" {
		return "", fmt.Errorf("parquet: stream %q cannot name a folder: %s: rename the stream", stream, wrong)
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, stream), nil
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
