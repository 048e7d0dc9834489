package provider

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// This JSON reader finds members in place. It is tolerant: it checks that strings end and
// brackets balance, and leaves the rest to the upstream. Positions are offsets into the
// body; -1 means that the body ends before the value does, or has no value.

// space returns the position of the next byte that is not white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// at returns the byte at a position, 0 after the end.
func at(b []byte, i int) byte {
	if uint(i) < uint(len(b)) {
		return b[i]
	}
	return 0
}

// quoted returns the position after the string that begins at i.
func quoted(b []byte, i int) int {
	for j := i + 1; ; {
		n := bytes.IndexByte(b[j:], '"')
		if n < 0 {
			return -1
		}
		j += n + 1
		slashes := 0
		for k := j - 2; k > i && b[k] == '\\'; k-- {
			slashes++
		}
		if slashes%2 == 0 {
			return j
		}
	}
}

// skip returns the position after the value that begins at i.
func skip(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch c := b[i]; c {
		case '"':
			if i = quoted(b, i); i < 0 {
				return -1
			}
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return -1
			}
			i++
		case ' ', '\n', '\t', '\r', ',', ':':
			if depth == 0 {
				return -1 // no value
			}
			i++
			continue
		default:
			n := bare(b, i)
			if n == i {
				return -1
			}
			i = n
		}
		if depth == 0 {
			return i
		}
	}
	return -1
}

// bare returns the position after a number or a word such as true; i if there is none.
func bare(b []byte, i int) int {
	for i < len(b) {
		switch c := b[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c == '-', c == '+', c == '.', c == 'E':
			i++
		default:
			return i
		}
	}
	return i
}

// each calls member for each member of an object, or item for each element of an array,
// with the position of its value. It continues at the position that they return. It returns
// the position after the closing bracket, or the first negative position that they return.
func each(b []byte, i int, member func(key []byte, i int) int) int {
	object, end := b[i] == '{', b[i]+2 // '{'+2 is '}', '['+2 is ']'
	i = space(b, i+1)
	if at(b, i) == end {
		return i + 1
	}
	for {
		var key []byte
		if object {
			if at(b, i) != '"' {
				return -1
			}
			from := i
			if i = quoted(b, i); i < 0 {
				return -1
			}
			key = plain(b[from+1 : i-1])
			if i = space(b, i); at(b, i) != ':' {
				return -1
			}
			i = space(b, i+1)
		}
		if i >= len(b) {
			return -1
		}
		if i = member(key, i); i < 0 {
			return i
		}
		switch i = space(b, i); at(b, i) {
		case ',':
			i = space(b, i+1)
		case end:
			return i + 1
		default:
			return -1
		}
	}
}

// plain returns the text of a string without its quotes. It returns the same bytes if
// nothing is escaped.
func plain(s []byte) []byte {
	i := bytes.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for {
		out = append(out, s[:i]...)
		s = s[i+1:]
		if len(s) == 0 {
			return out
		}
		switch c := s[0]; c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'u':
			r, n := unit(s)
			if utf16.IsSurrogate(r) && len(s) > n+1 && s[n] == '\\' && s[n+1] == 'u' {
				low, m := unit(s[n+1:])
				if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
					r, n = both, n+1+m
				}
			}
			out, s = utf8.AppendRune(out, r), s[n-1:]
		default:
			out = append(out, c)
		}
		s = s[1:]
		if i = bytes.IndexByte(s, '\\'); i < 0 {
			return append(out, s...)
		}
	}
}

// unit reads u and four digits, and returns the number of bytes read.
func unit(s []byte) (r rune, n int) {
	if len(s) < 5 {
		return utf8.RuneError, 1
	}
	v, err := strconv.ParseUint(string(s[1:5]), 16, 16)
	if err != nil {
		return utf8.RuneError, 1
	}
	return rune(v), 5
}

// maxDigits is more digits than any useful number has.
const maxDigits = 32

// number parses a count of tokens, from 0 to limit; 0 for anything else.
func number(b []byte, limit int64) int64 {
	if len(b) > maxDigits {
		return 0
	}
	if v, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		return min(max(v, 0), limit)
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !(v > 0) {
		return 0
	}
	return int64(min(v, float64(limit)))
}

// maxDepth is deeper than any message. Deeper values count as raw JSON.
const maxDepth = 24

// walk visits what a model reads. It passes the texts to say or, if say is nil, adds up
// what is not text.
type walk struct {
	body []byte
	say  func(string) bool
	flat int64
}

