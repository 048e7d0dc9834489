package parquet

import (
	"bufio"
	"fmt"

	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/sink/internal/folder"
)

// stream is one stream's folder: its complete parts, the part that grows, and
// the spool that is made of.
type stream struct {
	folder.Folder
	// mark is what was synced last.
	mark
	// published is how much of the spool is in the part that grows.
	published int64
	// sealed are the columns of the last complete part.
	sealed columns
	// outdated is the number of a spool whose part is complete, to be removed
	// when a position that says so is committed; 0 means none.
	outdated int64

	// spool is open once something was written; length is with what w holds.
	spool  disk.File
	w      *bufio.Writer
	length int64
	dirty  bool
	// unnamed says that the spool's name may not be on disk yet.
	unnamed bool
}

// empty makes sure that a folder has nothing of a stream in it.
func empty(d folder.Folder, stream string) error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		_, part := numberOf(name, partName)
		_, spool := numberOf(name, spoolName)
		if part || spool {
			return &ForeignError{Path: d.Path(name), Stream: stream}
		}
	}
	return nil
}

// verify checks that what was committed is there, as far as that can be told
// without reading all of it.
func (s *stream) verify() error {
	for n := int64(1); n < s.Part; n++ {
		size, there, err := s.Size(partName(n))
		switch {
		case err != nil:
			return err
		case !there:
			return &LostError{Path: s.Path(partName(n)), What: "is missing"}
		case size == 0:
			return &LostError{Path: s.Path(partName(n)), What: "is empty"}
		}
	}
	var err error
	s.sealed = columns{}
	if s.Part > 1 {
		if s.sealed, err = sealedColumns(s.Folder, s.Part-1); err != nil {
			return err
		}
	}
	if s.Spool == 0 {
		return nil
	}
	path := s.Path(spoolName(s.Part))
	size, there, err := s.Size(spoolName(s.Part))
	switch {
	case err != nil:
		return err
	case !there:
		return &LostError{Path: path, What: "is missing"}
	case size < s.Spool:
		return &LostError{Path: path, What: fmt.Sprintf("has %d bytes of the %d that were committed", size, s.Spool)}
	}
	whole, err := s.EndsLine(spoolName(s.Part), s.Spool)
	if err == nil && !whole {
		return &LostError{Path: path, What: fmt.Sprintf("has no line that ends after the %d bytes that were committed", s.Spool)}
	}
	return err
}

// restore removes what came after the mark, and makes the part that grows hold
// what the spool holds.
func (s *stream) restore() error {
	names, err := s.Names()
	if err != nil {
		return err
	}
	removed := false
	for _, name := range names {
		part, isPart := numberOf(name, partName)
		spool, isSpool := numberOf(name, spoolName)
		switch {
		case name == temporary:
		case isPart && (part > s.Part || part == s.Part && s.Spool == 0):
		case isSpool && (spool != s.Part || s.Spool == 0):
		default:
			continue
		}
		if err := s.Remove(name); err != nil {
			return err
		}
		removed = true
	}
	if removed {
		if err := s.Sync(); err != nil {
			return err
		}
	}
	s.length = s.Spool
	if s.Spool == 0 {
		return nil
	}
	size, _, err := s.Size(spoolName(s.Part))
	if err != nil {
		return err
	}
	if size > s.Spool {
		if err := s.Cut(spoolName(s.Part), s.Spool); err != nil {
			return err
		}
	}
	s.published = source(s.Folder, s.Part)
	return s.publish()
}

// publish makes the part that grows hold what was synced.
func (s *stream) publish() error {
	if s.published == s.Spool {
		return nil
	}
	if _, err := convert(s.Folder, s.Part, s.Spool, s.sealed); err != nil {
		return err
	}
	s.published = s.Spool
	return nil
}

// append adds lines to the spool.
func (s *stream) append(lines []byte) error {
	if s.spool == nil {
		if err := s.open(); err != nil {
			return err
		}
	}
	s.Step()
	s.dirty = true
	if _, err := s.w.Write(lines); err != nil {
		return folder.Explain("parquet", "write", s.spool.Name(), err)
	}
	s.length += int64(len(lines))
	return nil
}

func (s *stream) open() error {
	s.Step()
	if err := s.Make(); err != nil {
		return err
	}
	f, err := s.Append(spoolName(s.Part))
	if err != nil {
		return err
	}
	s.spool, s.w, s.unnamed = f, bufio.NewWriterSize(f, bufferSize), s.length == 0
	return nil
}

// syncSpool has the spool on disk.
func (s *stream) syncSpool() error {
	if !s.dirty {
		return nil
	}
	s.Step()
	if err := s.w.Flush(); err != nil {
		return folder.Explain("parquet", "write", s.spool.Name(), err)
	}
	s.Step()
	if err := s.spool.Sync(); err != nil {
		return folder.Explain("parquet", "sync", s.spool.Name(), err)
	}
	if s.unnamed {
		if err := s.Sync(); err != nil {
			return err
		}
	}
	s.dirty, s.unnamed, s.Spool = false, false, s.length
	return nil
}

// committed is told that the mark was committed. A spool that is large enough
// becomes a part that never changes, and the next one begins.
func (s *stream) committed(target int64) error {
	if s.outdated > 0 {
		if err := s.Remove(spoolName(s.outdated)); err != nil {
			return err
		}
		s.outdated = 0
	}
	if s.Spool < target {
		return nil
	}
	c, err := convert(s.Folder, s.Part, s.Spool, s.sealed)
	if err != nil {
		return err
	}
	if err := s.close(); err != nil {
		return err
	}
	s.outdated, s.mark = s.Part, mark{Part: s.Part + 1}
	s.sealed, s.published, s.length = c, 0, 0
	return nil
}

// close closes the spool, if it is open.
func (s *stream) close() error {
	if s.spool == nil {
		return nil
	}
	f := s.spool
	s.spool, s.w, s.dirty = nil, nil, false
	if err := f.Close(); err != nil {
		return folder.Explain("parquet", "close", f.Name(), err)
	}
	return nil
}
