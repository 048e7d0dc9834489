package collect

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// unread makes a gap of each entry of a page that is not an item. It is quarantined
// from the start: what the list holds of it is all there is, and asking again
// gives the same. Its stream is the list's own, so that it is never the gap of
// an item's detail, and its key does not depend on the page: the next walk finds
// the same entry under the same key, wherever it stands by then.
func (b *batch) unread(page connector.Page, stream string, number int64, now time.Time) {
	for _, u := range page.Unread {
		place := fmt.Sprintf("page %d, record %d", number, u.Position)
		key := place
		if u.ID != "" {
			key = "record " + u.ID
		}
		b.Opened = append(b.Opened, Gap{
			GapKey: GapKey{Stream: stream, Key: key}, Connection: b.run.o.Connection, Parent: stream,
			Reason: reason.InvalidResponse, Status: GapTerminal, Attempts: 1,
			FirstSeen: now, LastSeen: now, LastError: place + ": " + u.Problem,
		})
	}
}

// bad reports whether the gap is an entry of a list that is not an item.
func (g Gap) bad() bool { return g.Stream == g.Parent && !g.Backlog }

// mended closes the gaps of entries that a walk over the whole list, begun at
// the instant given, did not meet any more.
func (r *run) mended(ctx context.Context, stream string, began time.Time) error {
	c := Commit{}
	f := GapFilter{Connection: r.o.Connection, Stream: stream, Limit: gapPageRows}
	for {
		gaps, err := r.o.Store.Gaps(ctx, f)
		if err != nil {
			return err
		}
		for _, g := range gaps {
			if g.bad() && g.Status != GapRecovered && g.LastSeen.Before(began) {
				c.Recovered = append(c.Recovered, g.GapKey)
			}
			f.AfterID = g.ID
		}
		if len(gaps) < gapPageRows {
			break
		}
	}
	if len(c.Recovered) == 0 {
		return nil
	}
	return r.commit(ctx, c)
}
