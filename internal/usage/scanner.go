package usage

import (
	"bytes"
	"math"
	"mime"
	"strconv"
	"strings"

	"github.com/headway-go/headway/quota"
)

// framing is how a body is cut into values.
type framing uint8

const (
	unknownFraming framing = iota // the first byte decides
	wholeJSON                     // one value, or an array of them
	eventStream
	noFraming // nothing that is understood
)

// Scanner follows one response body as it passes, and reports what it said of
// usage. It is an [io.Writer] that never fails and keeps no more than a few
// hundred bytes, however large the body is or its JSON nests. It is for one
// goroutine.
type Scanner struct {
	shape    Shape
	framing  framing
	walker   walker
	lines    lines
	event    event
	figures  [figureKinds]int64
	seen     [figureKinds]bool
	weight   int64 // of the text that passed, in hundredths of a token
	pieces   int64 // of text that passed
	counted  int64 // output tokens that the provider named so far
	finish   bool  // an alternative gave its reason to finish
	reported bool
	ended    bool
	problem  gravity
}

// event is what the value under way said.
type event struct {
	usage, choice, failed bool
	kind                  eventKind
	named                 gravity
}

// NewScanner makes a scanner for a body of the shape and content type. A body of
// another type than JSON, an event stream or none is not looked at.
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

// Write takes the next bytes of the body; it gives len(p), nil.
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

// Report gives what the body said so far.
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

// figure takes one of the provider's figures; a later one replaces it.
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

// passed weighs generated text: 3.8 bytes are a token, or 2.5 of other scripts
// than ours. First says that it begins another piece, which is at least a token.
func (s *Scanner) passed(plain, wide int, first bool) {
	if s.event.kind == soundEvent {
		return
	}
	if first {
		s.pieces++
	}
	s.weight += int64(plain)*26 + int64(wide)*40
}

// closed is called when the body's value ended, or an element of the array that it
// is: one event. Whole says that it is the former.
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

// finished is the body's own end. What figures there are are final, unless an
// error came instead of the rest.
func (s *Scanner) finished() {
	s.ended = true
	s.reported = s.reported || (s.problem == noGravity && (s.seen[inputTokens] || s.seen[totalTokens]))
}
