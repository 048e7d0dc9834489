package collect

import (
	"context"
	"time"
)

// writeChildren writes the records of a detail that differ from the last time,
// and marks those that are gone, where the sink can.
func (b *batch) writeChildren(ctx context.Context, o *outcome) error {
	known := o.children
	changed, keys, gone := o.children.update(o.records)
	records := make([]Record, 0, len(changed))
	for _, r := range changed {
		records = append(records, Record{Key: r.Key, Parent: o.item.Key, Data: r.Data})
	}
	if err := b.write(ctx, o.to, records); err != nil {
		return err
	}
	b.Progress.ChildrenGone += gone
	if sink, ok := b.run.o.Sink.(Marker); ok && (gone > 0 || known.vague) {
		keys := make([]string, len(o.records))
		for i, r := range o.records {
			keys[i] = r.Key
		}
		b.dirty = true
		return sink.Remain(ctx, o.to, o.item.Key, keys, time.Now())
	}
	sink, ok := b.run.o.Sink.(Burier)
	switch {
	case !ok:
	case known.hashed && gone > 0:
		b.run.unmarked[o.to] += gone
	case len(keys) > 0:
		b.dirty = true
		return sink.Gone(ctx, o.to, o.item.Key, keys, time.Now())
	}
	return nil
}
