package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headway-go/headway/internal/lockfile"
)

// The files of a folder.
const (
	// File is the journal.
	File = "journal"
	// RejectsFile holds the rejected rows with their errors.
	RejectsFile = "rejects.jsonl"
	// UncertainFile holds the rows that may or may not be written.
	UncertainFile = "uncertain.jsonl"
	lockFile      = "lock"
	// asideSuffix is the suffix of the file with the uncounted end of a side file.
	asideSuffix = ".unrecorded"
)

// ErrNone reports that a folder has no journal.
var ErrNone = errors.New("there is no journal: no load was started here")

// CorruptError reports a damaged journal.
type CorruptError struct {
	// Path is the file; Line is the damaged line, from 1.
	Path string
	Line int
	What string
}

// Error returns the position, the damage, and what to do.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("journal: %s: line %d holds %s; nothing was changed: restore the file from a copy, or start the load again in another folder if rows may be sent twice", e.Path, e.Line, e.What)
}

// OtherError says that a folder's load is of another input, or for another
// target.
type OtherError struct {
	Dir string
	// Err says what differs, and what to do.
	Err error
}

// Error returns the folder and the difference.
func (e *OtherError) Error() string { return fmt.Sprintf("journal: %s: %v", e.Dir, e.Err) }

// Unwrap returns the difference.
func (e *OtherError) Unwrap() error { return e.Err }

// Held reports whether a process runs the load of a folder. To find out, it takes the lock
// for a moment if it is free. An error means that it is unknown.
func Held(dir string) (bool, error) {
	held, err := lockfile.Held(filepath.Join(dir, lockFile))
	if err != nil {
		return false, fmt.Errorf("journal: lock %s: %w", dir, err)
	}
	return held, nil
}

// Read returns the state of a load without taking its lock. If the load is running, the
// state may be slightly out of date. The error matches [ErrNone] if there is no load.
func Read(dir string) (State, error) {
	path := filepath.Join(dir, File)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, fmt.Errorf("journal: %s: %w", dir, ErrNone)
	}
	if err != nil {
		return State{}, fmt.Errorf("journal: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	s, _, err := replay(f, path)
	return s, err
}

// replay reads a journal and returns its state, and its length up to the last complete
// line.
func replay(r io.Reader, path string) (State, int64, error) {
	s := State{Rows: -1}
	in := bufio.NewReaderSize(r, 64<<10)
	good := int64(0)
	torn := 0 // the line of what may be the torn end; 0 while there is none
	var line []byte
	for number := 1; ; number++ {
		var whole bool
		var err error
		line, whole, err = readLine(in, line[:0])
		if err != nil {
			return State{}, 0, fmt.Errorf("journal: %w", err)
		}
		if !whole && len(line) == 0 {
			break
		}
		rec, ok := record{}, false
		if whole {
			rec, ok = parseLine(line[:len(line)-1])
		}
		switch {
		case !ok && torn == 0:
			torn = number
			continue
		case !ok:
			continue // more of what the crash left
		case torn != 0 && rec.Group != 0 && rec.Group <= good:
			continue // of the same write, which was not synced
		case torn != 0:
			// A later write: the torn one was synced before it.
			return State{}, 0, &CorruptError{path, torn, "what does not match its checksum"}
		}
		if err := s.apply(rec); err != nil {
			return State{}, 0, &CorruptError{path, number, err.Error()}
		}
		good += int64(len(line))
	}
	if good == 0 {
		return State{}, 0, &CorruptError{path, 1, "no beginning of a journal"}
	}
	return s, good, nil
}

// readLine reads up to the next line break, at most maxLine bytes, since the journal has no
// longer lines. whole is false at the end of the file.
func readLine(in *bufio.Reader, line []byte) (_ []byte, whole bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(line) <= maxLine {
			line = append(line, part...)
		}
		switch {
		case err == nil:
			return line, true, nil
		case errors.Is(err, io.EOF):
			return line, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, false, err
		}
	}
}
