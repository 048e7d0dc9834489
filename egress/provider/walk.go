package provider

// maxDepth is deeper than any message. What lies below counts as it stands.
const maxDepth = 24

// walk goes through what a model reads. It gives the texts to say, or, without
// it, adds up what is not text.
type walk struct {
	body []byte
	say  func(string) bool
	flat int64
}

// value takes one value and returns the position after it, or -1 at the end of
// the body or when nobody wants more.
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
			// Embeddings and legacy prompts may be given as tokens already.
			if c := at(w.body, i); c >= '0' && c <= '9' {
				w.flat++
			}
			return w.value(i, depth+1)
		})
	default:
		return skip(w.body, i)
	}
}

// text takes a string.
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

// raw takes a value as it stands: arguments of tools, for example, whose names are
// read too.
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

// object takes one message, or one part of one.
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
			// Not for the model to read, or not as text.
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
			// An image that was generated before; other results are words.
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

// source takes Anthropic's source of an image or document, which may be text
// after all, and returns end.
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

// peek is the string at a position; nil when there is none.
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

// mime is the media type in an object of Google's.
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
