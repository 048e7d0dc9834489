package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The media types of requests.
const (
	typeJSON  = "application/json"
	typePatch = "application/merge-patch+json"
)

// read returns the body of a request. It checks the media type, and bounds size and time.
func read(w http.ResponseWriter, r *http.Request, media string) ([]byte, error) {
	got, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || got != media || charset != "" && !strings.EqualFold(charset, "utf-8") {
		w.Header().Set("Accept-"+methodName(r.Method), media)
		return nil, &Problem{Status: http.StatusUnsupportedMediaType, Title: "Unsupported media type", Detail: "send Content-Type: " + media}
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		w.Header().Set("Accept-Encoding", "identity")
		return nil, &Problem{Status: http.StatusUnsupportedMediaType, Title: "Unsupported encoding", Detail: "send the body without Content-Encoding"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err == nil {
		// After the body, the server reads only to notice that the client has gone.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &Problem{Status: http.StatusRequestEntityTooLarge, Title: "Body too large", Detail: fmt.Sprintf("the body is larger than %d bytes", MaxBody)}
	}
	return nil, &Problem{Status: http.StatusBadRequest, Title: "Body cut short", Detail: "the body did not arrive whole"}
}

func methodName(m string) string {
	if m == http.MethodPatch {
		return "Patch"
	}
	return "Post"
}

// decode reads a body of one flat JSON object into v. Each name must be one of names, in the
// same case, and appear only once. The error is a *Problem that names the field and contains no
// value from the client.
func decode(body []byte, v any, names ...string) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if err := members(d, names); err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			// For an embedded struct, the name of the field includes the struct.
			field := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
			return badField(field, "a JSON "+strings.SplitN(wrong.Value, " ", 2)[0], "a "+plain(wrong.Type.Kind().String()))
		}
		return notJSON(err)
	}
	return nil
}

// plain returns the JSON name for a kind of Go value.
func plain(kind string) string {
	switch kind {
	case "int", "int64":
		return "whole number"
	case "bool":
		return "boolean"
	default:
		return kind
	}
}

// members checks the names in an object.
func members(d *json.Decoder, names []string) error {
	token, err := d.Token()
	switch {
	case err != nil:
		return notJSON(err)
	case token != json.Delim('{'):
		return invalid("the body must be a JSON object with %s", strings.Join(names, ", "))
	}
	var given []string
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return notJSON(err)
		}
		name, _ := token.(string) // the decoder accepts nothing else here
		if !slices.Contains(names, name) {
			return badField(strconv.Quote(clip(name)), "an unknown field", "one of "+strings.Join(names, ", "))
		}
		if slices.Contains(given, name) {
			return badField(name, "given twice", "given once")
		}
		given = append(given, name)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return notJSON(err)
		}
	}
	return nil
}

func notJSON(err error) *Problem {
	at := int64(-1)
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = e.Offset
	}
	if at < 0 {
		return invalid("the body is not JSON, must be one JSON object")
	}
	return invalid("the body is not JSON at byte %d, must be one JSON object", at)
}

// clip cuts a name from a client to a maximum length.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// query reads the parameters of a request. Each must be known, and appear once unless it may
// repeat.
type query struct {
	values map[string][]string
	err    error
}

// ask parses the parameters. names are the known ones; "name*" may repeat.
func ask(r *http.Request, names ...string) *query {
	q := &query{values: r.URL.Query()}
	for name, values := range q.values {
		many := slices.Contains(names, name+"*")
		if !many && !slices.Contains(names, name) {
			all := cmp.Or(strings.ReplaceAll(strings.Join(names, ", "), "*", ""), "none")
			q.fail(badField(strconv.Quote(clip(name)), "an unknown parameter", "one of: "+all))
		} else if !many && len(values) > 1 {
			q.fail(badField(name, "given more than once", "given once"))
		}
	}
	return q
}

// fail keeps the first error.
func (q *query) fail(p *Problem) {
	if q.err == nil {
		q.err = p
	}
}

// text returns a parameter of at most 256 bytes.
func (q *query) text(name string) string {
	if q.values[name] == nil {
		return ""
	}
	s := q.values[name][0]
	if len(s) > 256 {
		q.fail(badField(name, fmt.Sprintf("%d bytes long", len(s)), "at most 256 bytes"))
		return ""
	}
	return s
}

// number returns a parameter from low to high, or usual if it is absent.
func (q *query) number(name string, usual, low, high int64) int64 {
	s := q.text(name)
	if s == "" && q.values[name] == nil {
		return usual
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high {
		q.fail(badField(name, strconv.Quote(clip(s)), fmt.Sprintf("a whole number from %d to %d", low, high)))
		return usual
	}
	return n
}
