package target

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/jq"
)

// placeholder is a field of the row in a URL.
var placeholder = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// body is a compiled JSON template: texts, and placeholders between them. Rows are copied
// byte by byte, so that numbers keep all digits.
type body []piece

type piece struct {
	text []byte
	fill fill
}

type fill uint8

const (
	nothing fill = iota
	allRows
	oneRow
	batchKey
)

var fills = map[string]fill{"$rows": allRows, "$row": oneRow, "$key": batchKey}

// body compiles a template. The default is the rows, or the row.
func (s section) body(single bool) body {
	var raw any = "$rows"
	if single {
		raw = "$row"
	}
	if n := s.Take("body"); n != nil && n.Kind != configfile.Null {
		raw = n.JSON()
	}
	b := &builder{}
	b.add(raw)
	b.flush(nothing)
	switch {
	case b.err != nil:
		s.Fail("body", "cannot be JSON: %v", b.err)
	case single && b.rows > 0:
		s.Fail("body", "has $rows, and each request carries one: want $row")
	case !single && b.one > 0:
		s.Fail("body", "has $row, and each request carries many: want $rows, or set single: true")
	case b.rows+b.one != 1:
		s.Fail("body", "has %d places for rows; want one", b.rows+b.one)
	}
	return b.pieces
}

type builder struct {
	pieces    body
	text      []byte
	rows, one int
	err       error
}

func (b *builder) flush(f fill) {
	if len(b.text) > 0 || f != nothing {
		b.pieces = append(b.pieces, piece{b.text, f})
		b.text = nil
	}
}

func (b *builder) add(v any) {
	switch v := v.(type) {
	case map[string]any:
		b.text = append(b.text, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.text = append(b.text, ',')
			}
			b.plain(name)
			b.text = append(b.text, ':')
			b.add(v[name])
		}
		b.text = append(b.text, '}')
	case []any:
		b.text = append(b.text, '[')
		for i, e := range v {
			if i > 0 {
				b.text = append(b.text, ',')
			}
			b.add(e)
		}
		b.text = append(b.text, ']')
	case string:
		f, special := fills[v]
		switch {
		case !special:
			b.plain(v)
			return
		case f == allRows:
			b.rows++
		case f == oneRow:
			b.one++
		}
		b.flush(f)
	default:
		b.plain(v)
	}
}

func (b *builder) plain(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		b.err = errors.Join(b.err, err)
	}
	b.text = append(b.text, text...)
}

// render fills in the template.
func (b body) render(batch bulk.Batch) []byte {
	size := 64
	for _, r := range batch.Rows {
		size += len(r.Data) + 1
	}
	out := make([]byte, 0, size)
	for _, p := range b {
		out = append(out, p.text...)
		switch p.fill {
		case allRows:
			out = append(out, '[')
			for i, r := range batch.Rows {
				if i > 0 {
					out = append(out, ',')
				}
				out = append(out, r.Data...)
			}
			out = append(out, ']')
		case oneRow:
			out = append(out, batch.Rows[0].Data...)
		case batchKey:
			out = append(append(append(out, '"'), batch.Key...), '"')
		case nothing:
		}
	}
	return out
}

// fillURL fills the row's fields into a URL.
func fillURL(template string, row bulk.Row) (string, error) {
	if !placeholder.MatchString(template) {
		return template, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(row.Data, &fields); err != nil {
		return "", errors.New("the row is not an object")
	}
	var failed error
	out := placeholder.ReplaceAllStringFunc(template, func(p string) string {
		name := p[1 : len(p)-1]
		text, err := scalar(fields[name])
		if err != nil || text == "" || text == "." || text == ".." {
			failed = fmt.Errorf("its field %q cannot stand in the URL: it must be a text or a number", name)
		}
		return url.PathEscape(text)
	})
	return out, failed
}

// scalar returns a text or a number as text.
func scalar(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "", errors.New("it is missing")
	}
	switch c := raw[0]; {
	case c == '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case c == '-' || '0' <= c && c <= '9':
		return string(raw), nil
	}
	return "", errors.New("it is neither a text nor a number")
}

// maxExpr bounds the evaluation of an expression, which may not terminate.
const maxExpr = 10 * time.Second

// expr reads a jq expression; nil if it is absent.
func (s section) expr(key string) *jq.Code {
	var source string
	if s.Text(key, &source); source == "" {
		return nil
	}
	code, err := jq.Compile(source)
	if err != nil {
		s.Fail(key, "is not a jq expression: %v", err)
	}
	return code
}

// text returns the result of an expression as text, "" if there is none.
func text(ctx context.Context, code *jq.Code, in any) string {
	if code == nil {
		return ""
	}
	v, err := code.First(ctx, in)
	if s, ok := v.(string); ok || v == nil || err != nil {
		return s
	}
	return fmt.Sprint(v)
}

// decode decodes JSON as gojq expects it.
func decode(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&v); err != nil {
		return nil, errors.New("it is not JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is more than one JSON value")
	}
	return v, nil
}

// secrets are texts of a request that must not be stored.
type secrets [][]byte

// minSecret is the minimum length in bytes of a text that is removed from responses.
// Shorter ones occur in common words.
const minSecret = 6

// secrets returns the secrets of a request: the credential as it is sent, and the values of
// the target file's references.
func (t *Target) secrets(identity int, req *http.Request) (s secrets) {
	auth := t.config.Identities[identity].Auth
	s.add(auth.Value.Reveal())
	if auth.Header != "" {
		sent := req.Header.Get(auth.Header)
		s.add(sent)
		if _, credential, ok := strings.Cut(sent, " "); ok {
			s.add(credential)
		}
	}
	for name := range t.config.Headers {
		if v := t.config.Headers.Get(name); v != t.config.written.Get(name) {
			s.add(v)
		}
	}
	return s
}

// add adds a text, also as encoded in JSON.
func (s *secrets) add(text string) {
	if len(text) < minSecret {
		return
	}
	*s = append(*s, []byte(text))
	if quoted, err := json.Marshal(text); err == nil && len(quoted) > len(text)+2 {
		*s = append(*s, quoted[1:len(quoted)-1])
	}
}

// blank removes them from a response. Some servers and proxies repeat request headers in
// errors, and errors are stored in the reject file.
func (s secrets) blank(body []byte) []byte {
	for _, text := range s {
		if bytes.Contains(body, text) {
			body = bytes.ReplaceAll(body, text, []byte("(credential)"))
		}
	}
	return body
}
