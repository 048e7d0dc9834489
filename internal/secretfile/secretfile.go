// Package secretfile reads a credential from a file of its own. It keeps nothing
// and is safe for concurrent use.
package secretfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// Max bounds a secret's file, in bytes: no credential is longer.
const Max = 64 << 10

// Read reads a secret's file without the line breaks at its end, and gives the
// file's mode. What never ends, such as a device or a pipe, is refused unread. The
// error holds neither the path nor any of the content.
func Read(path string) (secret string, mode fs.FileMode, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", 0, cause(err)
	case !info.Mode().IsRegular():
		return "", 0, errors.New("it is not a regular file")
	case info.Size() > Max:
		return "", 0, fmt.Errorf("it has %d bytes, at most %d are read", info.Size(), Max)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", 0, cause(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := io.ReadAll(io.LimitReader(f, Max+1)) // it may have grown meanwhile
	switch text := strings.TrimRight(string(b), "\r\n"); {
	case err != nil:
		return "", 0, cause(err)
	case len(b) > Max:
		return "", 0, fmt.Errorf("it is longer than %d bytes", Max)
	case text == "":
		return "", 0, errors.New("it is empty")
	default:
		return text, info.Mode(), nil
	}
}

// cause is an error of the file system without the path, which the caller says.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
