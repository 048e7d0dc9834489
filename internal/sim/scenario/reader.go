package scenario

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/headway-go/headway/internal/configfile"
)

// mapping is one mapping of the file whose keys have been checked against a list.
// The zero mapping has no fields. Its methods give a field's value, or the one that
// is handed in where it is absent or wrong.
type mapping struct{ *configfile.Section }

// only reads a node as a mapping with only the named fields. ok is false when it is
// absent, or not a mapping at all.
func only(n *configfile.Node, fields ...string) (m mapping, ok bool) {
	m.Section = n.Section()
	m.Only(fields...)
	return m, m.Section != nil
}

// wants says what is wanted where a field is missing.
var wants = map[string]string{
	"name": "a text", "rate": "a rate such as 10/s or 600/min", "knee": "a rate such as 10/s",
	"kind": "the kind", "batch": "a mapping with per_row", "rows": "a whole number", "throttles": "a whole number",
	"limit": "a number, or a duration for busy_time", "scale": "a number", "factor": "a number",
}

const wantDuration = "a duration with a unit, such as 250ms, 15m, 1h30m or 1d"

// require reports each field that is missing.
func (m mapping) require(fields ...string) {
	for _, f := range fields {
		bound, ok := wants[f]
		if !ok {
			bound = wantDuration
		}
		m.Require(f, bound)
	}
}

// together reports two fields of which only one is given.
func (m mapping) together(a, b string) {
	if m.Has(a) != m.Has(b) {
		m.Fail(a, "and %s go together", b)
	}
}

// section reads a field as a mapping; ok is false when it is absent or not one.
func (m mapping) section(field string, fields ...string) (mapping, bool) {
	return only(m.Take(field), fields...)
}

// list reads a field as a list of at most MaxListed elements.
func (m mapping) list(field string) []*configfile.Node {
	all := m.List(field)
	if len(all) > MaxListed {
		m.Fail(field, "has %d entries; want at most %d", len(all), MaxListed)
		return nil
	}
	return all
}

func (m mapping) text(field string, limit int) (s string) {
	if m.Text(field, &s); utf8.RuneCountInString(s) > limit {
		m.Fail(field, "is longer than %d characters", limit)
		return ""
	}
	return s
}

func (m mapping) boolean(field string) (on bool) {
	m.Bool(field, &on)
	return on
}

// word reads one of a fixed set of words.
func word[T ~string](m mapping, field string, otherwise T, allowed ...T) T {
	words, order := make(map[string]T, len(allowed)), make([]string, len(allowed))
	for i, a := range allowed {
		words[string(a)], order[i] = a, string(a)
	}
	configfile.Choice(m.Section, field, &otherwise, words, order...)
	return otherwise
}

func (m mapping) integer(field string, otherwise, low, high int) int {
	configfile.Int(m.Section, field, &otherwise, low, high)
	return otherwise
}

// number reads a finite number; low is a bound that is itself allowed unless
// open is set.
func (m mapping) number(field string, otherwise, low, high float64, open bool) float64 {
	n := m.Take(field)
	if n == nil {
		return otherwise
	}
	bound := "at least"
	if open {
		bound = "above"
	}
	v, ok := n.Float()
	if !ok || v < low || v > high || open && v == low {
		n.Want(fmt.Sprintf("a number %s %g and at most %g", bound, low, high))
		return otherwise
	}
	return v
}

// duration reads a length of time from low to high, both allowed.
func (m mapping) duration(field string, otherwise, low, high time.Duration) time.Duration {
	n := m.Take(field)
	if n == nil {
		return otherwise
	}
	d, err := ParseDuration(scalar(n))
	switch {
	case err != nil:
		n.Want(wantDuration)
	case d < low || d > high:
		n.Want(fmt.Sprintf("from %s to %s", short(low), short(high)))
	default:
		return d
	}
	return otherwise
}

func (m mapping) rate(field string) Rate {
	n := m.Take(field)
	if n == nil {
		return Rate{}
	}
	r, err := ParseRate(scalar(n))
	if err != nil {
		n.Fail("%s: %v", n.Is(), err)
	}
	return r
}

// scalar is the text of a word or number, with none of anything else.
func scalar(n *configfile.Node) string {
	if slices.Contains([]configfile.Kind{configfile.Text, configfile.Integer, configfile.Number}, n.Kind) {
		return n.Written
	}
	return ""
}
