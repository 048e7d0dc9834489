// Package journal keeps, in a folder, what became of every row of a bulk load,
// so that a load that ended at any instruction goes on where it was.
//
// The folder holds the journal itself (append-only lines, each with a checksum),
// the rejected rows with their errors, the rows of which nobody knows whether
// they were written, and a lock that ends with its process. [Open] starts or
// resumes a load, [Journal.Write] makes entries durable, [Read] looks at a folder
// without the lock.
//
// Rows are settled in this order: their lines are written to the side files and
// synced, then the entry that counts them is. What a side file holds beyond what
// the journal counts is of an entry that never became durable; opening sets it
// aside. When the journal has grown to several times what it says, it is
// rewritten beside itself and renamed.
//
// A journal that ends in the middle of a line was cut off by a crash and is read
// to the last whole line. One that is damaged before its end is an error: it is
// not guessed what it said.
//
// It is not for the state of a collection (package store is). A Journal is safe
// for concurrent use. It reads no clock.
package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/lockfile"
	"github.com/headway-go/headway/reason"
)

// compactAt is the length at which a journal is first rewritten.
const compactAt = 1 << 20

// Journal is the journal of a load that is under way. It is made by [Open].
type Journal struct {
	dir  string
	disk disk.Disk
	lock *lockfile.Lock

	mu              sync.Mutex
	state           State
	log             disk.File
	size, compacted int64 // the length now, and after the last rewrite
	rejects, doubts side
	err             error // the first one; nothing is written after it
	buffer          []byte
}

// Options are what a load is opened with.
type Options struct {
	// Header is that of the load as it is to go on. Its Load counts only for a new one.
	Header Header
	// Preamble is the first line of each side file.
	RejectsPreamble, UncertainPreamble string
}

// Open starts the load of a folder, or resumes the one that is there, and gives
// its state. The folder is made. A *[reason.Refusal] of LeaseHeld says that
// another process has it; a *[CorruptError] that the journal is damaged; an
// [*OtherError] that the load there is another one. Then nothing has been changed.
func Open(dir string, o Options) (j *Journal, s State, err error) { return open(disk.OS{}, dir, o) }

func open(on disk.Disk, dir string, o Options) (j *Journal, s State, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, State{}, fmt.Errorf("journal: %w", err)
	}
	if err := disk.MkdirAll(on, dir, 0o700); err != nil {
		return nil, State{}, fmt.Errorf("journal: %w", err)
	}
	lock, err := lockfile.Open(filepath.Join(dir, lockFile))
	if held, ok := errors.AsType[*lockfile.HeldError](err); ok {
		return nil, State{}, &reason.Refusal{Reason: reason.LeaseHeld, Scope: dir, Err: fmt.Errorf("another process runs this load; wait for it, or stop it; %s has it", held.Holder())}
	}
	if err != nil {
		return nil, State{}, fmt.Errorf("journal: lock %s: %w", dir, err)
	}
	j = &Journal{
		dir: dir, disk: on, lock: lock,
		rejects: side{path: filepath.Join(dir, RejectsFile), disk: on, preamble: o.RejectsPreamble},
		doubts:  side{path: filepath.Join(dir, UncertainFile), disk: on, preamble: o.UncertainPreamble},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.Close())
			j = nil
		}
	}()
	if _, err = os.Stat(filepath.Join(dir, File)); errors.Is(err, fs.ErrNotExist) {
		err = j.start(o.Header)
	} else {
		err = j.load(o.Header)
	}
	if err != nil {
		return j, State{}, err
	}
	return j, j.state.Clone(), nil
}

// load reads the journal that is there and makes the folder as it says.
func (j *Journal) load(h Header) error {
	path := filepath.Join(j.dir, File)
	f, err := j.disk.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.log = f
	if j.state, j.size, err = replay(f, path); err != nil {
		return err
	}
	if err := j.state.Header.check(h); err != nil {
		return &OtherError{j.dir, err}
	}
	if err := errors.Join(f.Truncate(j.size), f.Sync()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	// A killed process may have given the journal its name and not have synced it.
	if err := syncDir(j.disk, j.dir); err != nil {
		return err
	}
	j.compacted = j.size
	j.rejects.size, j.doubts.size = j.state.lengths.Rejects, j.state.lengths.Uncertain
	return errors.Join(j.rejects.aside(), j.doubts.aside())
}

// start writes a journal with nothing but its beginning. Side files without a
// journal are not ours to overwrite.
func (j *Journal) start(h Header) error {
	for _, s := range []*side{&j.rejects, &j.doubts} {
		if _, err := os.Stat(s.path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("journal: %s is there, but no journal beside it: move it away, or use another folder", s.path)
		}
	}
	j.state = State{Rows: -1}
	first := record{Kind: kindStart, Version: version, Header: &h}
	if err := j.state.apply(first); err != nil {
		return fmt.Errorf("journal: the header is empty")
	}
	return j.replace(first)
}

// replace makes a record the whole journal. After an error nothing can be written
// any more.
func (j *Journal) replace(r record) error {
	line, err := appendRecord(nil, r)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if j.log != nil {
		_ = j.log.Close() // it is synced, and some systems rename nothing to an open file
		j.log = nil
	}
	path := filepath.Join(j.dir, File)
	if err := atomicfile.Write(j.disk, path, line); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if j.log, err = j.disk.OpenFile(path, os.O_RDWR, 0); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.size, j.compacted = int64(len(line)), int64(len(line))
	return nil
}

// Write makes entries durable, in order. After an error nothing more is
// written, and the entries may or may not count when the load is resumed: rows
// that were acknowledged may be sent again or be uncertain, but none is lost.
func (j *Journal) Write(entries ...Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = j.write(entries)
	}
	return j.err
}

