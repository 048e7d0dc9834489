package usage

import (
	"bytes"
	"encoding/json"
)

// place is the position of a [walker] in a value.
type place uint8

const (
	beforeValue place = iota
	beforeKey
	beforeColon
	afterValue
	inKey
	inText     // a string that is a leaf
	inWord     // a number, true, false or null
	inSkipped  // an object or array that is not read
	skipString // a string below inSkipped
	lostString // a string that is not read
)

const (
	// deepest is deeper than any grammar. Deeper values are skipped.
	deepest = 12
	// maxKept is longer than any name, code or number that is read, in bytes: 32 letters,
	// each of them escaped.
	maxKept = 6 * 32
)

// level is one open object or array.
type level struct {
	node   *node
	object bool
}

// walker follows JSON text, in parts of any size, through a grammar. It stores only one
// short name or number, however long or deep the text is. It does not validate what it
// skips, and finds little in text that is not JSON.
type walker struct {
	root    *node
	scanner *Scanner
	stack   [deepest]level
	depth   int
	skipped int   // open brackets in the skipped part
	at      *node // the place of the current value; nil if it is not read
	place   place
	escape  uint8 // in a string: 1 after a backslash, 2 to 5 before digits of \uXXXX
	weigh   bool  // the skipped part is generated text
	fresh   bool  // nothing of the current text has passed yet
	escaped bool
	kept    int
	buffer  [maxKept]byte
}

// reset makes the walker expect a value.
func (w *walker) reset() {
	w.depth, w.place, w.at, w.escape, w.kept, w.skipped = 0, beforeValue, w.root, 0, 0, 0
}

// feed reads the next part of the text.
func (w *walker) feed(p []byte) {
	for i := 0; i < len(p); {
		switch w.place {
		case inKey, inText, skipString, lostString:
			i += w.inString(p[i:])
		case inSkipped:
			i += w.skip(p[i:])
		case inWord:
			i += w.inWord(p[i:])
		case beforeValue, beforeKey, beforeColon, afterValue:
			w.mark(p[i])
			i++
		}
	}
}

// mark reads one byte between values.
func (w *walker) mark(c byte) {
	switch c {
	case ' ', '\t', '\r', '\n':
		return
	case '}', ']':
		if w.place != beforeColon {
			w.close()
		}
		return
	}
	switch w.place {
	case beforeKey:
		if c == '"' {
			w.open(inKey)
		}
	case beforeColon:
		if c == ':' {
			w.place = beforeValue
		}
	case afterValue:
		if c == ',' {
			w.next()
		}
	default:
		w.value(c)
	}
}

// open begins a string or word.
func (w *walker) open(p place) { w.place, w.kept, w.escape, w.escaped = p, 0, 0, false }

// value begins a value at its first byte.
func (w *walker) value(c byte) {
	switch {
	case c == '"' && w.at != nil && w.at.leaf != nothing:
		w.open(inText)
		w.fresh = true
	case c == '"':
		w.open(lostString)
	case c == '{' || c == '[':
		w.enter(c == '{')
	case c == ',': // after a colon or a comma: invalid JSON
		w.next()
	default:
		w.open(inWord)
		w.keep(c)
	}
}

// enter opens an object or array.
func (w *walker) enter(object bool) {
	n := w.at
	if n != nil && object {
		w.scanner.object(n.leaf)
	}
	w.weigh = n != nil && n.leaf == arguments
	if n == nil || w.weigh || w.depth == deepest || (object && len(n.kids) == 0) {
		w.place, w.skipped, w.fresh = inSkipped, 1, true
		return
	}
	w.stack[w.depth] = level{n, object}
	w.depth++
	w.next()
}

// next prepares for the next member or element.
func (w *walker) next() {
	if w.depth == 0 {
		w.place, w.at = beforeValue, w.root
		return
	}
	top := &w.stack[w.depth-1]
	w.place, w.at = beforeValue, top.node
	if top.object {
		w.place = beforeKey
	}
}

// close ends the innermost object or array.
func (w *walker) close() {
	if w.depth == 0 {
		return
	}
	w.depth--
	n := w.stack[w.depth].node
	if n == w.root {
		w.scanner.closed(w.depth == 0)
	}
	w.ended()
}

// ended is called at the end of a value.
func (w *walker) ended() {
	w.place = afterValue
	if w.depth == 0 {
		w.place, w.at = beforeValue, w.root
	}
}

// inWord reads a number or word to its end.
func (w *walker) inWord(p []byte) int {
	for i, c := range p {
		switch c {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			if w.at != nil && w.at.leaf != nothing && w.kept <= maxKept && string(w.buffer[:w.kept]) != "null" {
				w.scanner.word(w.at.leaf, w.buffer[:w.kept])
			}
			w.ended()
			return i
		}
		w.keep(c)
	}
	return len(p)
}