// value visits one value and returns the position after it; -1 at the end of the body, or
// when say returns false.
func (w *walk) value(i, depth int) int {
	switch at(w.body, i) {
	case '"':
		return w.text(i)
	case '{':
		if depth == maxDepth {
			return w.raw(i)
		}
		return w.object(i, depth)
	case '[':
		if depth == maxDepth {
			return w.raw(i)
		}
		return each(w.body, i, func(_ []byte, i int) int {
			// Embeddings and legacy prompts may be tokens.
			if c := at(w.body, i); c >= '0' && c <= '9' {
				w.flat++
			}
			return w.value(i, depth+1)
		})
	default:
		return skip(w.body, i)
	}
}

// text visits a string.
func (w *walk) text(i int) int {
	end := quoted(w.body, i)
	if end < 0 || end == i+2 {
		return end
	}
	inside := w.body[i+1 : end-1]
	if flat, ok := dataURL(inside); ok {
		w.flat += flat
	} else if w.say != nil && !w.say(string(plain(inside))) {
		return -1
	}
	return end
}

// raw visits a value as raw JSON, such as the arguments of tools, whose names are read too.
func (w *walk) raw(i int) int {
	if at(w.body, i) == '"' {
		return w.text(i)
	}
	end := skip(w.body, i)
	if end > 0 && w.say != nil && !w.say(string(w.body[i:end])) {
		return -1
	}
	return end
}

// object visits a message, or a part of one.
func (w *walk) object(i, depth int) int {
	var (
		kind         []byte // its type
		image, file  bool
		detail       []byte
		foreign      int // where Anthropic's source of an image or document begins
		flat         int64
		countedMedia bool
	)
	end := each(w.body, i, func(key []byte, i int) int {
		switch string(key) {
		case "type":
			kind = w.peek(i)
		case "detail":
			detail = w.peek(i)
		case "role", "id", "call_id", "tool_call_id", "tool_use_id", "file_uri", "status", "metadata", "model", "cache_control",
			"mime_type", "mimeType", "media_type", "data", "signature", "thought_signature", "thoughtSignature",
			"encrypted_content", "annotations", "logprobs", "task_type", "taskType":
			// The model does not read it, or not as text.
		case "image_url":
			image = true
			if at(w.body, i) == '{' {
				return each(w.body, i, func(key []byte, i int) int {
					if string(key) == "detail" {
						detail = w.peek(i)
					}
					return skip(w.body, i)
				})
			}
		case "result":
			// An image that was generated before. Other results are text.
			if at(w.body, i) != '"' || string(kind) != "image_generation_call" {
				return w.value(i, depth+1)
			}
			image = true
		case "input_audio", "audio":
			flat, countedMedia = flat+soundOpenAI, true
		case "file", "file_id", "file_url":
			file = true
		case "inlineData", "inline_data", "fileData", "file_data":
			if at(w.body, i) == '"' {
				file = true
				break
			}
			flat, countedMedia = flat+flatGemini(w.mime(i)), true
		case "source":
			if at(w.body, i) != '{' {
				return w.value(i, depth+1)
			}
			foreign = i
		case "input", "args", "arguments", "response", "parameters", "schema", "input_schema":
			return w.raw(i)
		default:
			return w.value(i, depth+1)
		}
		return skip(w.body, i)
	})
	if end < 0 {
		return end
	}
	switch {
	case foreign > 0:
		return w.source(foreign, end, string(kind) == "image", depth)
	case image || string(kind) == "input_image":
		w.flat += imageOpenAI(string(detail))
	case file && !countedMedia:
		w.flat += fileOpenAI
	}
	w.flat += flat
	return end
}

func imageOpenAI(detail string) int64 {
	switch detail {
	case "low":
		return imageLow
	case "high":
		return imageHigh
	default:
		return imageAuto
	}
}

// source visits Anthropic's source of an image or document, which may be text, and returns
// end.
func (w *walk) source(i, end int, image bool, depth int) int {
	var kind []byte
	words := 0
	each(w.body, i, func(key []byte, i int) int {
		switch string(key) {
		case "type":
			kind = w.peek(i)
		case "data", "content":
			words = i
		}
		return skip(w.body, i)
	})
	switch string(kind) {
	case "text", "content":
		if words > 0 && w.value(words, depth+1) < 0 {
			return -1
		}
	default:
		if image {
			w.flat += imageAnthropic
		} else {
			w.flat += fileAnthropic
		}
	}
	return end
}

// peek returns the string at a position; nil if there is none.
func (w *walk) peek(i int) []byte {
	if at(w.body, i) != '"' {
		return nil
	}
	end := quoted(w.body, i)
	if end < 0 {
		return nil
	}
	return plain(w.body[i+1 : end-1])
}

// mime returns the media type in an object of Google's API.
func (w *walk) mime(i int) (kind []byte) {
	if at(w.body, i) != '{' {
		return nil
	}
	each(w.body, i, func(key []byte, i int) int {
		if k := string(key); k == "mimeType" || k == "mime_type" {
			kind = w.peek(i)
		}
		return skip(w.body, i)
	})
	return kind
}
