// Package usage reads what a call used from the answer of a language model while the
// answer is relayed.
//
// A [Scanner] reads one response body, whole JSON or a stream of events, in the format of
// OpenAI, Anthropic or Gemini. Its [Report] has the provider's figures as [quota.Usage],
// the output tokens so far, whether the end was seen, and the error that some providers
// send inside a stream that began with 200. A truncated body is reported as far as it was
// seen.
//
// OpenAI's chat reports usage in a stream only on request. [Inject] adds that to the
// client's request; a [Stripper] then removes from the stream what was added, so that the
// client gets what it asked for.
//
// # When not to use it
//
// It reads plain bytes: decompress a body first, or do not request compression. Status
// codes, headers and details of error answers are for package signal. It does not
// validate JSON: what it does not understand is ignored.
//
// # Concurrency, time and memory
//
// Scanners and strippers are not safe for concurrent use; the functions are pure. No
// clock is read. A Scanner keeps half a kilobyte whatever its input; it reads some 600
// MB/s of short chunks, and more of long texts. A Stripper holds at most [MaxEvent]
// bytes.
package usage

import (
	"bytes"
	"math"
	"mime"
	"strconv"
	"strings"

	"github.com/headway-go/headway/quota"
)

// framing is the way in which a body is divided into values.
type framing uint8

const (
	unknownFraming framing = iota // the first byte decides
	wholeJSON                     // one value, or an array of them
	eventStream
	noFraming // unknown
)

// Scanner reads one response body as it is relayed, and reports its usage. It is an
// [io.Writer] that never fails and keeps no more than a few hundred bytes, however large
// or deeply nested the body is. Not safe for concurrent use.
type Scanner struct {
	shape    Shape
	framing  framing
	walker   walker
	lines    lines
	event    event
	figures  [figureKinds]int64
	seen     [figureKinds]bool
	weight   int64 // of the text so far, in hundredths of a token
	pieces   int64 // of text so far
	counted  int64 // output tokens that the provider reported so far
	finish   bool  // an alternative has a finish reason
	reported bool
	ended    bool
	problem  gravity
}

// event is what was found in the current value.
type event struct {
	usage, choice, failed bool
	kind                  eventKind
	named                 gravity
}

// NewScanner returns a scanner for a body of the shape and content type. A body is read if
// its type is JSON, an event stream, text or empty, and ignored otherwise.
func NewScanner(shape Shape, contentType string) *Scanner {
	s := &Scanner{shape: shape, framing: framingOf(contentType)}
	if int(shape) >= len(grammars) || grammars[shape] == nil {
		s.framing = noFraming
		return s
	}
	s.walker.root, s.walker.scanner = grammars[shape], s
	s.walker.reset()
	return s
}

func framingOf(contentType string) framing {
	kind := contentType
	if kind != "application/json" && kind != "text/event-stream" {
		kind, _, _ = mime.ParseMediaType(contentType)
	}
	switch {
	case kind == "text/event-stream":
		return eventStream
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		return wholeJSON
	case kind == "" || strings.HasPrefix(kind, "text/"):
		return unknownFraming
	}
	return noFraming
}

// Write reads the next bytes of the body. It always returns len(p), nil.
func (s *Scanner) Write(p []byte) (int, error) {
	switch s.framing {
	case unknownFraming:
		first := bytes.TrimLeft(p, " \t\r\n")
		if len(first) == 0 {
			break
		}
		s.framing = eventStream
		if first[0] == '{' || first[0] == '[' {
			s.framing = wholeJSON
		}
		return s.Write(p)
	case wholeJSON:
		s.walker.feed(p)
	case eventStream:
		s.lines.feed(p, s)
	case noFraming:
	}
	return len(p), nil
}

// Report returns what was found in the body so far.
func (s *Scanner) Report() Report {
	r := Report{
		Reported: s.reported, Ended: s.ended, Problem: s.problem.String(),
		Flowed: min(max(s.pieces, (s.weight+99)/100, s.counted), quota.MaxTokens),
	}
	f := &s.figures
	input := f[inputTokens] + f[createdTokens] + f[readTokens] + f[toolTokens]
	output := f[outputTokens] + f[thoughtTokens]
	if !s.seen[inputTokens] && s.seen[totalTokens] {
		input = max(input, f[totalTokens]-output)
	}
	if !s.reported {
		output = max(output, r.Flowed)
	}
	r.Usage.Input = min(input, quota.MaxTokens)
	r.Usage.Output = min(output, quota.MaxTokens)
	r.Usage.Cached = min(f[cachedTokens]+f[readTokens], r.Usage.Input)
	r.Usage.Reasoning = min(f[thoughtTokens]+f[reasonTokens], r.Usage.Output)
	return r
}

// object is called for an object at a leaf.
func (s *Scanner) object(l leaf) {
	s.event.choice = s.event.choice || l == choice
	s.event.failed = s.event.failed || l == failure
}

// word is called for a leaf that is a short string, a number, true or false.
func (s *Scanner) word(l leaf, word []byte) {
	switch l {
	case finish:
		s.finish = s.finish || len(word) > 0
	case kind:
		s.event.kind = kindOf(word)
	case failure:
		s.event.failed = s.event.failed || (len(word) > 0 && string(word) != "false")
		s.event.named = max(s.event.named, gravityOf(word))
	case code:
		s.event.named = max(s.event.named, gravityOf(word))
	default:
		if l < figureKinds {
			s.figure(l, word)
		}
	}
}

