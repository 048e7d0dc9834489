package profile

import (
	"net/http"
	"slices"

	"github.com/headway-go/headway/internal/configfile"
)

// readPool reads a pool, such as
//
//	name: model
//	match: {path: [/v1/chat/completions, /v1/responses]}
//	each: {field: model}
func readPool(s *configfile.Section) Pool {
	var p Pool
	s.Text("name", &p.Name)
	p.Match = ReadMatch(s.Below("match"))
	p.Each = ReadEach(s.Below("each"))
	switch {
	case p.Name == "" && p.Each == Each{} && !s.Has("name"):
		s.Want("name", "a name, or each")
	case len(p.Name) > maxName/2:
		s.Fail("name", "has %d bytes; want at most %d", len(p.Name), maxName/2)
	case p.Name != plain(p.Name):
		s.Want("name", "letters, digits and signs without spaces")
	}
	return p
}

// ReadMatch reads a Match: path and method, each a text or a list of texts, and query,
// header and field, which map names to patterns.
func ReadMatch(s *configfile.Section) (m Match) {
	m.Paths = texts(s, "path")
	m.Methods = texts(s, "method")
	m.Query, m.Header, m.Fields = s.Words("query"), s.Words("header"), s.Words("field")
	for _, p := range m.Paths {
		if p != "" && p[0] != '/' {
			s.Want("path", "patterns that begin with a slash, such as /search/**")
			break
		}
	}
	known := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
	for _, method := range m.Methods {
		if !slices.Contains(known, method) {
			s.Want("method", "methods in capitals, such as GET")
			break
		}
	}
	s.Done()
	return m
}

// ReadEach reads what splits a pool: segment, query, header and field, or response alone.
func ReadEach(s *configfile.Section) (e Each) {
	if s == nil {
		return e
	}
	configfile.Int(s, "segment", &e.Segment, -maxSegment, maxSegment)
	s.Text("query", &e.Query)
	s.Text("header", &e.Header)
	s.Text("field", &e.Field)
	s.Text("response", &e.Response)
	if n := len(s.Fields()); n == 0 || n > 1 && e.Response != "" || s.Has("segment") && e.Segment == 0 {
		s.Node().Want("segment (from 1, or below 0 to count from the end), query, header and field, or response alone")
	}
	s.Done()
	return e
}

// maxSegment bounds the position of a segment.
const maxSegment = 32

// texts reads a text, or a list of texts.
func texts(s *configfile.Section, key string) []string {
	if s.Has(key) && s.Take(key).Kind == configfile.Text {
		var one string
		if s.Text(key, &one); one == "" {
			return nil
		}
		return []string{one}
	}
	return s.Texts(key)
}
