package jsonl

import (
	"encoding/json"

	"github.com/headway-go/headway/collect"
)

var _ collect.Blank = (*Sink)(nil)

// Blank reports whether nothing was written up to a position. See [collect.Blank].
func (s *Sink) Blank(committed json.RawMessage) bool {
	p, err := parsePosition(committed)
	return err == nil && len(p.Files) == 0
}
