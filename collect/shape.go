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

// StreamShape describes how a stream was configured when it was last collected.
type StreamShape struct {
	Stream string `json:"stream"`
	connector.Shape
	// DetailStream is the stream of its details; empty if it had none.
	DetailStream string `json:"detail_stream,omitempty"`
	// Gone reports that the connection no longer has the stream.
	Gone bool `json:"gone,omitempty"`
}

// Reshaped is a stream's new shape, with the changes to its known items that follow.
type Reshaped struct {
	Shape StreamShape
	// ForgetItems removes the known items and the gaps of their details.
	ForgetItems bool
	// ForgetFingerprints makes every known item count as changed.
	ForgetFingerprints bool
	// ForgetChildren removes the digests of the detail records that were written.
	ForgetChildren bool
	// OweDetails marks the detail of every known item as owed.
	OweDetails bool
}

// ChangeOf returns the change that an [event.ConnectionChanged] event carries.
func ChangeOf(e event.Event) Change {
	return Change{Kind: ChangeKind(e.Note), Stream: e.Stream, Count: e.Count}
}

// WarningOf returns the warning that an [event.Warning] event carries.
func WarningOf(e event.Event) connector.Warning {
	return connector.Warning{Kind: connector.WarningKind(e.Note), Stream: e.Stream, Records: e.Count}
}

// ChangeKind is what changed in a connection.
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
	// SinkChanged: another kind or location. SinkReturned: a sink that the connection had
	// before. SinkMoved: the same files at another location.
	SinkChanged  ChangeKind = "sink_changed"
	SinkReturned ChangeKind = "sink_returned"
	SinkMoved    ChangeKind = "sink_moved"
	// SinkFileGone: the file of a stream was moved away or emptied.
	SinkFileGone ChangeKind = "sink_file_gone"
	// SinkAhead: the sink holds records that are missing from the state.
	SinkAhead ChangeKind = "sink_ahead"
)

// Change is one thing that differs from the last run of a connection.
type Change struct {
	Kind ChangeKind `json:"kind"`
	// Stream is the changed stream; empty for a change of the whole connection.
	Stream string `json:"stream,omitempty"`
	// Count is the number of known items affected; for gaps_orphaned, of gaps.
	Count int64 `json:"count,omitempty"`
	// Was and Is are the old and the new sink; nil if the sink did not change.
	Was *Location `json:"was,omitempty"`
	Is  *Location `json:"is,omitempty"`
}

// String describes the change and what the next run does about it, in one line.
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
		return of + "it is new and is collected from the beginning"
	case StreamGone:
		return of + "it is no longer in the connection; its position and " + items + " are kept in case it comes back"
	case BaseMoved:
		return of + "its base_url changed: known items stay known; a walk that was about to request its next page by URL starts again"
	case ListChanged:
		return of + "its list changed: the walk starts again, items that did not change are skipped"
	case RecordsChanged:
		return of + "its records changed: the walk starts again, and items that differ are written again"
	case KeyChanged:
		return of + "its key changed: " + items + " " + are + " forgotten and all is collected again; records with the old key stay in the sink"
	case FingerprintChanged:
		return of + "its fingerprint changed: the walk starts again, and all items count as changed"
	case IncrementalChanged:
		return of + "its incremental changed: the walk starts again, items that did not change are skipped"
	case DetailAdded:
		return of + "its details were added: those of " + items + " are owed"
	case DetailChanged:
		return of + "its details changed: those of " + items + " are owed again"
	case DetailRenamed:
		return of + "its details go to another stream: those of " + items + " are owed again; details in the old stream stay there"
	case DetailRemoved:
		return of + "its details were removed: no more are collected"
	case GapsOrphaned:
		return of + "the connection no longer has it, and " + owed + " owed that no run can fetch: restore the stream, or drop " + them
	case SinkChanged, SinkReturned, SinkMoved, SinkFileGone, SinkAhead:
		return of + c.sinkText()
	}
	return of + string(c.Kind)
}

// Changes compares a connection's last collected state with its current streams.
// A connection that was never collected has no changes. The result is in the order of
// the streams, followed by removed streams by name.
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

// knownShapes returns the streams that were collected, by name. A stream that was
// collected by a version that did not store shapes has the zero Shape.
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

// against returns what changed in a stream since it was last collected.
func (was StreamShape) against(s connector.Stream) (kinds []ChangeKind) {
	if was == (StreamShape{Stream: was.Stream}) {
		return nil // collected by a version that did not store shapes
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

// shapeOf returns the shape that is stored for a stream.
func shapeOf(s connector.Stream) StreamShape {
	return StreamShape{Stream: s.Name, Shape: s.Shape, DetailStream: s.DetailStream}
}

// restarts reports whether a change invalidates positions in the list.
func (k ChangeKind) restarts() bool {
	switch k {
	case ListChanged, RecordsChanged, KeyChanged, FingerprintChanged, IncrementalChanged:
		return true
	default:
		return false
	}
}

// rereads reports whether a change makes the run collect details again.
func (k ChangeKind) rereads() bool {
	return k == KeyChanged || k == DetailAdded || k == DetailChanged || k == DetailRenamed
}

// reshape returns what the changes of one stream mean for its known items.
func reshape(s connector.Stream, kinds []ChangeKind) Reshaped {
	r := Reshaped{Shape: shapeOf(s)}
	for _, kind := range kinds {
		switch kind {
		case KeyChanged:
			r.ForgetItems = true
		case RecordsChanged:
			// Without a configured fingerprint the record is its own fingerprint, so that
			// items whose record differs count as changed anyway.
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

// streamGone is the LastError of a gap whose stream the connection no longer has.
const streamGone = "stream_gone"

// adopt compares the connection with its last collected state, emits an event for each
// change, and stores what follows: invalid positions are reset, and details that are now
// owed are recorded. The shapes are committed last, so that a run that is killed in
// between does all of it again.
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

// say emits an event for a change.
func (r *execution) say(c Change) {
	r.emit(event.Event{Type: event.ConnectionChanged, Stream: c.Stream, Note: string(c.Kind), Count: c.Count})
}

// restart resets the positions of a stream whose list changed. If only the base URL
// changed, it resets the positions that are URLs.
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

// isURL reports whether a cursor is a URL, with or without a host.
func isURL(cursor string) bool {
	return strings.HasPrefix(cursor, "/") || strings.HasPrefix(cursor, "http://") || strings.HasPrefix(cursor, "https://")
}

// findOrphans quarantines the gaps whose stream the connection no longer has, until an
// operator drops them, and releases those whose stream has come back.
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
				if gone && status == GapTerminal { // orphans among the pending ones are terminal by now
					r.orphaned[g.Stream]++
				}
				switch {
				case g.bad(): // such a gap is quarantined from the start
					continue
				case gone && g.LastError != streamGone:
					g.Status, g.LastError = GapTerminal, streamGone
				case !gone && g.LastError == streamGone:
					g.Status, g.LastError, g.RetryAt = GapPending, "", time.Time{}
				default:
					continue
				}
				g.Attempts = 0 // the store adds Attempts to its count
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

// Orphaned reports whether none of the streams can fetch the detail that a gap owes.
func Orphaned(g Gap, streams []connector.Stream) bool {
	for _, s := range streams {
		if s.Name == g.Parent && (s.DetailStream == g.Stream || g.bad()) {
			return false
		}
	}
	return true
}
