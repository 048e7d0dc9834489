package source

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/headway-go/headway/bulk"
)

// jsonLines reads one JSON object per line and skips blank lines.
type jsonLines struct {
	lines *lines
	// enveloped reports that the input is a reject file.
	enveloped bool
}

func newJSONLines(r io.Reader, limit int) (*jsonLines, error) {
	j := &jsonLines{lines: newLines(r, limit)}
	first, err := j.lines.read()
	switch {
	case errors.Is(err, io.EOF):
		return j, nil
	case err != nil:
		return nil, err
	case preamble(first.text):
		j.enveloped = true
		j.lines.limit = limit + maxText // the error stands beside the row
	default:
		j.lines.back = append(j.lines.back, first)
	}
	return j, nil
}

func preamble(text []byte) bool {
	return string(text) == strings.TrimSpace(bulk.RejectsPreamble) || string(text) == strings.TrimSpace(bulk.UncertainPreamble)
}

// Next returns the next row.
func (j *jsonLines) Next() (bulk.Row, error) {
	for {
		l, err := j.lines.read()
		if err != nil {
			return bulk.Row{}, err
		}
		text := bytes.TrimSpace(l.text)
		switch {
		case l.long:
			return l.malformed(fmt.Errorf("it is longer than %d bytes", j.lines.limit))
		case len(text) == 0:
			continue
		case !utf8.Valid(text):
			return l.malformed(errors.New("it is not UTF-8"))
		case !json.Valid(text):
			return l.malformed(errors.New("it is not JSON"))
		case text[0] != '{':
			return l.malformed(errors.New("it is JSON, but not an object"))
		case j.enveloped:
			return l.unwrap(text)
		}
		return bulk.Row{Position: l.Position, Data: text}, nil
	}
}

// unwrap takes a row out of a line of a reject file.
func (l line) unwrap(text []byte) (bulk.Row, error) {
	var r bulk.Reject
	if err := json.Unmarshal(text, &r); err != nil {
		return l.malformed(errors.New("it is not a line of a reject file"))
	}
	switch {
	case len(r.Row) == 0 && r.Text != "":
		return l.malformed(errors.New(`it still has the text that could not be read: correct that and write it as "row"`))
	case len(r.Row) == 0 || r.Row[0] != '{':
		return l.malformed(errors.New(`its "row" is missing or not an object`))
	}
	return bulk.Row{Position: l.Position, Data: r.Row}, nil
}

// line is one line of a text, without its line break.
type line struct {
	bulk.Position
	text []byte
	// long reports that the line exceeds the limit; text is its beginning.
	long bool
}

// lines splits a text into lines of limited length.
type lines struct {
	in    *bufio.Reader
	limit int
	next  bulk.Position
	back  []line // to be given again, the last one first
}

func newLines(r io.Reader, limit int) *lines {
	l := &lines{in: bufio.NewReaderSize(r, 64<<10), limit: limit, next: bulk.Position{Line: 1}}
	if bom, _ := l.in.Peek(3); string(bom) == "\ufeff" {
		n, _ := l.in.Discard(3) // they are there
		l.next.Offset = int64(n)
	}
	return l
}

// read returns the next line, whose text the caller may keep, or io.EOF after the last one.
func (l *lines) read() (line, error) {
	if n := len(l.back); n > 0 {
		again := l.back[n-1]
		l.back = l.back[:n-1]
		return again, nil
	}
	it := line{Position: l.next}
	for {
		part, err := l.in.ReadSlice('\n')
		l.next.Offset += int64(len(part))
		if room := l.limit + 2 - len(it.text); room > 0 { // 2 for the line break
			it.text = append(it.text, part[:min(len(part), room)]...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && (!errors.Is(err, io.EOF) || l.next.Offset == it.Offset) {
			return line{}, err
		}
		break
	}
	l.next.Line++
	if l.next.Offset-it.Offset <= int64(len(it.text)) {
		it.text = trimBreak(it.text)
	}
	if it.long = len(it.text) > l.limit; it.long {
		it.text = it.text[:l.limit]
	}
	return it, nil
}

func trimBreak(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	return b
}

// maxText is the maximum length of the text that is kept of a malformed row.
const maxText = 64 << 10

func (l line) malformed(err error) (bulk.Row, error) {
	return bulk.Row{Position: l.Position}, &bulk.MalformedError{
		Position: l.Position, Text: l.text[:min(len(l.text), maxText)], Err: err,
	}
}
