package usage

import "bytes"

// field is what a line of an event stream has.
type field uint8

const (
	fieldName  field = iota // not known yet
	fieldData               // data, after the colon
	fieldOther              // a comment, or a field that does not matter
	fieldBare               // JSON without a field, as errors of Gemini come
)

// lines follows an event stream, split anywhere, and feeds the data of each
// event to a walker. Lines end in \n, \r\n or \r; an empty one ends an event.
type lines struct {
	field field
	name  [6]byte // the line's first bytes, while fieldName
	named int
	space bool    // a space after the colon is not data
	cr    bool    // the last byte was \r: a \n belongs to it
	bare  bool    // this event is bare
	lines int     // of data in this event
	head  [6]byte // the first bytes of the event's data
	heads int
}

var dataName = []byte("data:")

// feed takes the next part of the stream.
func (l *lines) feed(p []byte, s *Scanner) {
	for i := 0; i < len(p); {
		c := p[i]
		if l.cr && c == '\n' {
			l.cr = false
			i++
			continue
		}
		l.cr = false
		if c == '\n' || c == '\r' {
			l.cr = c == '\r'
			l.endLine(s)
			i++
			continue
		}
		if l.field == fieldName && l.named == 0 && c == 'd' && !l.bare && bytes.HasPrefix(p[i:], dataName) {
			l.startData(s)
			i += len(dataName)
			continue
		}
		if l.field == fieldName {
			l.begin(c, s)
			i++
			continue
		}
		n := len(p) - i
		if end := bytes.IndexByte(p[i:], '\n'); end >= 0 {
			n = end
		}
		if end := bytes.IndexByte(p[i:i+n], '\r'); end >= 0 {
			n = end
		}
		if l.field != fieldOther {
			l.data(p[i:i+n], s)
		}
		i += n
	}
}

// begin takes a byte before the line's colon.
func (l *lines) begin(c byte, s *Scanner) {
	if l.named == 0 && (l.bare || (l.lines == 0 && (c == '{' || c == '['))) {
		l.bare, l.field = true, fieldBare
		l.data([]byte{c}, s)
		return
	}
	if c == ':' {
		l.field = fieldOther
		if string(l.name[:l.named]) == "data" {
			l.startData(s)
		}
		return
	}
	if l.named == 0 && (c == 0xEF || c == 0xBB || c == 0xBF) { // a byte order mark
		return
	}
	if l.named == len(l.name) {
		l.field = fieldOther
		return
	}
	l.name[l.named] = c
	l.named++
}

// startData begins a line of data.
func (l *lines) startData(s *Scanner) {
	l.field, l.space = fieldData, true
	if l.lines > 0 {
		s.walker.feed([]byte{'\n'})
	}
	l.lines++
}

// data takes a part of a line of data.
func (l *lines) data(p []byte, s *Scanner) {
	if l.field == fieldData && l.space && p[0] == ' ' {
		p = p[1:]
	}
	l.space = false
	if l.heads < len(l.head) {
		l.heads += copy(l.head[l.heads:], p)
	}
	s.walker.feed(p)
}

// endLine ends a line, and with an empty one the event.
func (l *lines) endLine(s *Scanner) {
	if l.field == fieldBare {
		s.walker.feed([]byte{'\n'})
	}
	if l.field == fieldName && l.named == 0 {
		if string(l.head[:l.heads]) == "[DONE]" {
			s.finished()
		}
		l.lines, l.heads, l.bare = 0, 0, false
		s.walker.reset()
		s.event = event{}
		return
	}
	l.field, l.named = fieldName, 0
}
