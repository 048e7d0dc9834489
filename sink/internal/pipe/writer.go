package pipe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// bufferSize is how many bytes of whole messages are kept back, at most one
// message more.
const bufferSize = 64 << 10

// Writer writes messages, one a line, and only whole ones. After a failure it
// writes no more. Make one with [NewWriter].
type Writer struct {
	name   string
	w      io.Writer
	sync   func() error // nil when w is not a file
	buffer []byte
	broken error
}

// NewWriter gives a writer for w; name is the sink's, for errors. When w is a
// file, and not a pipe, what was flushed is on disk.
func NewWriter(name string, w io.Writer) *Writer {
	p := &Writer{name: name, w: w}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			p.sync = f.Sync
		}
	}
	return p
}

// Line adds one message, without its line break.
func (w *Writer) Line(message []byte) error {
	if w.broken != nil {
		return w.again()
	}
	w.buffer = append(append(w.buffer, message...), '\n')
	if len(w.buffer) < bufferSize {
		return nil
	}
	return w.write()
}

// Flush hands everything over that was added.
func (w *Writer) Flush() error {
	if w.broken != nil {
		return w.again()
	}
	if err := w.write(); err != nil || w.sync == nil {
		return err
	}
	if err := w.sync(); err != nil {
		return w.fail("sync", err)
	}
	return nil
}

// Discard drops what was added and not handed over yet.
func (w *Writer) Discard() { w.buffer = w.buffer[:0] }

func (w *Writer) write() error {
	if len(w.buffer) == 0 {
		return nil
	}
	_, err := w.w.Write(w.buffer)
	w.Discard()
	if cap(w.buffer) > 16*bufferSize {
		w.buffer = nil // one huge record is no reason to keep its room
	}
	if err != nil {
		return w.fail("write", err)
	}
	return nil
}

// fail keeps a message from being written after half of another one.
func (w *Writer) fail(what string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe), errors.Is(err, os.ErrClosed):
		advice = ": the program that reads it has ended: see why in its own log, then run again; what was committed stays so"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		advice = ": no space is left: free some, then run again; what was committed stays so"
	}
	w.broken = fmt.Errorf("%s: %s the output%s: %w", w.name, what, advice, err)
	return w.broken
}

func (w *Writer) again() error {
	return fmt.Errorf("%s: an earlier message could not be written, so none is: %w", w.name, w.broken)
}