// figure sets one of the provider's figures; a later one replaces it.
func (s *Scanner) figure(l leaf, word []byte) {
	if len(word) == 0 || word[0] < '0' || word[0] > '9' {
		return
	}
	n, err := strconv.ParseFloat(string(word), 64)
	if err != nil && !math.IsInf(n, 1) {
		return
	}
	s.figures[l], s.seen[l] = int64(min(n, quota.MaxTokens)), true
	s.event.usage = true
	s.counted = max(s.counted, s.figures[outputTokens]+s.figures[thoughtTokens])
}

// passed estimates the tokens of generated text: 3.8 bytes a token, or 2.5 for scripts
// other than ASCII. first reports that it begins a new piece, which is at least one token.
func (s *Scanner) passed(plain, wide int, first bool) {
	if s.event.kind == soundEvent {
		return
	}
	if first {
		s.pieces++
	}
	s.weight += int64(plain)*26 + int64(wide)*40
}

// closed is called at the end of the body's value, or of an element of its array, which is
// one event. whole reports that it is the former.
func (s *Scanner) closed(whole bool) {
	e := s.event
	s.event = event{}
	if e.failed || e.kind == errorEvent {
		s.problem = max(s.problem, otherGravity, e.named)
	}
	switch s.shape {
	case OpenAIChat, OpenAIEmbeddings:
		s.reported = s.reported || (e.usage && (s.finish || !e.choice))
	case OpenAIResponses:
		s.reported = s.reported || (e.usage && e.kind == lastEvent)
		s.ended = s.ended || e.kind == lastEvent
	case Anthropic:
		s.reported = s.reported || (e.usage && e.kind == deltaEvent)
		s.ended = s.ended || e.kind == lastEvent
	case Gemini:
		s.reported = s.reported || (s.seen[inputTokens] && s.finish)
		s.ended = s.ended || s.finish
	case None:
	}
	if whole && s.framing == wholeJSON {
		s.finished()
	}
}

// finished is called at the body's own end. Its figures are final unless an error replaced
// the rest.
func (s *Scanner) finished() {
	s.ended = true
	s.reported = s.reported || (s.problem == noGravity && (s.seen[inputTokens] || s.seen[totalTokens]))
}

// field is the field of a line of an event stream.
type field uint8

const (
	fieldName  field = iota // not known yet
	fieldData               // data, after the colon
	fieldOther              // a comment, or a field that is ignored
	fieldBare               // JSON without a field, as in errors of Gemini
)

// lines follows an event stream, in parts of any size, and feeds the data of each event to
// a walker. Lines end in \n, \r\n or \r; an empty line ends an event.
type lines struct {
	field field
	name  [6]byte // the line's first bytes, while fieldName
	named int
	space bool    // a space after the colon is not data
	cr    bool    // the last byte was \r: a \n belongs to it
	bare  bool    // this event is bare
	lines int     // lines of data in this event
	head  [6]byte // the first bytes of the event's data
	heads int
}

var dataName = []byte("data:")

// feed reads the next part of the stream.
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

// begin reads a byte before the line's colon.
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

// data reads a part of a line of data.
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

// endLine ends a line and, if it is empty, the event.
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

// Shape is the API that defines the format of a response.
type Shape uint8

// The shapes.
const (
	// None: the body is ignored.
	None Shape = iota
	// OpenAIChat is chat completions, and legacy completions.
	OpenAIChat
	// OpenAIResponses is the Responses API.
	OpenAIResponses
	// Anthropic is the Messages API.
	Anthropic
	// Gemini is generateContent and streamGenerateContent.
	Gemini
	// OpenAIEmbeddings reports input only.
	OpenAIEmbeddings
)

// String returns the shape's name, such as "openai-chat".
func (s Shape) String() string {
	switch s {
	case None:
		return "none"
	case OpenAIChat:
		return "openai-chat"
	case OpenAIResponses:
		return "openai-responses"
	case Anthropic:
		return "anthropic"
	case Gemini:
		return "gemini"
	case OpenAIEmbeddings:
		return "openai-embeddings"
	}
	return "unknown"
}

// The values of [Report].Problem.
const (
	// NoProblem: no error was seen.
	NoProblem = ""
	// RateLimited: the call went over a limit.
	RateLimited = "rate_limit"
	// Overloaded: the provider is overloaded.
	Overloaded = "overloaded"
	// QuotaSpent: a budget is used up, and no short wait restores it.
	QuotaSpent = "quota"
	// OtherProblem is any other error.
	OtherProblem = "other"
)

// Report is what was found in a body so far.
type Report struct {
	// Usage is the best estimate so far. If Reported, it has the provider's final
	// figures; before that, Output is at least Flowed, and Input is 0 if the provider did
	// not state it yet. It is always a valid [quota.Usage].
	Usage quota.Usage
	// Reported: the provider's final figures were seen.
	Reported bool
	// Flowed is the approximate number of output tokens so far, estimated from the text.
	// It never decreases.
	Flowed int64
	// Ended: the body's own end was seen.
	Ended bool
	// Problem is the most serious error inside the body: [NoProblem], [RateLimited],
	// [Overloaded], [QuotaSpent] or [OtherProblem].
	Problem string
}
