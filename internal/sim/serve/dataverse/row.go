package dataverse

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// operation is an operation on rows.
type operation int

const (
	create operation = iota
	update
	upsert
)

var actions = map[string]operation{
	namespace + "CreateMultiple": create,
	namespace + "UpdateMultiple": update,
	namespace + "UpsertMultiple": upsert,
}

const namespace = "Microsoft.Dynamics.CRM."

// The values of the column sim_fault.
const (
	troubleColumn = "sim_fault"
	rejecting     = "reject"
	throttling    = "throttle"
	cutting       = "cut"
	garbling      = "garbage"
)

// row is a row of a request.
type row struct {
	id identity
	// named reports that the request identifies the row, and byKey that it does so by an
	// alternate key.
	named, byKey bool
	// sum is the hash of its columns.
	sum     uint64
	trouble string
	fails   bool
}

// targets reads the body of a bulk operation. Its errors are sent to the client.
func (a *API) targets(set string, body []byte) ([]row, error) {
	var in struct{ Targets []map[string]json.RawMessage }
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("the body is not such an object: %w", err)
	}
	if len(in.Targets) == 0 {
		return nil, fmt.Errorf("the parameter Targets is missing or empty")
	}
	rows := make([]row, len(in.Targets))
	kind := ""
	for i, fields := range in.Targets {
		var of string
		_ = json.Unmarshal(fields["@odata.type"], &of) // stays empty if missing
		name, ok := strings.CutPrefix(strings.TrimPrefix(of, "#"), namespace)
		if !ok || name == "" {
			return nil, fmt.Errorf("row %d of Targets has no @odata.type such as %scontact", i, namespace)
		}
		if kind == "" {
			kind = name
		} else if kind != name {
			return nil, fmt.Errorf("row %d of Targets is of type %s, and others of %s", i, name, kind)
		}
		r, err := a.row(set, kind+"id", fields)
		if err != nil {
			return nil, fmt.Errorf("row %d of Targets %w", i, err)
		}
		rows[i] = r
	}
	return rows, nil
}

// row reads one row, whose primary key is in the column primary.
func (a *API) row(set, primary string, fields map[string]json.RawMessage) (r row, err error) {
	r.sum = hash(fields)
	_ = json.Unmarshal(fields[troubleColumn], &r.trouble) // another value is that of an ordinary column
	switch raw := fields["@odata.id"]; {
	case len(raw) > 0:
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return r, fmt.Errorf("has an @odata.id that is not text")
		}
		if text, err = url.PathUnescape(text); err != nil {
			return r, fmt.Errorf("has an @odata.id with a bad escape")
		}
		text = text[strings.LastIndex(text[:strings.IndexByte(text+"(", '(')], "/")+1:]
		of, id, err := reference(text)
		if err != nil {
			return r, fmt.Errorf("has an @odata.id that %w", err)
		}
		if of != set {
			return r, fmt.Errorf("has an @odata.id of the set %s, in a request to %s", of, set)
		}
		r.id, r.named, r.byKey = id, true, strings.Contains(text, "=")
	case len(fields[primary]) > 0 && string(fields[primary]) != "null":
		var text string
		if json.Unmarshal(fields[primary], &text) == nil {
			r.id, err = guid(text)
		} else {
			err = errNoGUID
		}
		if err != nil {
			return r, fmt.Errorf("has a %s that %w", primary, err)
		}
		r.named = true
	default:
		if r.id, r.named, err = keyed(set, a.opt.AlternateKey, fields); err != nil {
			return r, err
		}
		r.byKey = r.named
	}
	r.fails = a.fails(&r)
	return r, nil
}

// fails reports whether a row always fails.
func (a *API) fails(r *row) bool {
	return a.opt.FailEvery > 0 && r.luck()%uint64(a.opt.FailEvery) == 0
}

// luck returns a number that depends on the row's name, or else its content.
func (r *row) luck() uint64 {
	if !r.named {
		return r.sum
	}
	d := digest(r.id.String())
	return binary.BigEndian.Uint64(d[:])
}

