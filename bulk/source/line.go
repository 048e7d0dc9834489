package source

import (
	"bufio"
	"errors"
	"io"

	"github.com/headway-go/headway/bulk"
)

// line is one line of a text, without its line break.
type line struct {
	bulk.Position
	text []byte
	// long says that the line is longer than the bound, and text its beginning.
	long bool
}

// lines cuts a text into lines that are bounded in length.
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

// read gives the next line, whose text is the caller's to keep; io.EOF after the
// last one.
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

// maxText bounds how much of a malformed row is kept.
const maxText = 64 << 10

func (l line) malformed(err error) (bulk.Row, error) {
	return bulk.Row{Position: l.Position}, &bulk.MalformedError{
		Position: l.Position, Text: l.text[:min(len(l.text), maxText)], Err: err,
	}
}