func (j *Journal) write(entries []Entry) error {
	var rejects, doubts []byte
	next := j.state.Clone()
	lines := j.buffer[:0]
	for i := range entries {
		e := &entries[i]
		rejects, doubts = j.rejects.add(rejects, e.Rejects), j.doubts.add(doubts, e.Doubts)
		r := e.record()
		if r.Kind == kindDone {
			r.Lengths = &length{j.rejects.size + int64(len(rejects)), j.doubts.size + int64(len(doubts))}
		}
		if err := next.apply(r); err != nil {
			return fmt.Errorf("journal: an entry holds %w", err)
		}
		if len(lines) > 0 {
			r.Group = j.size
		}
		var err error
		if lines, err = appendRecord(lines, r); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	j.buffer = lines
	if err := errors.Join(j.rejects.write(rejects), j.doubts.write(doubts)); err != nil {
		return err
	}
	if _, err := j.log.WriteAt(lines, j.size); err != nil {
		// The torn line would be read over; without it the file is as it was.
		return fmt.Errorf("journal: %w", errors.Join(err, j.log.Truncate(j.size)))
	}
	if err := j.log.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.state, j.size = next, j.size+int64(len(lines))
	if j.size > max(compactAt, 4*j.compacted) {
		return j.replace(j.state.snapshot())
	}
	return nil
}

// State is what is durable.
func (j *Journal) State() State {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state.Clone()
}

// Close gives the folder back. Everything written is durable already.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = errors.New("journal: it is closed")
	}
	var err error
	for _, f := range []disk.File{j.log, j.rejects.file, j.doubts.file} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if j.lock != nil {
		err = errors.Join(err, j.lock.Close())
	}
	j.log, j.rejects.file, j.doubts.file, j.lock = nil, nil, nil, nil
	return err
}

// syncDir makes a new name in a folder durable.
func syncDir(on disk.Disk, dir string) error {
	if err := on.SyncDir(dir); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// side is a file that grows with the journal.
type side struct {
	path, preamble string
	disk           disk.Disk
	file           disk.File // nil until the first line
	size           int64
}

// add appends lines to what is to be written, after the preamble if they are the
// first.
func (s *side) add(to, lines []byte) []byte {
	if len(lines) > 0 && s.size == 0 && len(to) == 0 {
		to = append(to, s.preamble...)
	}
	return append(to, lines...)
}

// write appends to the file and syncs it.
func (s *side) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	fresh := s.file == nil && s.size == 0
	if s.file == nil {
		f, err := s.disk.OpenFile(s.path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		s.file = f
	}
	if _, err := s.file.WriteAt(b, s.size); err != nil {
		return fmt.Errorf("journal: %w", errors.Join(err, s.file.Truncate(s.size)))
	}
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	s.size += int64(len(b))
	if fresh {
		return syncDir(s.disk, filepath.Dir(s.path))
	}
	return nil
}

// aside moves what a side file holds after size to a file beside it. It is an
// error when the file is shorter than that.
func (s *side) aside() error {
	path, size := s.path, s.size
	f, err := s.disk.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) && size == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("journal: a file of the load is missing: %w; put it back, the rows in it are not sent again", err)
	}
	defer func() { _ = f.Close() }() // synced where it was changed
	info, err := f.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("journal: %w", err)
	case info.Size() < size:
		return fmt.Errorf("journal: %s has %d bytes, the journal counts %d: put the file back as it was (to correct rows, edit a copy)", path, info.Size(), size)
	case info.Size() == size:
		return nil
	}
	to, err := s.disk.OpenFile(path+asideSuffix, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	_, err = io.Copy(to, io.NewSectionReader(f, size, info.Size()-size))
	if err = errors.Join(err, to.Sync(), to.Close(), syncDir(s.disk, filepath.Dir(path))); err != nil {
		return fmt.Errorf("journal: set aside the end of %s: %w", path, err)
	}
	if err := errors.Join(f.Truncate(size), f.Sync()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}
