// Package pipe is what the sinks share that hand records to another program as
// lines of JSON: a [Writer] that never leaves half a message behind, and what a
// record becomes on the way, an object that holds its own key ([Stream]).
//
// It is not for files that have to be cut back to a committed length; that is
// package jsonl. Nothing here is safe for concurrent use or reads a clock.
package pipe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"unicode/utf8"

	"github.com/headway-go/headway/collect"
)

// The properties that are added to records, so that a reader can tell them
// apart by what is in them.
const (
	// ParentProperty is the key of the item that a detail belongs to.
	ParentProperty = "_headway_parent"
	// KeyProperty is the key of a record that does not hold it as a field.
	KeyProperty = "_headway_key"
	// ValueProperty holds a record that is not an object.
	ValueProperty = "_headway_value"
)

// Stream is how the records of a stream are distinguished. Make one with [NewStream].
type Stream struct {
	Name string
	// Keys are the properties that together identify a record.
	Keys []string

	field string // the property that is there already; empty for none
}

// Member is a name and a value of an object.
type Member struct {
	Name string
	// Value is one JSON value, without line breaks.
	Value json.RawMessage
}

// NewStream says what a stream's records are identified by: the field that
// holds the key or [KeyProperty], and for details [ParentProperty] before it.
func NewStream(info collect.StreamInfo) *Stream {
	s := &Stream{Name: info.Name, field: info.KeyField}
	if info.Parent != "" {
		s.Keys = append(s.Keys, ParentProperty)
	}
	if s.field == "" {
		s.Keys = append(s.Keys, KeyProperty)
	} else {
		s.Keys = append(s.Keys, s.field)
	}
	return s
}

// Streams gives the streams of an Open by name.
func Streams(infos []collect.StreamInfo) map[string]*Stream {
	all := make(map[string]*Stream, len(infos))
	for _, info := range infos {
		all[info.Name] = NewStream(info)
	}
	return all
}

// Records gives each record as the members of an object that holds its key. An
// error is about the whole call.
func (s *Stream) Records(records []collect.Record) ([][]Member, error) {
	all := make([][]Member, len(records))
	for i, r := range records {
		var err error
		if all[i], err = s.members(r); err != nil {
			return nil, fmt.Errorf("stream %q: record %d of %d %w; none of them was written", s.Name, i+1, len(records), err)
		}
	}
	return all, nil
}

// members reads a record and adds the properties of its key in front.
func (s *Stream) members(r collect.Record) ([]Member, error) {
	if !json.Valid(r.Data) || !utf8.Valid(r.Data) {
		return nil, errors.New("is not JSON in UTF-8: the connector must give one JSON value a record")
	}
	own, object := Members(compact(r.Data))
	if !object {
		own = []Member{{Name: ValueProperty, Value: compact(r.Data)}}
	}
	var all []Member
	for _, name := range s.Keys {
		switch name {
		case s.field:
			if err := s.holds(own, object); err != nil {
				return nil, err
			}
		case ParentProperty:
			all = append(all, Member{name, Quote(r.Parent)})
		default:
			all = append(all, Member{name, Quote(r.Key)})
		}
	}
	for _, m := range own {
		taken := m.Name == ParentProperty || m.Name == KeyProperty || m.Name == ValueProperty && object
		if taken && m.Name != s.field {
			return nil, fmt.Errorf("has a field %s, a name that this sink gives away itself: rename it in the records expression", m.Name)
		}
	}
	return append(all, own...), nil
}

// holds checks that the record has its key where the connector says.
func (s *Stream) holds(own []Member, object bool) error {
	const advice = "name another key, or one that is computed"
	if !object {
		return fmt.Errorf("is not an object, so it has no field %q, which is its key: %s", s.field, advice)
	}
	found := 0
	for _, m := range own {
		if m.Name != s.field {
			continue
		}
		if c := m.Value[0]; c != '"' && c != '-' && (c < '0' || c > '9') {
			return fmt.Errorf("has a field %q, its key, that is neither a text nor a number: %s", s.field, advice)
		}
		found++
	}
	if found != 1 {
		return fmt.Errorf("has the field %q, its key, %d times, want once: %s", s.field, found, advice)
	}
	return nil
}

// Members reads an object's members in their order; ok is false for another
// value. The value must be valid JSON.
func Members(value json.RawMessage) (members []Member, ok bool) {
	if len(value) == 0 || value[0] != '{' {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(value))
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	for d.More() {
		name, err := d.Token()
		text, isText := name.(string)
		var v json.RawMessage
		if err != nil || !isText || d.Decode(&v) != nil {
			return nil, false
		}
		members = append(members, Member{text, v})
	}
	return members, true
}

// AppendObject appends the object that has the members.
func AppendObject(b []byte, members []Member) []byte {
	b = append(b, '{')
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, Quote(m.Name)...), ':'), m.Value...)
	}
	return append(b, '}')
}

// Quote is a text as a JSON value.
func Quote(text string) json.RawMessage {
	b, err := Marshal(text)
	if err != nil {
		panic("pipe: a text is always a JSON value: " + err.Error())
	}
	return b
}

// Marshal is json.Marshal without its escapes for HTML.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// compact takes the white space out of a valid value that has line breaks or
// begins with a space.
func compact(v json.RawMessage) json.RawMessage {
	if !bytes.ContainsAny(v, "\r\n") && v[0] > ' ' {
		return v
	}
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return v
	}
	return b.Bytes()
}

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

// Message adds a message as JSON.
func (w *Writer) Message(m any) error {
	line, err := Marshal(m)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return w.Line(line)
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
