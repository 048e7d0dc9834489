// Package journal records the outcome of every row of a bulk load in a folder, so that a
// load that was killed at any instruction can be resumed.
//
// The folder holds the journal (append-only lines with checksums), two side files with the
// rejected rows and their errors and with the uncertain rows, and a lock that ends with its
// process. [Open] starts or resumes a load, [Journal.Write] makes entries durable, and
// [Read] reads a folder without taking the lock.
//
// A row is settled in this order: its line is written to a side file and synced, then the
// journal entry that counts it. Lines of a side file that the journal does not count belong
// to an entry that never became durable; Open moves them to another file. When the journal
// has grown to several times the size of its state, it is rewritten to a new file, which
// is renamed.
//
// A journal that ends in the middle of a line, after a crash, is read up to the last
// complete line. A journal that is damaged before its end is an error.
//
// A Journal is safe for concurrent use. It reads no clock.
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

// compactAt is the length in bytes at which a journal is first rewritten.
const compactAt = 1 << 20

// Journal is the open journal of a load. Open it with [Open].
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

// Options are the options of [Open].
type Options struct {
	// Header describes the load. Its Load is used only for a new load.
	Header Header
	// Preamble is the first line of each side file.
	RejectsPreamble, UncertainPreamble string
}

// Open starts a load in a folder, which it creates if needed, or resumes the load there,
// and returns its state. It returns a *[reason.Refusal] with LeaseHeld if another process
// runs the load, a *[CorruptError] if the journal is damaged, and an [*OtherError] if the
// folder holds another load. Then it has changed nothing.
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

// load reads the existing journal and brings the side files in line with it.
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
	// A killed process may have renamed the journal without syncing the folder.
	if err := syncDir(j.disk, j.dir); err != nil {
		return err
	}
	j.compacted = j.size
	j.rejects.size, j.doubts.size = j.state.lengths.Rejects, j.state.lengths.Uncertain
	return errors.Join(j.rejects.aside(), j.doubts.aside())
}

// start writes a new journal. It returns an error if there are side files without a
// journal.
func (j *Journal) start(h Header) error {
	for _, s := range []*side{&j.rejects, &j.doubts} {
		if _, err := os.Stat(s.path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("journal: %s exists without a journal: move it away, or use another folder", s.path)
		}
	}
	j.state = State{Rows: -1}
	first := record{Kind: kindStart, Version: version, Header: &h}
	if err := j.state.apply(first); err != nil {
		return fmt.Errorf("journal: the header is empty")
	}
	return j.replace(first)
}

// replace replaces the journal by one record. After an error nothing more can be written.
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

// Write makes entries durable, in order. After an error nothing more is written, and the
// entries may or may not count when the load is resumed: acknowledged rows may be sent
// again or be uncertain, but no row is lost.
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
		// Remove the incomplete line, although a reader would skip it.
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

// State returns the durable state.
func (j *Journal) State() State {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state.Clone()
}

// Close releases the folder. Everything written is durable already.
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

// add appends lines to the buffer to, preceded by the preamble if they are the first.
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

// aside moves the bytes of a side file after size to another file. It returns an error if
// the file is shorter than size.
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
