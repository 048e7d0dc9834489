package usage

import (
	"bytes"
	"encoding/json"
	"slices"
)

// member is a member of an object: the positions of its key, with quotes, and its value.
type member struct {
	key, keyEnd     int
	value, valueEnd int
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
	at = blank(text, at)
	if at >= len(text) || text[at] != '{' {
		return false
	}
	o.text, o.open = text, at
	at = blank(text, at+1)
	if at < len(text) && text[at] == '}' {
		o.close = at
		return true
	}
	for {
		var m member
		if m.key = at; at >= len(text) || text[at] != '"' {
			return false
		}
		if at = pastString(text, at); at < 0 {
			return false
		}
		m.keyEnd = at
		if at = blank(text, at); at >= len(text) || text[at] != ':' {
			return false
		}
		m.value = blank(text, at+1)
		if m.valueEnd = pastValue(text, m.value); m.valueEnd < 0 {
			return false
		}
		o.members = append(o.members, m)
		if at = blank(text, m.valueEnd); at >= len(text) {
			return false
		}
		switch text[at] {
		case '}':
			o.close = at
			return true
		case ',':
			at = blank(text, at+1)
		default:
			return false
		}
	}
}

// last returns the index of the last member with a name, which is the one that counts; -1
// if there is none.
func (o *object) last(name string) int {
	for i := range slices.Backward(o.members) {
		if o.named(i, name) {
			return i
		}
	}
	return -1
}

func (o *object) named(i int, name string) bool {
	key := o.text[o.members[i].key:o.members[i].keyEnd]
	if bytes.IndexByte(key, '\\') < 0 {
		return string(key[1:len(key)-1]) == name
	}
	var s string
	return json.Unmarshal(key, &s) == nil && s == name
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

// blank returns the end of the white space that begins at text[at].
func blank(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r') {
		at++
	}
	return at
}

// pastString returns the end of the string that begins at text[at]; -1 if it does not end.
func pastString(text []byte, at int) int {
	for at++; at < len(text); at++ {
		n := bytes.IndexByte(text[at:], '"')
		if n < 0 {
			return -1
		}
		b := bytes.IndexByte(text[at:at+n], '\\')
		if b < 0 {
			return at + n + 1
		}
		at += b + 1
	}
	return -1
}

// pastValue returns the end of the value that begins at text[at]; -1 if it does not end.
func pastValue(text []byte, at int) int {
	if at >= len(text) {
		return -1
	}
	switch text[at] {
	case '"':
		return pastString(text, at)
	case '{', '[':
	default:
		return pastWord(text, at)
	}
	for depth := 0; at < len(text); {
		switch text[at] {
		case '"':
			if at = pastString(text, at); at < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		at++
		if depth == 0 {
			return at
		}
	}
	return -1
}

// pastWord returns the end of a number or word; -1 if there is none.
func pastWord(text []byte, at int) int {
	end := at
	for end < len(text) {
		switch c := text[end]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '+', c == '.':
			end++
			continue
		}
		break
	}
	if end == at {
		return -1
	}
	return end
}
