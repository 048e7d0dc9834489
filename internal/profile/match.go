// Package profile holds what providers publish about their limits, as data: which attempts
// share a limit, what an attempt costs, which response fields report remaining limits, and
// which responses are refusals. [Pools] finds the pool of an attempt; connections with
// pools of their own use it too.
//
// Nothing here sends, waits or reads a clock.
package profile

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Match selects the attempts of a pool. All fields that are set must match; the zero Match
// matches every attempt.
type Match struct {
	// Paths are patterns, of which one must match. Patterns match segment by segment: *
	// stands for any text without a slash, also within a segment, and ** for any number of
	// segments.
	Paths []string
	// Methods are HTTP methods, of which one must match.
	Methods []string
	// Query, Header and Fields are patterns by name for URL parameters, header fields and
	// fields of a JSON body. * stands for any text. Dots separate the names of nested
	// fields.
	Query, Header, Fields map[string]string
}

// Each splits a pool: one pool for each value of a part of the attempt, or for each
// combination of several parts. Parts that an attempt lacks are left out. The zero value
// does not split.
type Each struct {
	// Segment is a segment of the path, from 1; a negative one counts from the end.
	Segment int
	// Query, Header and Field name a parameter, a header field and a field of a JSON body.
	Query, Header, Field string
	// Response names a response header field. Such pools are learned, route by route, from
	// responses; see [Pools.Learn]. No other field may be set.
	Response string
}

// Pool is a group of attempts that share limits.
type Pool struct {
	// Name is the pool's name. With Each, the value is appended after a colon; if Name is
	// empty, the value is the name.
	Name  string
	Match Match
	Each  Each
}

// maxName is the maximum length of a pool's name in bytes. Longer ones are cut.
const maxName = 96

// of returns the pool's name for an attempt, "" if the attempt does not belong to it.
func (p *Pool) of(r *Request, learned func() string) string {
	if !p.Match.Fits(r) {
		return ""
	}
	e := &p.Each
	switch {
	case *e == Each{}:
		return p.Name
	case e.Response != "":
		return p.called(learned())
	}
	var value string
	add := func(part string) {
		if value != "" && part != "" {
			value += ","
		}
		value += part
	}
	if e.Header != "" {
		add(r.Header.Get(e.Header))
	}
	if e.Segment != 0 {
		add(segment(r.Path, e.Segment))
	}
	if e.Query != "" {
		add(r.query(e.Query))
	}
	if e.Field != "" {
		part := r.field(e.Field)
		if part == "" {
			return ""
		}
		add(part)
	}
	return p.called(value)
}

// called returns the pool's name for a value of Each; "" for the empty value.
func (p *Pool) called(value string) string {
	if value == "" {
		return ""
	}
	if p.Name != "" {
		value = p.Name + ":" + value
	}
	return plain(value)
}

// plain makes a value a valid name: printable and of bounded length.
func plain(s string) string {
	s = s[:min(len(s), maxName)]
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f {
			return '_'
		}
		return r
	}, s)
}

// segment returns one segment of a path.
func segment(path string, n int) string {
	all := strings.Split(strings.Trim(path, "/"), "/")
	if n < 0 {
		n += len(all) + 1
	}
	if n < 1 || n > len(all) {
		return ""
	}
	return all[n-1]
}

// Fits reports whether an attempt matches.
func (m *Match) Fits(r *Request) bool {
	if len(m.Methods) > 0 && !slices.Contains(m.Methods, r.Method) {
		return false
	}
	if len(m.Paths) > 0 && !slices.ContainsFunc(m.Paths, func(p string) bool { return fitsPath(p, r.Path) }) {
		return false
	}
	for name, pattern := range m.Query {
		if !r.hasQuery(name) || !fits(pattern, r.query(name)) {
			return false
		}
	}
	for name, pattern := range m.Header {
		if values := r.Header[http.CanonicalHeaderKey(name)]; len(values) == 0 || !fits(pattern, values[0]) {
			return false
		}
	}
	for name, pattern := range m.Fields {
		if value := r.field(name); value == "" || !fits(pattern, value) {
			return false
		}
	}
	return true
}

// fitsPath matches a path segment by segment.
func fitsPath(pattern, path string) bool {
	pattern, path = strings.Trim(pattern, "/"), strings.Trim(path, "/")
	for {
		want, wanted, more := strings.Cut(pattern, "/")
		if want == "**" {
			if !more {
				return true
			}
			for {
				if fitsPath(wanted, path) {
					return true
				}
				_, rest, ok := strings.Cut(path, "/")
				if !ok {
					return false
				}
				path = rest
			}
		}
		have, rest, left := strings.Cut(path, "/")
		switch {
		case !fits(want, have):
			return false
		case !more || !left:
			return !left && (!more || strings.Trim(wanted, "/") == "**")
		}
		pattern, path = wanted, rest
	}
}

// fits matches a value with a pattern in which * stands for any text.
func fits(pattern, value string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == value
	}
	value, ok := strings.CutPrefix(value, first)
	if !ok {
		return false
	}
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(value, part)
		}
		at := strings.Index(value, part)
		if at < 0 {
			return false
		}
		value, rest = value[at+len(part):], more
	}
}

// String returns the pool's name for display, with the part that splits it.
func (p *Pool) String() string {
	var by []string
	add := func(what, name string) {
		if name != "" {
			by = append(by, what+" "+name)
		}
	}
	e := &p.Each
	add("response header", e.Response)
	add("header", e.Header)
	if e.Segment != 0 {
		add("path segment", strconv.Itoa(e.Segment))
	}
	add("query", e.Query)
	add("field", e.Field)
	if by == nil {
		return p.Name
	}
	return strings.TrimSpace(p.Name + " by " + strings.Join(by, " and "))
}