// hash returns a hash of the columns in any order.
func hash(fields map[string]json.RawMessage) uint64 {
	h := sha256.New()
	var compact bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if strings.HasPrefix(name, "@") {
			continue
		}
		compact.Reset()
		_ = json.Compact(&compact, fields[name]) // it was decoded, so it is JSON
		h.Write([]byte(name))
		h.Write([]byte{0})
		h.Write(compact.Bytes())
		h.Write([]byte{0})
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// identity is a row's id. The id of a row with an alternate key is derived from the key, so
// no index is needed.
type identity [16]byte

// String returns the id as a GUID.
func (id identity) String() string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// digest derives an id from texts.
func digest(texts ...string) (id identity) {
	h := sha256.New()
	for _, t := range texts {
		h.Write([]byte(t))
		h.Write([]byte{0})
	}
	copy(id[:], h.Sum(nil))
	return id
}

var errNoGUID = errors.New("is not a GUID")

// guid parses a GUID.
func guid(text string) (id identity, err error) {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return id, errNoGUID
	}
	if _, err := hex.Decode(id[:], []byte(strings.ReplaceAll(text, "-", ""))); err != nil {
		return id, errNoGUID
	}
	return id, nil
}

// reference parses "contacts(code='a',n=3)" or "contacts(GUID)". It returns the set and the
// row's id.
func reference(text string) (set string, id identity, err error) {
	set, rest, ok := strings.Cut(text, "(")
	key, closed := strings.CutSuffix(rest, ")")
	if !ok || !closed || set == "" {
		return "", id, errors.New("is not a reference such as contacts(code='1')")
	}
	if id, err := guid(key); err == nil {
		return set, id, nil
	}
	pairs, err := pairs(key)
	if err != nil {
		return "", id, err
	}
	return set, byKey(set, pairs), nil
}

// byKey returns the id of the row with an alternate key.
func byKey(set string, pairs []string) identity {
	slices.Sort(pairs)
	return digest(append([]string{set}, pairs...)...)
}

// pairs splits code='a,b',n=3 into canonical pairs. A text keeps one quote, which
// distinguishes it from a number.
func pairs(key string) (out []string, err error) {
	for rest := key; ; {
		column, after, ok := strings.Cut(rest, "=")
		if !ok || column == "" || after == "" {
			return nil, errors.New("has a key that is not a COLUMN=VALUE")
		}
		var value string
		if after[0] == '\'' {
			if value, after, err = quoted(after); err != nil {
				return nil, err
			}
		} else {
			value, after = after, ""
			if i := strings.IndexByte(value, ','); i >= 0 {
				value, after = value[:i], value[i:]
			}
			if value == "" {
				return nil, errors.New("has a key that is not a COLUMN=VALUE")
			}
		}
		out = append(out, column+"="+value)
		if after == "" {
			return out, nil
		}
		if rest, ok = strings.CutPrefix(after, ","); !ok {
			return nil, errors.New("has a key with something after its quote")
		}
	}
}

// quoted parses a quoted text; a doubled quote stands for one.
func quoted(s string) (value, rest string, err error) {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] != '\'':
		case i+1 < len(s) && s[i+1] == '\'':
			i++
		default:
			return "'" + strings.ReplaceAll(s[1:i], "''", "'"), s[i+1:], nil
		}
	}
	return "", "", errors.New("has a key with an open quote")
}

// keyed returns the id of a row by the columns of an alternate key; ok is false if it lacks
// one.
func keyed(set string, columns []string, fields map[string]json.RawMessage) (id identity, ok bool, err error) {
	if len(columns) == 0 {
		return id, false, nil
	}
	pairs := make([]string, len(columns))
	for i, column := range columns {
		raw := fields[column]
		if len(raw) == 0 || string(raw) == "null" {
			return id, false, nil
		}
		value := string(raw)
		if raw[0] == '"' {
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return id, false, fmt.Errorf("has a %s that is not text", column)
			}
			value = "'" + text
		}
		pairs[i] = column + "=" + value
	}
	return byKey(set, pairs), true, nil
}
