// Package pipe is shared by the sinks that pass records to another program as lines of
// JSON. A [Writer] writes whole messages only, and a [Stream] converts records to objects
// that contain their key.
//
// Nothing here is safe for concurrent use or reads a clock.
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

// The properties that are added to records, so that each contains its key.
const (
	// ParentProperty is the key of the item to which a detail belongs.
	ParentProperty = "_headway_parent"
	// KeyProperty is the key of a record, if no field holds it.
	KeyProperty = "_headway_key"
	// ValueProperty holds a record that is not an object.
	ValueProperty = "_headway_value"
)

// Stream describes the keys of a stream's records. Create one with [NewStream].
type Stream struct {
	Name string
	// Keys are the properties that together identify a record.
	Keys []string

	field string // the field that holds the key; empty if there is none
}

// Member is a name and a value of an object.
type Member struct {
	Name string
	// Value is one JSON value, without line breaks.
	Value json.RawMessage
}

// NewStream returns the description of a stream. Its keys are the field that holds the
// key, or [KeyProperty], preceded by [ParentProperty] for details.
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

// Streams returns the descriptions of streams by name.
func Streams(infos []collect.StreamInfo) map[string]*Stream {
	all := make(map[string]*Stream, len(infos))
	for _, info := range infos {
		all[info.Name] = NewStream(info)
	}
	return all
}

// Records converts each record to the members of an object that contains its key. It
// returns an error if any record cannot be converted.
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
			return nil, fmt.Errorf("has a field %s, a name that this sink uses itself: rename it in the records expression", m.Name)
		}
	}
	return append(all, own...), nil
}

// holds checks that the record has its key in the field that the connector names.
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

// Members returns an object's members in order; ok is false if the value, which must be
// valid JSON, is not an object.
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

// AppendObject appends an object with the given members.
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

// Quote returns a text as a JSON string.
func Quote(text string) json.RawMessage {
	b, err := Marshal(text)
	if err != nil {
		panic("pipe: a text is always a JSON value: " + err.Error())
	}
	return b
}

// Marshal is like json.Marshal without HTML escapes.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// compact removes the white space of a valid value that has line breaks or begins with
// white space.
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

// bufferSize is the number of buffered bytes at which messages are written.
const bufferSize = 64 << 10

// Writer writes whole messages, one per line. After an error it writes nothing more.
// Create one with [NewWriter].
type Writer struct {
	name   string
	w      io.Writer
	sync   func() error // nil when w is not a file
	buffer []byte
	broken error
}

// NewWriter returns a writer for w. name is the sink's name, for errors. If w is a regular
// file, Flush syncs it.
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

// Flush writes all buffered messages.
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

// Discard drops all buffered messages.
func (w *Writer) Discard() { w.buffer = w.buffer[:0] }

func (w *Writer) write() error {
	if len(w.buffer) == 0 {
		return nil
	}
	_, err := w.w.Write(w.buffer)
	w.Discard()
	if cap(w.buffer) > 16*bufferSize {
		w.buffer = nil // release the memory of one huge record
	}
	if err != nil {
		return w.fail("write", err)
	}
	return nil
}

// fail records the first error, after which nothing more is written: the output may end in
// half a message.
func (w *Writer) fail(what string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe), errors.Is(err, os.ErrClosed):
		advice = ": the program that reads it has ended: see its own log for the cause, then run again; what was committed is kept"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		advice = ": no space is left: free some, then run again; what was committed is kept"
	}
	w.broken = fmt.Errorf("%s: %s the output%s: %w", w.name, what, advice, err)
	return w.broken
}

func (w *Writer) again() error {
	return fmt.Errorf("%s: nothing is written after an earlier error: %w", w.name, w.broken)
}
