package collect

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// streamGone is the last error of a gap whose stream the connection no longer has.
const streamGone = "stream_gone"

// adopt compares the connection with how it was collected last, says what
// differs, and makes durable what that means: positions that are worthless are
// reset, details that are owed now are on record. The shapes are written last, so
// that a run that dies on the way does all of it again.
func (r *execution) adopt(ctx context.Context) error {
	was, _, err := StatusOf(ctx, r.o.Store, r.o.Connection)
	if err != nil {
		return err
	}
	streams := r.o.Connector.Streams()
	for _, s := range streams {
		if was.Items[s.Name] == 0 {
			r.stored[s.Name] = &keySet{}
		}
	}
	changes := Changes(was, streams)
	kinds := map[string][]ChangeKind{}
	for _, c := range changes {
		r.say(c)
		kinds[c.Stream] = append(kinds[c.Stream], c.Kind)
	}
	r.anew = map[string]bool{}
	for _, s := range streams {
		r.anew[s.DetailStream] = !lane(was.Lanes, s.Name, Catchup).Done || slices.ContainsFunc(kinds[s.Name], ChangeKind.rereads)
	}
	for _, s := range streams {
		if err := r.restart(ctx, s, was.Lanes, kinds[s.Name]); err != nil {
			return err
		}
	}
	known := knownShapes(was)
	var c Commit
	now := time.Now().Round(0)
	for _, s := range streams {
		if old, ok := known[s.Name]; ok && old == shapeOf(s) {
			continue
		}
		shaped := reshape(s, kinds[s.Name])
		c.Reshaped = append(c.Reshaped, shaped)
		if shaped.OweDetails && !shaped.ForgetItems && was.Items[s.Name] > 0 {
			c.Opened = append(c.Opened, Gap{
				GapKey: GapKey{Stream: s.DetailStream}, Connection: r.o.Connection, Parent: s.Name,
				Backlog: true, Reason: reason.ConnectionChanged, Status: GapPending, FirstSeen: now, LastSeen: now,
			})
		}
	}
	for _, change := range changes {
		if change.Kind == StreamGone {
			shape := known[change.Stream]
			shape.Gone = true
			c.Reshaped = append(c.Reshaped, Reshaped{Shape: shape})
		}
	}
	if len(c.Reshaped) > 0 {
		if err := r.commit(ctx, c); err != nil {
			return err
		}
	}
	return r.findOrphans(ctx, streams)
}

// say puts a change into the trace, where whoever runs it sees it.
func (r *execution) say(c Change) {
	r.emit(event.Event{Type: event.ConnectionChanged, Stream: c.Stream, Note: string(c.Kind), Count: c.Count})
}

// restart resets the positions of a stream whose list is another one now. When
// the provider only moved, positions that name a URL are worthless.
func (r *execution) restart(ctx context.Context, s connector.Stream, lanes []Lane, kinds []ChangeKind) error {
	all, urls := false, false
	for _, kind := range kinds {
		all = all || kind.restarts()
		urls = urls || kind == BaseMoved
	}
	if !all && !urls {
		return nil
	}
	for _, l := range lanes {
		if l.Stream != s.Name {
			continue
		}
		switch {
		case all:
			l = Lane{Stream: l.Stream, Kind: l.Kind}
		case l.Walking && isURL(l.Cursor):
			l.begin()
		default:
			continue
		}
		if err := r.commit(ctx, Commit{Lane: &l}); err != nil {
			return err
		}
	}
	for after := int64(0); s.DetailStream != ""; {
		gaps, err := r.o.Store.Gaps(ctx, GapFilter{Connection: r.o.Connection, Stream: s.DetailStream, AfterID: after, Limit: gapPageRows})
		if err != nil || len(gaps) == 0 {
			return err
		}
		for _, g := range gaps {
			after = g.ID
			if !g.Backlog || g.Status == GapRecovered || !all && !isURL(g.Cursor) {
				continue
			}
			g.Cursor, g.Attempts = "", 0
			if all {
				g.Since = ""
			}
			if err := r.commit(ctx, Commit{Opened: []Gap{g}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// isURL reports whether a cursor names a page by its URL, whole or without host.
func isURL(cursor string) bool {
	return strings.HasPrefix(cursor, "/") || strings.HasPrefix(cursor, "http://") || strings.HasPrefix(cursor, "https://")
}

// findOrphans takes gaps out of recovery whose stream the connection no longer
// has, an operator's to drop; those whose stream came back are owed again.
func (r *execution) findOrphans(ctx context.Context, streams []connector.Stream) error {
	r.orphaned = map[string]int64{}
	for _, status := range []GapStatus{GapPending, GapTerminal} {
		for after := int64(0); ; {
			gaps, err := r.o.Store.Gaps(ctx, GapFilter{Connection: r.o.Connection, Status: status, AfterID: after, Limit: gapPageRows})
			if err != nil {
				return err
			}
			var c Commit
			for _, g := range gaps {
				after = g.ID
				gone := Orphaned(g, streams)
				if gone && status == GapTerminal { // the pending ones have become so
					r.orphaned[g.Stream]++
				}
				switch {
				case g.bad(): // it has been taken out of recovery from the start
					continue
				case gone && g.LastError != streamGone:
					g.Status, g.LastError = GapTerminal, streamGone
				case !gone && g.LastError == streamGone:
					g.Status, g.LastError, g.RetryAt = GapPending, "", time.Time{}
				default:
					continue
				}
				g.Attempts = 0 // none to add
				c.Opened = append(c.Opened, g)
			}
			if len(c.Opened) > 0 {
				if err := r.commit(ctx, c); err != nil {
					return err
				}
			}
			if len(gaps) < gapPageRows {
				break
			}
		}
	}
	for _, stream := range slices.Sorted(maps.Keys(r.orphaned)) {
		r.say(Change{Kind: GapsOrphaned, Stream: stream, Count: r.orphaned[stream]})
	}
	return nil
}

// Orphaned reports whether no stream of a connection can fetch what a gap owes.
func Orphaned(g Gap, streams []connector.Stream) bool {
	for _, s := range streams {
		if s.Name == g.Parent && (s.DetailStream == g.Stream || g.bad()) {
			return false
		}
	}
	return true
}
