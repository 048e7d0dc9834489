package usage

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"

	"github.com/headway-go/headway/internal/rawjson"
)

const (
	// MaxEvent is the longest event, in bytes, that a [Stripper] parses. The chunk with
	// usage has a few hundred bytes, but one with an image may have many MiB.
	MaxEvent = 16 << 20
	// keptEvent is the maximum memory that is kept between events.
	keptEvent = 64 << 10
)

// Stripper removes from an OpenAI chat event stream what [Inject] made the provider add:
// the chunk that has usage and no choices, and the member "usage": null of the other
// chunks. All else is written unchanged, each event as soon as it is complete; an event
// longer than [MaxEvent] is not changed. Not safe for concurrent use.
type Stripper struct {
	w       io.Writer
	held    []byte // the current event
	started bool   // a byte of the current line was read
	cr      bool   // the last byte was \r: a \n belongs to it
	passing bool   // the current event is too long
	dropped bool   // the last event was removed
	begun   bool   // the first event has ended
	members []member
	parts   []part
	left    []byte
}

// part is the position of a line's data in an event.
type part struct{ from, to int }

// NewStripper returns a stripper that writes to w.
func NewStripper(w io.Writer) *Stripper { return &Stripper{w: w} }

// Write reads the next bytes of the stream and writes the events that are complete. It
// returns len(p), or 0 and the error of the underlying writer.
func (s *Stripper) Write(p []byte) (int, error) {
	size := len(p)
	if s.cr && len(s.held) == 0 && !s.passing && size > 0 && p[0] == '\n' {
		// The rest of the line end that ended the last event.
		s.cr = false
		if !s.dropped {
			if _, err := s.w.Write(p[:1]); err != nil {
				return 0, err
			}
		}
		p = p[1:]
	}
	for len(p) > 0 {
		n, whole := s.past(p)
		if err := s.take(p[:n], whole); err != nil {
			return 0, err
		}
		p = p[n:]
	}
	return size, nil
}

// Close writes what is held back: an event truncated by the end of the stream.
func (s *Stripper) Close() error { return s.take(nil, true) }

// past returns how many bytes of p belong to the current event, and whether that completes
// it.
func (s *Stripper) past(p []byte) (n int, whole bool) {
	for n < len(p) {
		c := p[n]
		switch {
		case c == '\n' && s.cr:
			s.cr = false
			n++
		case c == '\n' || c == '\r':
			s.cr = c == '\r'
			n++
			if !s.started {
				if s.cr && n < len(p) && p[n] == '\n' {
					s.cr = false
					n++
				}
				return n, true
			}
			s.started = false
		default:
			s.cr, s.started = false, true
			line := p[n:]
			if end := bytes.IndexByte(line, '\n'); end >= 0 {
				line = line[:end]
			}
			if end := bytes.IndexByte(line, '\r'); end >= 0 {
				line = line[:end]
			}
			n += len(line)
		}
	}
	return n, false
}

// take adds a part of an event, and writes the event if it is complete.
func (s *Stripper) take(p []byte, whole bool) error {
	if !s.passing && len(s.held)+len(p) > MaxEvent {
		s.passing = true
		if err := s.write(s.held); err != nil {
			return err
		}
		s.held = nil
	}
	switch {
	case s.passing:
		s.passing, s.dropped = !whole, false
		return s.write(p)
	case !whole:
		s.held = append(s.held, p...)
		return nil
	case len(s.held) > 0:
		s.held = append(s.held, p...)
		p = s.held
		if s.held = s.held[:0]; cap(s.held) > keptEvent {
			s.held = nil
		}
	}
	s.started = false
	left := s.strip(p)
	s.dropped = len(left) == 0
	return s.write(left)
}

func (s *Stripper) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := s.w.Write(p)
	return err
}

var (
	usageName     = []byte(`"usage"`)
	escapedLetter = []byte(`\u00`)         // the name may be written with it
	byteOrderMark = []byte("\xEF\xBB\xBF") // may begin a stream, and is not part of its first line
)

// strip returns an event without the added usage; nearly always that is the event itself.
func (s *Stripper) strip(event []byte) []byte {
	first := !s.begun
	s.begun = true
	if !bytes.Contains(event, usageName) && !bytes.Contains(event, escapedLetter) {
		return event
	}
	s.find(event, first)
	if len(s.parts) == 0 {
		return event
	}
	text := event[s.parts[0].from:s.parts[0].to]
	if len(s.parts) > 1 {
		text = s.join(event)
	}
	o := object{members: s.members[:0]}
	ok := o.parse(text, 0)
	s.members = o.members
	if !ok || rawjson.Space(text, o.close+1) != len(text) {
		return event
	}
	usage := o.last("usage")
	switch {
	case usage < 0:
		return event
	case string(o.valueOf(usage)) == "null":
		return s.without(event, o.around(usage))
	case o.valueOf(usage)[0] == '{' && choiceless(&o):
		return nil
	}
	return event
}

// choiceless reports whether a chunk has no choices. OpenAI sends an empty array,
// some compatible servers null, or a chunk that does not have the member.
func choiceless(o *object) bool {
	at := o.last("choices")
	if at < 0 {
		at = o.last("object")
		return at >= 0 && string(o.valueOf(at)) == `"chat.completion.chunk"`
	}
	value := o.valueOf(at)
	return string(value) == "null" || (value[0] == '[' && value[rawjson.Space(value, 1)] == ']')
}

