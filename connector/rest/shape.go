package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-go/headway/connector"
)

// shape is a digest of each part of the stream. Values count as they were
// written in the file, so that no secret is a part of it and a renewed one
// changes nothing.
func (s *Stream) shape(p Provider) connector.Shape {
	sizeless := s.Paginate.Kind != SinglePage && s.Paginate.Kind != NumberPaging
	list := append([]string{s.List.Path}, s.List.parts(sizeless)...)
	list = append(list, headerParts(p.Headers)...)
	list = append(list, s.Paginate.parts()...)
	shape := connector.Shape{
		Base: digest(p.BaseURL.Host, p.BaseURL.EscapedPath()), List: digest(list...),
		Records: digest(s.Records.String()), Key: digest(s.Key.String()),
	}
	if s.Fingerprint != nil {
		shape.Fingerprint = digest(s.Fingerprint.String())
	}
	if s.Incremental != nil {
		shape.Incremental = digest(s.Incremental.Cursor.String(), s.Incremental.Param)
	}
	if d := s.Detail; d != nil {
		parts := append([]string{d.Request.Path, d.Records.String(), d.Key.String()}, d.Request.parts(false)...)
		shape.Detail = digest(append(parts, d.Paginate.parts()...)...)
	}
	return shape
}

// parts are what a request asks for beside its path. The size of pages, which
// changes how a list is cut and not what is on it, can be left out.
func (r Request) parts(sizeless bool) (parts []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Query)) {
		if !sizeless || sizeNameOf(name) != sizeName {
			parts = append(parts, name, r.Query[name].String())
		}
	}
	return append(parts, headerParts(r.Headers)...)
}

func headerParts(headers map[string]Value) (parts []string) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !strings.EqualFold(name, "User-Agent") {
			parts = append(parts, "header "+strings.ToLower(name), headers[name].String())
		}
	}
	return parts
}

// parts are how the pages of a list are found, and so how much of it is.
// Positions counted in pages are worth nothing with pages of another size.
func (p Paginate) parts() []string {
	if p.Kind == SinglePage {
		return nil
	}
	parts := []string{"paginate", string(p.Kind), p.Param, strconv.FormatInt(p.Start, 10)}
	if p.Next != nil {
		parts = append(parts, p.Next.String())
	}
	if p.Kind == NumberPaging {
		parts = append(parts, p.SizeParam, strconv.FormatInt(p.Size, 10))
	}
	return parts
}

// digest is short: it tells versions of one text apart and proves nothing.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
