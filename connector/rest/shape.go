package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/url"
	"slices"

	"github.com/headway-go/headway/connector"
)

// shape is a digest of each part of the stream. Values count as they were
// written in the file, so that no secret is a part of it and a renewed one
// changes nothing.
func (s *Stream) shape(base *url.URL) connector.Shape {
	shape := connector.Shape{
		Base: digest(base.Host, base.EscapedPath()), List: digest(s.List.Path),
		Records: digest(s.Records.String()), Key: digest(s.Key.String()),
	}
	if s.Fingerprint != nil {
		shape.Fingerprint = digest(s.Fingerprint.String())
	}
	if s.Incremental != nil {
		shape.Incremental = digest(s.Incremental.Cursor.String(), s.Incremental.Param)
	}
	if d := s.Detail; d != nil {
		parts := []string{d.Request.Path, d.Records.String(), d.Key.String()}
		for _, name := range slices.Sorted(maps.Keys(d.Request.Query)) {
			parts = append(parts, name, d.Request.Query[name].String())
		}
		shape.Detail = digest(parts...)
	}
	return shape
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