// find finds the data of an event.
func (s *Stripper) find(event []byte, first bool) {
	s.parts = s.parts[:0]
	at := 0
	if first && bytes.HasPrefix(event, byteOrderMark) {
		at = len(byteOrderMark)
	}
	for at < len(event) {
		end := at + bytes.IndexAny(event[at:], "\r\n")
		if end < at {
			end = len(event)
		}
		if data, ok := bytes.CutPrefix(event[at:end], []byte("data:")); ok {
			if len(data) > 0 && data[0] == ' ' {
				data = data[1:]
			}
			s.parts = append(s.parts, part{end - len(data), end})
		}
		at = end + 1
	}
}

// join returns the data of several lines as one.
func (s *Stripper) join(event []byte) []byte {
	var text []byte
	for i, p := range s.parts {
		if i > 0 {
			text = append(text, '\n')
		}
		text = append(text, event[p.from:p.to]...)
	}
	return text
}

// without returns an event without a part of its data, given by positions in the joined
// text. Line breaks are kept. The result is valid until the next call.
func (s *Stripper) without(event []byte, cut part) []byte {
	left, at, base := s.left[:0], 0, 0
	for _, p := range s.parts {
		length := p.to - p.from
		from, to := min(max(cut.from-base, 0), length), min(max(cut.to-base, 0), length)
		left = append(left, event[at:p.from+from]...)
		at = p.from + to
		base += length + 1
	}
	left = append(left, event[at:]...)
	if s.left = left; cap(left) > keptEvent {
		s.left = nil
	}
	return left
}

// Inject sets stream_options.include_usage in the body of a request to OpenAI chat. All
// other bytes stay as they are: order, numbers, white space, duplicate members. changed
// is false, and out is body, if the client asked for usage itself, if the call is not a
// stream, if body is not a JSON object, or if the member that would be set is not JSON.
func Inject(body []byte) (out []byte, changed bool) {
	var o, options object
	if !o.parse(body, 0) || rawjson.Space(body, o.close+1) != len(body) {
		return body, false
	}
	stream := o.last("stream")
	if stream < 0 || string(o.valueOf(stream)) != "true" {
		return body, false
	}
	at := o.last("stream_options")
	if at < 0 {
		return insert(body, o.open+1, o.open+1, `"stream_options":{"include_usage":true},`), true
	}
	m := o.members[at]
	if string(o.valueOf(at)) == "null" {
		return insert(body, m.value, m.valueEnd, `{"include_usage":true}`), true
	}
	if !options.parse(body[:m.valueEnd], m.value) {
		return body, false
	}
	switch asked := options.last("include_usage"); {
	case asked < 0 && len(options.members) == 0:
		return insert(body, options.open+1, options.open+1, `"include_usage":true`), true
	case asked < 0:
		return insert(body, options.open+1, options.open+1, `"include_usage":true,`), true
	case string(options.valueOf(asked)) == "true", !json.Valid(options.valueOf(asked)):
		return body, false
	default:
		m := options.members[asked]
		return insert(body, m.value, m.valueEnd, "true"), true
	}
}

// insert replaces text[from:to] in a copy.
func insert(text []byte, from, to int, by string) []byte {
	return slices.Concat(text[:from], []byte(by), text[to:])
}

// member is a member of an object: its name, and the positions of its key and its value.
type member struct {
	name                 []byte
	key, value, valueEnd int
}

// object is the text of an object: its members and the positions of its brackets.
type object struct {
	text        []byte
	open, close int
	members     []member
}

// parse finds the members of the object that begins at text[at], after white space. In the
// members' values it checks only that brackets balance.
func (o *object) parse(text []byte, at int) (ok bool) {
	o.text, o.open = text, rawjson.Space(text, at)
	if rawjson.At(text, o.open) != '{' {
		return false
	}
	before := o.open + 1
	end := rawjson.Each(text, o.open, func(name []byte, value int) int {
		m := member{name: name, key: rawjson.Space(text, before), value: value, valueEnd: rawjson.Skip(text, value)}
		if text[m.key] == ',' {
			m.key = rawjson.Space(text, m.key+1)
		}
		o.members = append(o.members, m)
		before = m.valueEnd
		return m.valueEnd
	})
	o.close = end - 1
	return end > 0
}

// last returns the index of the last member with a name, which is the one that counts; -1
// if there is none.
func (o *object) last(name string) int {
	for i := range slices.Backward(o.members) {
		if string(o.members[i].name) == name {
			return i
		}
	}
	return -1
}

func (o *object) valueOf(i int) []byte { return o.text[o.members[i].value:o.members[i].valueEnd] }

// around returns the part to cut out to remove a member: the member and one comma.
func (o *object) around(i int) part {
	m := o.members[i]
	switch {
	case i+1 < len(o.members):
		return part{m.key, o.members[i+1].key}
	case i > 0:
		return part{o.members[i-1].valueEnd, m.valueEnd}
	}
	return part{m.key, m.valueEnd}
}
