package provider

import (
	"strconv"

	"github.com/headway-go/headway/internal/rawjson"
)

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
	switch rawjson.At(w.body, i) {
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
		return rawjson.Each(w.body, i, func(_ []byte, i int) int {
			// Embeddings and legacy prompts may be tokens.
			if c := rawjson.At(w.body, i); c >= '0' && c <= '9' {
				w.flat++
			}
			return w.value(i, depth+1)
		})
	default:
		return rawjson.Skip(w.body, i)
	}
}

// text visits a string.
func (w *walk) text(i int) int {
	end := rawjson.String(w.body, i)
	if end < 0 || end == i+2 {
		return end
	}
	inside := w.body[i+1 : end-1]
	if flat, ok := dataURL(inside); ok {
		w.flat += flat
	} else if w.say != nil && !w.say(string(rawjson.Unquote(inside))) {
		return -1
	}
	return end
}

// raw visits a value as raw JSON, such as the arguments of tools, whose names are read too.
func (w *walk) raw(i int) int {
	if rawjson.At(w.body, i) == '"' {
		return w.text(i)
	}
	end := rawjson.Skip(w.body, i)
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
	end := rawjson.Each(w.body, i, func(key []byte, i int) int {
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
			if rawjson.At(w.body, i) == '{' {
				return rawjson.Each(w.body, i, func(key []byte, i int) int {
					if string(key) == "detail" {
						detail = w.peek(i)
					}
					return rawjson.Skip(w.body, i)
				})
			}
		case "result":
			// An image that was generated before. Other results are text.
			if rawjson.At(w.body, i) != '"' || string(kind) != "image_generation_call" {
				return w.value(i, depth+1)
			}
			image = true
		case "input_audio", "audio":
			flat, countedMedia = flat+soundOpenAI, true
		case "file", "file_id", "file_url":
			file = true
		case "inlineData", "inline_data", "fileData", "file_data":
			if rawjson.At(w.body, i) == '"' {
				file = true
				break
			}
			flat, countedMedia = flat+flatGemini(w.mime(i)), true
		case "source":
			if rawjson.At(w.body, i) != '{' {
				return w.value(i, depth+1)
			}
			foreign = i
		case "input", "args", "arguments", "response", "parameters", "schema", "input_schema":
			return w.raw(i)
		default:
			return w.value(i, depth+1)
		}
		return rawjson.Skip(w.body, i)
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
	rawjson.Each(w.body, i, func(key []byte, i int) int {
		switch string(key) {
		case "type":
			kind = w.peek(i)
		case "data", "content":
			words = i
		}
		return rawjson.Skip(w.body, i)
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
	if rawjson.At(w.body, i) != '"' {
		return nil
	}
	end := rawjson.String(w.body, i)
	if end < 0 {
		return nil
	}
	return rawjson.Unquote(w.body[i+1 : end-1])
}

// mime returns the media type in an object of Google's API.
func (w *walk) mime(i int) (kind []byte) {
	if rawjson.At(w.body, i) != '{' {
		return nil
	}
	rawjson.Each(w.body, i, func(key []byte, i int) int {
		if k := string(key); k == "mimeType" || k == "mime_type" {
			kind = w.peek(i)
		}
		return rawjson.Skip(w.body, i)
	})
	return kind
}
