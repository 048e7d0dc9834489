package collect

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
)

// Location is where a sink writes: a sink with another one is another sink.
type Location struct {
	// Kind is what it is: "jsonl", "sqlite". "state" is the state file itself.
	Kind string `json:"kind"`
	// Path is the file or folder as the connection names it; empty is nowhere in
	// particular, such as standard output.
	Path string `json:"path,omitempty"`
}

// String says it in words: "jsonl in ./out".
func (l Location) String() string {
	switch {
	case l.Kind == "":
		return "an unknown sink"
	case l.Kind == "state":
		return "sqlite in the state file"
	case l.Path == "":
		return l.Kind
	}
	return l.Kind + " in " + l.Path
}

// FormerSink is a sink that a connection had before, with its position.
type FormerSink struct {
	Location
	Position json.RawMessage
}

// Located is a sink that says where it writes, so that another one is noticed.
type Located interface {
	Sink
	Location() Location
}

// Recognizer is a sink that can tell files that were moved along from others: one
// at another path that recognizes what was committed goes on with it.
type Recognizer interface {
	Located
	// Recognizes reports whether what is there is what was committed at a
	// position. It changes nothing. It is called before Open.
	Recognizes(ctx context.Context, committed json.RawMessage) bool
}

// Noticer is a sink that may find, as it is opened, that files are not as it left
// them and yet all is well.
type Noticer interface {
	Sink
	// Noticed gives what the last Open found.
	Noticed() []Change
}

// Namer is a sink that a stream's name has to suit, such as one of tables.
type Namer interface {
	Sink
	// CheckName says what keeps a stream from having that name; empty is nothing.
	CheckName(stream string) string
}

// SinkChange compares the sink that a connection had with the one it has; ok is
// false when it is the same, or when either is unknown.
func SinkChange(was, is Location) (c Change, ok bool) {
	if was.Kind == "" || is.Kind == "" || was.Kind == is.Kind && (was.Path == "" || was.Path == is.Path) {
		return Change{}, false
	}
	return Change{Kind: SinkChanged, Was: &was, Is: &is}, true
}

// openSink opens the sink where it left off. One that is another than before goes
// on where it was when the connection had it last, or begins anew: what was
// collected before stays where it is.
func (r *execution) openSink(ctx context.Context, state State) error {
	position := state.Sink
	if sink, ok := r.o.Sink.(Located); ok {
		r.at = sink.Location()
	}
	if c, changed := SinkChange(state.SinkAt, r.at); changed {
		moved := false
		if sink, ok := r.o.Sink.(Recognizer); ok && c.Was.Kind == c.Is.Kind {
			moved = sink.Recognizes(ctx, position)
		}
		if moved {
			c.Kind = SinkMoved
		} else {
			position = nil
			for _, f := range state.FormerSinks {
				if f.Location == r.at {
					position, c.Kind = f.Position, SinkReturned
				}
			}
		}
		r.notice(c)
	}
	if _, tables := r.o.Sink.(Restorer); !tables {
		for _, p := range state.Replays {
			if p.To == r.at && p.State == ReplayUnfinished {
				return impossible("a replay of %s into %s is not finished, and what is collected now would stand before older records: "+
					"finish it with `headway replay`, or start over with --fresh", p.From, p.To)
			}
		}
	}
	if err := r.o.Sink.Open(ctx, position, r.streams()); err != nil {
		return err
	}
	if sink, ok := r.o.Sink.(Noticer); ok {
		for _, c := range sink.Noticed() {
			r.notice(c)
		}
	}
	return nil
}

// returned are the replays from now on; nil leaves them. Into a sink that the
// connection went back to nothing can be replayed any more.
func (r *execution) returned(state State) []Replay {
	if !slices.ContainsFunc(r.noticed, func(c Change) bool { return c.Kind == SinkReturned }) {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(state.Replays), func(p Replay) bool { return p.To == r.at })
	return append(left, Replay{To: r.at, State: ReplayRefused})
}

// notice says what differs in the sink, at the start and in the summary.
func (r *execution) notice(c Change) {
	r.say(c)
	r.noticed = append(r.noticed, c)
}

// sinkText says what a change of the sink means.
func (c Change) sinkText() string {
	was, is := "what it was", "it is another one"
	if c.Was != nil && c.Is != nil {
		was, is = c.Was.String(), "it is "+c.Is.String()+" and was "+c.Was.String()
	}
	switch c.Kind {
	case SinkMoved:
		return "the sink's files are at another place, and it goes on with them"
	case SinkReturned:
		return "the sink changed back: " + is + "; it goes on where it was, and what was collected in between is in " + cmp.Or(was, "the other")
	case SinkFileGone:
		return "its file was moved away or emptied since the last run: a new one begins, what was written before is where it was moved to"
	case SinkAhead:
		return "the sink holds more than the state knows, which is an older copy: records that come again replace those that are there"
	default:
		text := "the sink changed: " + is + "; it gets what is collected from now on. What was collected before stays where it is: "
		const fresh = "collect with --fresh, which fetches all of it again"
		switch {
		case c.Was == nil || c.Is == nil:
			return text + "to have it here too, `headway replay` copies what a sqlite sink kept; else " + fresh
		case !Replayable(*c.Was):
			return text + "to have it here too, " + fresh
		case Replayable(*c.Is):
			return text + "to have it here too, `headway replay`, which fetches nothing"
		}
		return text + "to have it here too, `headway replay` while nothing else was written here, which fetches nothing; after that " + fresh
	}
}
