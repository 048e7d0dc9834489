package collect

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/connector"
)

// ReplayState is the state of a replay.
type ReplayState string

// The states of a replay.
const (
	ReplayUnfinished ReplayState = "unfinished"
	ReplayDone       ReplayState = "done"
	// ReplayRefused marks a sink that the connection has gone back to. Nothing can be
	// replayed into it, since it is unknown which records are newer.
	ReplayRefused ReplayState = "refused"
)

// Replay is a copy of the records of one sink into another.
type Replay struct {
	From  Location    `json:"from,omitzero"`
	To    Location    `json:"to"`
	State ReplayState `json:"state"`
	// Records counts the copied records; Deleted those of them that are marked as deleted.
	Records int64     `json:"records"`
	Deleted int64     `json:"deleted,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// Stream and After identify the last record that was copied.
	Stream string   `json:"stream,omitempty"`
	After  RecordID `json:"after,omitzero"`
}

// RecordID identifies a record in its stream.
type RecordID struct {
	Parent string `json:"parent,omitempty"`
	Key    string `json:"key,omitempty"`
}

// shown returns the replay without its position, which contains the key of a record.
func (r Replay) shown() Replay {
	r.Stream, r.After = "", RecordID{}
	return r
}

// ReplaysOnShow returns the replays that a status shows, without their positions.
func ReplaysOnShow(all []Replay) (shown []Replay) {
	for _, r := range all {
		if r.State != ReplayRefused {
			shown = append(shown, r.shown())
		}
	}
	return shown
}

// Kept reads the records of a sink back. Their order does not change while nothing is
// written.
type Kept interface {
	// Streams returns the names of the streams that have records.
	Streams(ctx context.Context) ([]string, error)
	// Count returns the number of records of a stream.
	Count(ctx context.Context, stream StreamInfo) (int64, error)
	// Read returns the records of a stream after the given one, sorted by parent and key:
	// at most limit records of about bytes in all. At the end it returns none.
	Read(ctx context.Context, stream StreamInfo, after RecordID, limit, bytes int) ([]KeptRecord, error)
	Close() error
}

// KeptRecord is a record as a sink kept it.
type KeptRecord struct {
	Record
	// Deleted is when the record was found deleted at the provider; zero means that it
	// exists.
	Deleted time.Time
}

// Restorer is a sink that can take records older than those that it holds, such as a
// database table.
type Restorer interface {
	Sink
	// Restore writes the records whose keys the sink does not have, and skips the others.
	Restore(ctx context.Context, stream string, records []KeptRecord) error
}

// ErrNotKept reports that the records of a sink cannot be read back.
var ErrNotKept = errors.New("records can be replayed from a sqlite or postgres sink only")

// ReplayError reports why a replay, or a run while a replay is unfinished, is not
// possible, and what to do.
type ReplayError struct{ text string }

func (e *ReplayError) Error() string { return e.text }

func impossible(format string, args ...any) error {
	return &ReplayError{fmt.Sprintf(format, args...)}
}

// Unreplayable returns a *[ReplayError] with the text of err.
func Unreplayable(err error) error { return &ReplayError{err.Error()} }

// Replayable reports whether the records of a sink can be replayed.
func Replayable(l Location) bool {
	return l.Kind == "sqlite" || l.Kind == "state" || l.Kind == "postgres"
}

// formerly returns all sinks whose positions the state holds, the current one included.
func formerly(s State) []FormerSink {
	all := slices.Clone(s.FormerSinks)
	if s.SinkAt.Kind != "" {
		all = append(all, FormerSink{s.SinkAt, s.Sink})
	}
	return all
}

// planReplay returns the replay to do or to resume, and the committed position of its
// target sink.
func planReplay(ctx context.Context, state State, from *Location, sink Sink) (r Replay, position json.RawMessage, err error) {
	located, ok := sink.(Located)
	if !ok {
		return r, nil, impossible("this sink does not report where it writes, so nothing can be replayed into it")
	}
	r.To, r.State = located.Location(), ReplayUnfinished
	now := state.SinkAt
	if from == nil {
		l, err := defaultFrom(state, r.To)
		if err != nil {
			return r, nil, err
		}
		from = &l
	}
	r.From = *from
	if r.From == r.To {
		return r, nil, impossible("%s is the connection's sink already: there is nothing to replay", r.To)
	}
	if s, ok := sink.(Recognizer); ok && r.To != now && r.To.Kind == now.Kind && s.Recognizes(ctx, state.Sink) {
		return r, nil, impossible("the sink's files were moved to %s, and `headway collect` continues with them: there is nothing to replay", r.To)
	}
	for _, past := range state.Replays {
		switch {
		case past.To != r.To:
		case past.State == ReplayRefused:
			return r, nil, impossible("%s was this connection's sink before %s: which of their records are newer is not known, "+
				"so none can be replayed; to have all of them in one sink, collect with --fresh, which fetches all of it again", r.To, r.From)
		case past.From == r.From:
			r = past
		case past.State == ReplayUnfinished:
			return r, nil, impossible("a replay of %s into %s is not finished: finish it first, without --from", past.From, past.To)
		}
	}
	_, tables := sink.(Restorer)
	switch {
	case r.To == now && (tables || r.Started != time.Time{}):
		return r, state.Sink, nil
	case r.To == now && !holdsNothing(sink, state.Sink):
		return r, nil, impossible("%s has records of this connection already, which are newer, and it can only append, so older records would follow newer ones. "+
			"Nothing was copied; to have all of it there, collect with --fresh, which fetches all of it again, or name a sqlite or postgres sink, "+
			"which takes older records at any time", r.To)
	case r.To == now:
		return r, state.Sink, nil
	}
	for _, f := range state.FormerSinks {
		if f.Location == r.To {
			return r, nil, impossible("%s was this connection's sink before %s: which of their records are newer is not known, so none can be replayed; "+
				"to have all of them in one sink, collect with --fresh, which fetches all of it again", r.To, now)
		}
	}
	return r, nil, nil
}

// defaultFrom returns the sink from which a replay copies by default.
func defaultFrom(state State, to Location) (Location, error) {
	now := state.SinkAt
	for _, r := range state.Replays {
		if r.To == to && r.State == ReplayUnfinished {
			return r.From, nil
		}
	}
	if now.Kind == "" {
		return now, impossible("nothing was collected yet, so there is nothing to replay: `headway collect` fetches it")
	}
	if now != to {
		if !Replayable(now) {
			return now, notKept(now)
		}
		return now, nil
	}
	var kept, lost []Location
	for _, f := range state.FormerSinks {
		if Replayable(f.Location) {
			kept = append(kept, f.Location)
		} else {
			lost = append(lost, f.Location)
		}
	}
	switch {
	case len(kept) == 1:
		return kept[0], nil
	case len(kept) > 1:
		var names []string
		for _, l := range kept {
			names = append(names, l.String())
		}
		return now, impossible("the connection had several sinks that kept records: name one with --from (%s)", strings.Join(names, "; "))
	case len(lost) > 0:
		return now, notKept(lost[len(lost)-1])
	}
	return now, impossible("%s is the only sink that the connection had: there is nothing to replay", now)
}

// notKept returns the error for a sink whose records cannot be read back.
func notKept(l Location) error {
	return impossible("what was collected went to %s: %v, so it cannot be replayed. It stays where it is; "+
		"to have it in the new sink too, collect with --fresh, which fetches all of it again", l, ErrNotKept)
}

// Blank is a sink that can report whether anything was ever written to it.
type Blank interface {
	Sink
	// Blank reports whether nothing was written up to the committed position.
	Blank(committed json.RawMessage) bool
}

func holdsNothing(sink Sink, committed json.RawMessage) bool {
	b, ok := sink.(Blank)
	return ok && b.Blank(committed)
}

// fingerprint identifies the version of an item: its own fingerprint, or a hash of its data.
func fingerprint(it connector.Item) string {
	if it.Fingerprint != "" {
		return it.Fingerprint
	}
	sum := sha256.Sum256(it.Data)
	return hex.EncodeToString(sum[:16])
}

// children holds the detail records of one item as they were last written: a digest of
// the content by key. With it a changed item writes only the records that changed, and
// deleted records are found.
type children struct {
	last map[string]digest // content by key
	// hashed reports that the keys are digests of keys, as in version 1.
	hashed bool
	// vague reports that there were records whose keys are unknown, since an earlier
	// version or an unreadable encoding holds them.
	vague bool
}

type digest [16]byte

// An encoding begins with its version. Version 1 holds digests of keys, version 2 the
// keys. Earlier encodings have no version byte, and their length is a multiple of 16.
const (
	hashedVersion   = 1
	childrenVersion = 2
)

// readChildren decodes the result of encode. If it cannot, the children are vague: at
// worst a record is written a second time.
func readChildren(b []byte) children {
	c := children{last: map[string]digest{}}
	const size = len(digest{})
	switch {
	case len(b) == 0:
		return c
	case b[0] == hashedVersion && len(b)%(2*size) == 1:
		c.hashed = len(b) > 1
		for b = b[1:]; len(b) > 0; b = b[2*size:] {
			c.last[string(b[:size])] = digest(b[size:])
		}
		return c
	case b[0] == childrenVersion:
		for b = b[1:]; len(b) > 0; {
			n, width := binary.Uvarint(b)
			if width <= 0 || n > uint64(len(b)) || uint64(len(b)) < uint64(width)+n+uint64(size) {
				return children{last: map[string]digest{}, vague: true}
			}
			key := b[width:][:n]
			b = b[width+int(n):]
			c.last[string(key)], b = digest(b), b[size:]
		}
		return c
	}
	c.vague = true
	return c
}

// update replaces the children by the item's current records. It returns the records to
// write, in their order, and the keys and the number of the deleted ones; if c is hashed
// only their number is known. Records with the same key count as one: all of them are
// written if one of them changed.
func (c *children) update(records []connector.Record) (changed []connector.Record, gone []string, n int64) {
	type version struct {
		key     string
		content digest
	}
	now := make(map[string]digest, len(records))
	seen := make(map[version]bool, len(records))
	again := make([]bool, len(records)) // repeated records, which are not written
	for i, r := range records {
		content := sum(r.Data)
		if again[i] = seen[version{r.Key, content}]; again[i] {
			continue
		}
		seen[version{r.Key, content}] = true
		if before, ok := now[r.Key]; ok {
			content = sum(before[:], content[:])
		}
		now[r.Key] = content
	}
	there := make(map[string]bool, len(now))
	for i, r := range records {
		key := r.Key
		if c.hashed {
			hash := sum([]byte(key))
			key = string(hash[:])
		}
		there[key] = true
		if again[i] {
			continue
		}
		if content, ok := c.last[key]; !ok || content != now[r.Key] {
			changed = append(changed, r)
		}
	}
	for key := range c.last {
		if there[key] {
			continue
		}
		n++
		if !c.hashed {
			gone = append(gone, key)
		}
	}
	slices.Sort(gone)
	c.last, c.hashed = now, false
	return changed, gone, n
}

func sum(parts ...[]byte) (d digest) {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write(p)
	}
	copy(d[:], h.Sum(nil))
	return d
}

// encode returns the encoding of the children. Equal children have equal encodings.
func (c children) encode() []byte {
	b := []byte{childrenVersion}
	for _, key := range slices.Sorted(maps.Keys(c.last)) {
		content := c.last[key]
		b = binary.AppendUvarint(b, uint64(len(key)))
		b = append(append(b, key...), content[:]...)
	}
	return b
}

// has reports whether the item has a record with that key. The result is meaningless if
// c is vague.
func (c *children) has(key string) bool {
	if c.hashed {
		hash := sum([]byte(key))
		key = string(hash[:])
	}
	_, ok := c.last[key]
	return ok
}
