package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/headway-go/headway/bulk"
)

// jsonLines reads one JSON object a line. Blank lines are not rows.
type jsonLines struct {
	lines *lines
	// enveloped says that the rows are in a file of rejects.
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

// Next gives the next row.
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
		return l.malformed(errors.New(`its "row" is missing or no object`))
	}
	return bulk.Row{Position: l.Position, Data: r.Row}, nil
}