// keep stores a byte of a short string or word. Further bytes are only counted.
func (w *walker) keep(c byte) {
	if w.kept < maxKept {
		w.buffer[w.kept] = c
		w.kept++
		return
	}
	w.kept = maxKept + 1
}

// skip reads a part that is not used.
func (w *walker) skip(p []byte) int {
	i := 0
	for i < len(p) {
		c := p[i]
		i++
		switch c {
		case '"':
			w.open(skipString)
		case '{', '[':
			w.skipped++
		case '}', ']':
			w.skipped--
		default:
			continue
		}
		if w.place == skipString || w.skipped == 0 {
			break
		}
	}
	if w.weigh {
		w.pass(i, 0)
	}
	if w.skipped == 0 {
		w.weigh = false
		w.ended()
	}
	return i
}

// pass reports generated text: the number of bytes that are ASCII, and of others.
func (w *walker) pass(plain, wide int) {
	if plain != 0 || wide != 0 {
		w.scanner.passed(plain, wide, w.fresh)
		w.fresh = false
	}
}

func (w *walker) isText() bool { return w.at != nil && w.at.leaf == text }

// inString reads a string to its end, or all of p.
func (w *walker) inString(p []byte) int {
	end := bytes.IndexByte(p, '"')
	if w.escape == 0 && w.place == lostString && (end == 0 || end > 0 && p[end-1] != '\\') {
		w.ended() // whatever it contains
		return end + 1
	}
	if w.escape == 0 && end >= 0 && bytes.IndexByte(p[:end], '\\') < 0 {
		w.run(p[:end])
		w.endString()
		return end + 1
	}
	for i := 0; i < len(p); {
		c := p[i]
		switch {
		case w.escape == 1:
			w.note(c)
			w.escape = 0
			if c == 'u' {
				w.escape = 2
			}
			i++
		case w.escape > 1 && c != '"': // a quotation mark ends the string, however short the escape is
			w.note(c)
			w.escape = (w.escape + 1) % 6
			i++
		case c == '\\':
			w.note(c)
			w.escape, w.escaped = 1, true
			i++
		case c == '"':
			w.endString()
			return i + 1
		default:
			n := len(p) - i
			if end >= i {
				n = end - i
			} else if end = bytes.IndexByte(p[i:], '"'); end >= 0 {
				n = end
				end += i
			} else {
				end = len(p)
			}
			if b := bytes.IndexByte(p[i:i+n], '\\'); b >= 0 {
				n = b
			}
			w.run(p[i : i+n])
			i += n
		}
	}
	return len(p)
}

// note reads a byte of an escape.
func (w *walker) note(c byte) {
	switch {
	case w.isText() && w.place == inText:
		switch {
		case w.escape == 0:
			w.pass(1, 0)
		case c == 'u' && w.escape == 1:
			w.pass(-1, 3)
		}
	case w.place == inKey || w.place == inText:
		w.keep(c)
	case w.weigh:
		w.pass(1, 0)
	}
}

// run reads bytes of a string without escapes.
func (w *walker) run(p []byte) {
	switch {
	case w.place == inText && w.at.leaf == text:
		wide := 0
		for _, c := range p {
			wide += int(c >> 7)
		}
		w.pass(len(p)-wide, wide)
	case w.place == inKey || w.place == inText:
		if w.kept+len(p) > maxKept {
			w.kept = maxKept + 1
			return
		}
		w.kept += copy(w.buffer[w.kept:], p)
	case w.weigh && w.place == skipString:
		w.pass(len(p), 0)
	}
}

// endString ends a string.
func (w *walker) endString() {
	switch w.place {
	case inKey:
		w.place, w.at = beforeColon, nil
		if name, ok := w.word(); ok {
			w.at = w.stack[w.depth-1].node.child(name)
		}
	case skipString:
		w.place = inSkipped
	default:
		if w.place == inText && w.at.leaf != text {
			if word, ok := w.word(); ok {
				w.scanner.word(w.at.leaf, word)
			}
		}
		w.ended()
	}
}

// word returns the current short string; ok is false for a long one.
func (w *walker) word() (_ []byte, ok bool) {
	if w.kept > maxKept {
		return nil, false
	}
	word := w.buffer[:w.kept]
	if !w.escaped {
		return word, true
	}
	var s string
	err := json.Unmarshal(append(append([]byte{'"'}, word...), '"'), &s)
	return []byte(s), err == nil
}
