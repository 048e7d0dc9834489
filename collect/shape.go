package collect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// StreamShape is how a stream was read when it was last collected.
type StreamShape struct {
	Stream string `json:"stream"`
	connector.Shape
	// DetailStream is where its details went; empty when it had none.
	DetailStream string `json:"detail_stream,omitempty"`
	// Gone says that the connection no longer has the stream.
	Gone bool `json:"gone,omitempty"`
}

// Reshaped is what a stream's new shape means for what is known of its items.
type Reshaped struct {
	Shape StreamShape
	// ForgetItems removes the known items, with the gaps of their details.
	ForgetItems bool
	// ForgetFingerprints makes every known item count as changed.
	ForgetFingerprints bool
	// ForgetChildren forgets which detail records were written.
	ForgetChildren bool
	// OweDetails marks the detail of every known item as owed.
	OweDetails bool
}

// ChangeOf is the change that a [event.ConnectionChanged] event carries.
func ChangeOf(e event.Event) Change {
	return Change{Kind: ChangeKind(e.Note), Stream: e.Stream, Count: e.Count}
}

// WarningOf is the warning that a [event.Warning] event carries.
func WarningOf(e event.Event) connector.Warning {
	return connector.Warning{Kind: connector.WarningKind(e.Note), Stream: e.Stream, Records: e.Count}
}

// ChangeKind says what was edited in a connection.
type ChangeKind string

// The kinds of change.
const (
	StreamAdded        ChangeKind = "stream_added"
	StreamGone         ChangeKind = "stream_gone"
	BaseMoved          ChangeKind = "base_moved"
	ListChanged        ChangeKind = "list_changed"
	RecordsChanged     ChangeKind = "records_changed"
	KeyChanged         ChangeKind = "key_changed"
	FingerprintChanged ChangeKind = "fingerprint_changed"
	IncrementalChanged ChangeKind = "incremental_changed"
	DetailAdded        ChangeKind = "detail_added"
	DetailChanged      ChangeKind = "detail_changed"
	DetailRenamed      ChangeKind = "detail_renamed"
	DetailRemoved      ChangeKind = "detail_removed"
	GapsOrphaned       ChangeKind = "gaps_orphaned"
	// SinkChanged: another kind or place; SinkReturned: one that the connection had
	// before; SinkMoved: another place, with the files of the former.
	SinkChanged  ChangeKind = "sink_changed"
	SinkReturned ChangeKind = "sink_returned"
	SinkMoved    ChangeKind = "sink_moved"
	// SinkFileGone: the file of a stream was moved away or emptied.
	SinkFileGone ChangeKind = "sink_file_gone"
	// SinkAhead: the sink holds what the state does not know of.
	SinkAhead ChangeKind = "sink_ahead"
)

// Change is one thing that differs from the last run of a connection.
type Change struct {
	Kind ChangeKind `json:"kind"`
	// Stream is the stream that it concerns; empty for all.
	Stream string `json:"stream,omitempty"`
	// Count is how many known items it concerns; of gaps_orphaned the gaps.
	Count int64 `json:"count,omitempty"`
	// Was and Is are the sinks, of a change between two; nil otherwise.
	Was *Location `json:"was,omitempty"`
	Is  *Location `json:"is,omitempty"`
}

// String says what differs and what the next run does about it, in one line.
func (c Change) String() string {
	items, are, owed, them := fmt.Sprintf("%d known items", c.Count), "are", fmt.Sprintf("%d details are", c.Count), "them"
	if c.Count == 1 {
		items, are, owed, them = "1 known item", "is", "1 detail is", "that"
	}
	of := ""
	if c.Stream != "" {
		of = "stream " + c.Stream + ": "
	}
	switch c.Kind {
	case StreamAdded:
		return of + "it is new, and is collected from its beginning"
	case StreamGone:
		return of + "it is no longer in the connection; its position and " + items + " are kept, should it come back"
	case BaseMoved:
		return of + "base_url moved: known items are taken for the same; a walk under way whose next page was a URL starts again"
	case ListChanged:
		return of + "its list changed: the walk starts again, items that did not change are skipped"
	case RecordsChanged:
		return of + "its records changed: the walk starts again, and items that differ are written again"
	case KeyChanged:
		return of + "its key changed: " + items + " " + are + " forgotten and everything is collected again; records under the old key stay in the sink"
	case FingerprintChanged:
		return of + "its fingerprint changed: the walk starts again, and items count as changed"
	case IncrementalChanged:
		return of + "its incremental changed: the walk starts again, items that did not change are skipped"
	case DetailAdded:
		return of + "its details were added: those of " + items + " are owed"
	case DetailChanged:
		return of + "its details changed: those of " + items + " are owed again"
	case DetailRenamed:
		return of + "its details go to another stream: those of " + items + " are owed again; earlier ones stay where they are"
	case DetailRemoved:
		return of + "its details were removed: no more are collected"
	case GapsOrphaned:
		return of + "the connection no longer has it, and " + owed + " owed that no run can fetch: put it back, or drop " + them
	case SinkChanged, SinkReturned, SinkMoved, SinkFileGone, SinkAhead:
		return of + c.sinkText()
	}
	return of + string(c.Kind)
}

