package provider

import (
	"bytes"
	"io"
	"mime/multipart"
)

// maxParts is how many parts of a form are looked at.
const maxParts = 64

// form reads a form with files: the model that it names, and flat tokens for each
// file. A body that is not a form says nothing.
func (r *reading) form(body []byte, file int64) error {
	line, _, whole := bytes.Cut(body[:min(len(body), 256)], []byte("\r\n"))
	boundary, ok := bytes.CutPrefix(line, []byte("--"))
	if !ok || !whole || len(boundary) == 0 {
		return nil
	}
	parts := multipart.NewReader(bytes.NewReader(body), string(boundary))
	for range maxParts {
		p, err := parts.NextRawPart()
		if err != nil {
			break // the end, or a form that is the upstream's to refuse
		}
		if p.FileName() != "" {
			r.call.Extra += file
		}
		if p.FormName() != "model" {
			continue
		}
		name, err := io.ReadAll(io.LimitReader(p, maxModel))
		if err != nil {
			break
		}
		if err := r.name(name); err != nil {
			return err
		}
	}
	return nil
}
