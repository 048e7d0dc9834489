package dataverse

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// identity is a row's id. That of a row that is known by an alternate key comes
// from the key, so that no index is needed.
type identity [16]byte

// String is the id as a GUID.
func (id identity) String() string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// digest makes an id of texts.
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

// guid reads a GUID.
func guid(text string) (id identity, err error) {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return id, errNoGUID
	}
	if _, err := hex.Decode(id[:], []byte(strings.ReplaceAll(text, "-", ""))); err != nil {
		return id, errNoGUID
	}
	return id, nil
}

// reference reads "contacts(code='a',n=3)" or "contacts(GUID)": the set, and the
// row's id in it.
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

// byKey is the id of the row with an alternate key.
func byKey(set string, pairs []string) identity {
	slices.Sort(pairs)
	return digest(append([]string{set}, pairs...)...)
}

// pairs splits code='a,b',n=3 into canonical pairs: a text keeps one quote, which
// tells it from a number.
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

// quoted reads a text in quotes; a doubled quote is one of the text.
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

// keyed is the id of a row by the columns of an alternate key; ok is false when
// it lacks one.
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