// Changes compares a connection as it was last collected with its streams now.
// A connection never collected has no changes. The order is that of the streams,
// then what is gone by name.
func Changes(was ConnectionStatus, streams []connector.Stream) []Change {
	known := knownShapes(was)
	if len(known) == 0 {
		return nil
	}
	var all []Change
	for _, s := range streams {
		say := func(kind ChangeKind) { all = append(all, Change{Kind: kind, Stream: s.Name, Count: was.Items[s.Name]}) }
		old, ok := known[s.Name]
		delete(known, s.Name)
		if !ok {
			all = append(all, Change{Kind: StreamAdded, Stream: s.Name})
			continue
		}
		for _, kind := range old.against(s) {
			say(kind)
		}
	}
	var gone []string
	for name, old := range known {
		if !old.Gone {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		all = append(all, Change{Kind: StreamGone, Stream: name, Count: was.Items[name]})
	}
	return all
}

// knownShapes are the streams that were collected. One from before shapes were
// kept has a shape that is unknown.
func knownShapes(was ConnectionStatus) map[string]StreamShape {
	known := map[string]StreamShape{}
	for _, l := range was.Lanes {
		known[l.Stream] = StreamShape{Stream: l.Stream}
	}
	for name := range was.Items {
		known[name] = StreamShape{Stream: name}
	}
	for _, s := range was.Shapes {
		known[s.Stream] = s
	}
	return known
}

// against compares a stream as it was with what it is.
func (was StreamShape) against(s connector.Stream) (kinds []ChangeKind) {
	if was == (StreamShape{Stream: was.Stream}) {
		return nil // from before shapes were kept
	}
	if was.Shape != (connector.Shape{}) && s.Shape != (connector.Shape{}) {
		for _, part := range []struct {
			was, is string
			kind    ChangeKind
		}{
			{was.Base, s.Shape.Base, BaseMoved},
			{was.List, s.Shape.List, ListChanged},
			{was.Records, s.Shape.Records, RecordsChanged},
			{was.Key, s.Shape.Key, KeyChanged},
			{was.Fingerprint, s.Shape.Fingerprint, FingerprintChanged},
			{was.Incremental, s.Shape.Incremental, IncrementalChanged},
		} {
			if part.was != part.is {
				kinds = append(kinds, part.kind)
			}
		}
	}
	switch {
	case was.DetailStream == s.DetailStream:
		if s.DetailStream != "" && was.Detail != s.Shape.Detail && was.Detail != "" && s.Shape.Detail != "" {
			kinds = append(kinds, DetailChanged)
		}
	case was.DetailStream == "":
		kinds = append(kinds, DetailAdded)
	case s.DetailStream == "":
		kinds = append(kinds, DetailRemoved)
	default:
		kinds = append(kinds, DetailRenamed)
	}
	return kinds
}

// shapeOf is what is kept of a stream.
func shapeOf(s connector.Stream) StreamShape {
	return StreamShape{Stream: s.Name, Shape: s.Shape, DetailStream: s.DetailStream}
}

// restarts reports whether a change makes positions in the list worthless.
func (k ChangeKind) restarts() bool {
	switch k {
	case ListChanged, RecordsChanged, KeyChanged, FingerprintChanged, IncrementalChanged:
		return true
	default:
		return false
	}
}

// rereads reports whether a change has details collected again.
func (k ChangeKind) rereads() bool {
	return k == KeyChanged || k == DetailAdded || k == DetailChanged || k == DetailRenamed
}

// reshape is what the changes of one stream mean for what is known of it.
func reshape(s connector.Stream, kinds []ChangeKind) Reshaped {
	r := Reshaped{Shape: shapeOf(s)}
	for _, kind := range kinds {
		switch kind {
		case KeyChanged:
			r.ForgetItems = true
		case RecordsChanged:
			// Where the record itself is the fingerprint, only those that differ
			// are written again.
			r.ForgetFingerprints = s.Shape.Fingerprint != ""
		case DetailAdded, DetailChanged:
			r.OweDetails = true
		case DetailRenamed:
			r.OweDetails, r.ForgetChildren = true, true
		default:
		}
	}
	return r
}

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
	r.initial = map[string]bool{}
	for _, s := range streams {
		r.initial[s.DetailStream] = !lane(was.Lanes, s.Name, Catchup).Done || slices.ContainsFunc(kinds[s.Name], ChangeKind.rereads)
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
		if known[s.Name] == shapeOf(s) {
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

// say puts a change into the trace, where its operator sees it.
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
