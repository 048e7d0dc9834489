package parquet

import (
	"context"
	"time"

	"github.com/headway-go/headway/collect"
)

var _ collect.Burier = (*Sink)(nil)

// Gone writes a tombstone for each key. See [collect.Burier] and the package
// comment.
func (s *Sink) Gone(ctx context.Context, stream, parent string, keys []string, at time.Time) error {
	records, err := collect.Tombstones(parent, keys, at)
	if err != nil {
		return err
	}
	return s.Write(ctx, stream, records)
}
