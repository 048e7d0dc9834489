package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headway-go/headway/internal/disk"
)

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
