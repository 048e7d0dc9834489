package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/rawjson"
)

// maxKey bounds a record's key in bytes.
const maxKey = 1024

// readBody checks that a response is JSON. It returns nil for a response without content
// (204, or an empty body with 205), which is an empty page. Bytes that are not UTF-8 become
// U+FFFD, as in encoding/json.
func readBody(res *connector.Response) (*datum, error) {
	body := bytes.TrimPrefix(res.Body, []byte("\ufeff"))
	if !utf8.Valid(body) {
		body = bytes.ToValidUTF8(body, []byte("\ufffd"))
	}
	body = bytes.TrimSpace(body)
	if rawjson.Valid(body) {
		return &datum{raw: body, body: true}, nil
	}
	if len(body) == 0 {
		if res.Status == http.StatusNoContent {
			return nil, nil
		}
		return nil, errors.New("expected JSON, got an empty body")
	}
	if html(body) {
		return nil, fmt.Errorf("expected JSON, got %s (first bytes look like an HTML page): is base_url right? does the request need a login?", mediaType(res.Header))
	}
	what := "invalid JSON"
	if media := mediaType(res.Header); !strings.Contains(media, "json") {
		what = "expected JSON, got " + media
	}
	var into json.RawMessage
	if e, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(body, &into)); ok && e.Offset < int64(len(body)) {
		return nil, fmt.Errorf("%s: an unexpected character at byte %d of %d", what, e.Offset, len(body))
	}
	return nil, fmt.Errorf("%s: it ends in the middle, after %d bytes", what, len(body))
}

// html reports whether a body looks like an HTML page.
func html(body []byte) bool {
	head := bytes.ToLower(body[:min(len(body), 64)])
	for _, tag := range []string{"<!doctype", "<html", "<head", "<body", "<!--"} {
		if bytes.HasPrefix(head, []byte(tag)) {
			return true
		}
	}
	return false
}

// mediaType returns the response's media type if it is a known one.
func mediaType(h http.Header) string {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case err != nil || media == "":
		return "an unnamed type"
	case len(media) > 60 || !headerToken(strings.Replace(media, "/", "", 1)):
		return "an odd type"
	}
	return media
}

// extraction describes how records are read from a body, of a list or of a detail.
type extraction struct {
	stream       string
	records, key *Expr
}

// entry is a record with its key.
type entry struct {
	key   string
	at    int // position in the body, from 1
	datum *datum
	data  json.RawMessage
}

// entries are the records of a body, in order, and the bad records.
type entries struct {
	read []entry
	bad  []badRecord
	// count is the number of records, including identical ones, which are only once in
	// read.
	count int
}

// badRecord is a record for which an expression of the connection fails.
type badRecord struct {
	at   int // position in the body, from 1
	data json.RawMessage
	err  error
}

// reject adds a bad record.
func (e *entries) reject(at int, data json.RawMessage, err error) {
	e.bad = append(e.bad, badRecord{at: at, data: data, err: err})
}

// first returns the first bad record as an error, or nil.
func (e *entries) first(stream string) error {
	if len(e.bad) == 0 {
		return nil
	}
	return fmt.Errorf("stream %s: %w for record %d of %d", stream, e.bad[0].err, e.bad[0].at, e.count)
}

// read returns the records of a body. It returns an error if the body has no records where
// they should be, or ctx has ended.
func (x extraction) read(ctx context.Context, body *datum) (e entries, err error) {
	found, err := x.find(ctx, body)
	if err != nil {
		return e, fmt.Errorf("stream %s: %w", x.stream, err)
	}
	e.count = len(found)
	e.read = make([]entry, 0, len(found))
	seen := make(map[string]int, len(found))
	for i := range found {
		key, err := x.keyOf(ctx, &found[i])
		if ctx.Err() != nil {
			return e, ctx.Err()
		}
		data := found[i].compact()
		if err != nil {
			e.reject(i+1, data, fmt.Errorf("key expression %s %w", x.key, err))
			continue
		}
		if j, twice := seen[key]; twice {
			if !bytes.Equal(e.read[j].data, data) {
				e.reject(i+1, data, fmt.Errorf("key expression %s is not unique: it gave the key of record %d of the same page, which differs,", x.key, e.read[j].at))
			}
			continue
		}
		seen[key] = len(e.read)
		e.read = append(e.read, entry{key: key, at: i + 1, datum: &found[i], data: data})
	}
	return e, nil
}

// find evaluates the records expression. The elements of arrays and objects are records;
// anything else is an error.
func (x extraction) find(ctx context.Context, body *datum) ([]datum, error) {
	outs, err := x.records.all(ctx, body)
	if err != nil {
		return nil, fmt.Errorf("records expression %s failed: %w%s", x.records, err, fieldsOf(body))
	}
	var found []datum
	for i := range outs {
		out := &outs[i]
		switch {
		case out.kind() == kindTable:
			found = append(found, *out)
		case out.kind() != kindList:
			return nil, fmt.Errorf("records expression %s gave %s, want an array or objects%s", x.records, article(out.kind()), fieldsOf(body))
		case out.read:
			for _, v := range out.tree.([]any) {
				found = append(found, datum{tree: v, read: true})
			}
		default:
			elements(out.raw, func(raw []byte, compact bool) { found = append(found, datum{raw: raw, compacted: compact}) })
		}
	}
	return found, nil
}

func (x extraction) keyOf(ctx context.Context, record *datum) (string, error) {
	v, err := x.key.one(ctx, record)
	if err != nil {
		return "", err
	}
	s, ok := v.text()
	switch {
	case !ok:
		return "", fmt.Errorf("gave %s, want a text or a whole number,", article(v.kind()))
	case s == "":
		return "", errors.New("gave an empty text")
	case len(s) > maxKey:
		return "", fmt.Errorf("gave a text of %d bytes, at most %d are a key,", len(s), maxKey)
	case v.kind() != kindNumber:
		return s, nil
	case strings.ContainsAny(s, ".eE"):
		return "", errors.New("gave a number with a fraction or an exponent, want a text or a whole number,")
	case s == "-0":
		return "0", nil
	}
	return s, nil
}

func article(k kind) string {
	switch k {
	case kindNull:
		return "null"
	case kindTable, kindList, kindInteger:
		return "an " + string(k)
	default:
		return "a " + string(k)
	}
}

// fieldsOf names the top-level fields of a body, at most ten, as a hint for the right
// expression. Names that may be data are left out.
func fieldsOf(body *datum) string {
	switch body.kind() {
	case kindTable:
	case kindList:
		return "; the response is an array, which the expression . stands for"
	default:
		return "; the response is " + article(body.kind())
	}
	const most = 10
	var names []string
	total := 0
	members(body.bytes(), func(key, _ []byte) {
		total++
		name := string(key[1 : len(key)-1])
		if _, plain := fieldPath("." + name); plain && len(name) <= 40 && len(names) < most {
			names = append(names, name)
		}
	})
	switch {
	case total == 0:
		return "; the response is an empty object"
	case len(names) == 0:
		return ""
	case len(names) < total:
		names = append(names, "…")
	}
	return "; the response has the fields " + strings.Join(names, ", ")
}
