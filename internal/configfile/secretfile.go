package configfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxSecret bounds a secret's file, in bytes: no credential is longer.
const maxSecret = 64 << 10

// readSecret reads a secret's file without the line breaks at its end, and gives the
// file's mode. What never ends, such as a device or a pipe, is refused unread. The
// error holds neither the path nor any of the content.
func readSecret(path string) (secret string, mode fs.FileMode, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", 0, cause(err)
	case !info.Mode().IsRegular():
		return "", 0, errors.New("it is not a regular file")
	case info.Size() > maxSecret:
		return "", 0, fmt.Errorf("it has %d bytes, at most %d are read", info.Size(), maxSecret)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", 0, cause(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1)) // it may have grown meanwhile
	switch text := strings.TrimRight(string(b), "\r\n"); {
	case err != nil:
		return "", 0, cause(err)
	case len(b) > maxSecret:
		return "", 0, fmt.Errorf("it is longer than %d bytes", maxSecret)
	case text == "":
		return "", 0, errors.New("it is empty")
	default:
		return text, info.Mode(), nil
	}
}
