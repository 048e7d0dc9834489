package collect

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
)

// whole is a shape with every field set.
var whole = connector.Shape{Base: "b", List: "l", Records: "r", Key: "k", Fingerprint: "f", Incremental: "i", Detail: "d"}

// shaped is whole with a change.
func shaped(change func(*connector.Shape)) connector.Shape {
	s := whole
	change(&s)
	return s
}

func TestChangesOfAStream(t *testing.T) {
	none := connector.Shape{}
	for _, tt := range []struct {
		name                 string
		was                  connector.Shape
		wasDetails           string
		is                   connector.Shape
		isDetails            string
		want                 []ChangeKind
		restarts, urls, owed bool
	}{
		{"nothing", whole, "m", whole, "m", nil, false, false, false},
		{"nothing, without details", whole, "", whole, "", nil, false, false, false},
		{"from before shapes were kept", none, "", whole, "m", nil, false, false, false},
		{"base", whole, "m", shaped(func(s *connector.Shape) { s.Base = "x" }), "m", []ChangeKind{BaseMoved}, false, true, false},
		{"list", whole, "m", shaped(func(s *connector.Shape) { s.List = "x" }), "m", []ChangeKind{ListChanged}, true, false, false},
		{"records", whole, "m", shaped(func(s *connector.Shape) { s.Records = "x" }), "m", []ChangeKind{RecordsChanged}, true, false, false},
		{"key", whole, "m", shaped(func(s *connector.Shape) { s.Key = "x" }), "m", []ChangeKind{KeyChanged}, true, false, true},
		{"fingerprint", whole, "m", shaped(func(s *connector.Shape) { s.Fingerprint = "" }), "m", []ChangeKind{FingerprintChanged}, true, false, false},
		{"incremental", whole, "m", shaped(func(s *connector.Shape) { s.Incremental = "" }), "m", []ChangeKind{IncrementalChanged}, true, false, false},
		{"detail", whole, "m", shaped(func(s *connector.Shape) { s.Detail = "x" }), "m", []ChangeKind{DetailChanged}, false, false, true},
		{"a detail that was not known", shaped(func(s *connector.Shape) { s.Detail = "" }), "m", whole, "m", nil, false, false, false},
		{"a detail that is not known", whole, "m", shaped(func(s *connector.Shape) { s.Detail = "" }), "m", nil, false, false, false},
		{"what details would be, had it some", whole, "", shaped(func(s *connector.Shape) { s.Detail = "x" }), "", nil, false, false, false},
		{"details added", whole, "", whole, "m", []ChangeKind{DetailAdded}, false, false, true},
		{"details removed", whole, "m", whole, "", []ChangeKind{DetailRemoved}, false, false, false},
		{"details renamed", whole, "m", whole, "n", []ChangeKind{DetailRenamed}, false, false, true},
		{"a program that says no shape now", whole, "m", none, "m", nil, false, false, false},
		{"a program that says a shape now", none, "m", whole, "m", nil, false, false, false},
		{"a program that says none and renames", none, "m", none, "n", []ChangeKind{DetailRenamed}, false, false, true},
		{"all of it", whole, "m", connector.Shape{Base: "x"}, "n",
			[]ChangeKind{BaseMoved, ListChanged, RecordsChanged, KeyChanged, FingerprintChanged, IncrementalChanged, DetailRenamed}, true, true, true},
	} {
		was := StreamShape{Stream: "docs", Shape: tt.was, DetailStream: tt.wasDetails}
		got := was.against(connector.Stream{Name: "docs", Shape: tt.is, DetailStream: tt.isDetails})
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
		restarts, urls, owed := false, false, false
		for _, k := range got {
			restarts, urls, owed = restarts || k.restarts(), urls || k == BaseMoved, owed || k.rereads()
		}
		if restarts != tt.restarts || urls != tt.urls || owed != tt.owed {
			t.Errorf("%s: restarts %v, loses URLs %v, rereads details %v", tt.name, restarts, urls, owed)
		}
	}
}

func TestChangesOfAConnection(t *testing.T) {
	streams := []connector.Stream{
		{Name: "talks", Shape: shaped(func(s *connector.Shape) { s.Key, s.List = "x", "x" })},
		{Name: "docs", Shape: whole},
		{Name: "new", Shape: whole},
		{Name: "old", Shape: whole},
		{Name: "walked", Shape: whole},
	}
	was := ConnectionStatus{
		Shapes: []StreamShape{
			{Stream: "talks", Shape: whole}, {Stream: "docs", Shape: whole}, {Stream: "zoo", Shape: whole}, {Stream: "ant", Shape: whole},
			{Stream: "left", Shape: whole, Gone: true},
		},
		Items: map[string]int64{"talks": 7, "docs": 8, "zoo": 9, "old": 3},
		Lanes: []Lane{{Stream: "walked", Kind: Catchup}},
	}
	want := []Change{
		{Kind: ListChanged, Stream: "talks", Count: 7}, {Kind: KeyChanged, Stream: "talks", Count: 7},
		{Kind: StreamAdded, Stream: "new"},
		{Kind: StreamGone, Stream: "ant"}, {Kind: StreamGone, Stream: "zoo", Count: 9},
	}
	for range 20 { // maps have no order
		if diff := cmp.Diff(want, Changes(was, streams)); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	}
	if got := Changes(ConnectionStatus{}, streams); got != nil {
		t.Errorf("a connection never collected has changed: %v", got)
	}
}

func TestChangesToKnownItems(t *testing.T) {
	plain := connector.Stream{Name: "docs", DetailStream: "messages", Shape: connector.Shape{Base: "b"}}
	marked := plain
	marked.Shape.Fingerprint = "f"
	for _, tt := range []struct {
		name  string
		s     connector.Stream
		kinds []ChangeKind
		want  Reshaped
	}{
		{"nothing", plain, nil, Reshaped{}},
		{"a list", plain, []ChangeKind{BaseMoved, ListChanged, FingerprintChanged, IncrementalChanged, DetailRemoved, StreamAdded}, Reshaped{}},
		{"a key", plain, []ChangeKind{KeyChanged}, Reshaped{ForgetItems: true}},
		{"records, which are their own fingerprint", plain, []ChangeKind{RecordsChanged}, Reshaped{}},
		{"records with a fingerprint", marked, []ChangeKind{RecordsChanged}, Reshaped{ForgetFingerprints: true}},
		{"details", plain, []ChangeKind{DetailAdded}, Reshaped{OweDetails: true}},
		{"other details", plain, []ChangeKind{DetailChanged}, Reshaped{OweDetails: true}},
		{"details elsewhere", plain, []ChangeKind{DetailRenamed}, Reshaped{OweDetails: true, ForgetChildren: true}},
		{"all", marked, []ChangeKind{KeyChanged, RecordsChanged, DetailRenamed}, Reshaped{ForgetItems: true, ForgetFingerprints: true, OweDetails: true, ForgetChildren: true}},
	} {
		tt.want.Shape = StreamShape{Stream: "docs", Shape: tt.s.Shape, DetailStream: "messages"}
		if diff := cmp.Diff(tt.want, reshape(tt.s, tt.kinds)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

func TestWhichCursorsAreURLs(t *testing.T) {
	for cursor, want := range map[string]bool{
		"/items?page=2": true, "http://x.test/2": true, "https://x.test/2": true,
		"": false, "2": false, "http": false, "https:/x": false, "after-http://x": false, "x/2": false,
	} {
		if got := isURL(cursor); got != want {
			t.Errorf("%q: %v", cursor, got)
		}
	}
}

func TestWhichGapsNoStreamCanFetch(t *testing.T) {
	streams := []connector.Stream{{Name: "talks"}, {Name: "docs", DetailStream: "messages"}}
	for _, tt := range []struct {
		name             string
		stream, parent   string
		backlog          bool
		orphan, badEntry bool
	}{
		{"a detail", "messages", "docs", false, false, false},
		{"a backlog", "messages", "docs", true, false, false},
		{"a detail of another name", "notes", "docs", false, true, false},
		{"a detail of another list", "messages", "talks", false, true, false},
		{"a detail of a list that is gone", "messages", "papers", false, true, false},
		{"a bad entry", "docs", "docs", false, false, true},
		{"a bad entry of a list without details", "talks", "talks", false, false, true},
		{"a bad entry of a list that is gone", "papers", "papers", false, true, true},
		{"a backlog of a list's own name", "docs", "docs", true, true, false},
	} {
		g := Gap{GapKey: GapKey{Stream: tt.stream, Key: "k"}, Parent: tt.parent, Backlog: tt.backlog}
		if got := Orphaned(g, streams); got != tt.orphan || g.bad() != tt.badEntry {
			t.Errorf("%s: orphaned %v, a bad entry %v", tt.name, got, g.bad())
		}
	}
}

func TestAChangeSaysWhatTheNextRunDoes(t *testing.T) {
	for kind, want := range map[ChangeKind]string{
		StreamAdded:        "stream s: it is new and is collected from the beginning",
		StreamGone:         "stream s: it is no longer in the connection; its position and 7 known items are kept in case it comes back",
		BaseMoved:          "stream s: its base_url changed: known items stay known; a walk that was about to request its next page by URL starts again",
		ListChanged:        "stream s: its list changed: the walk starts again, items that did not change are skipped",
		RecordsChanged:     "stream s: its records changed: the walk starts again, and items that differ are written again",
		KeyChanged:         "stream s: its key changed: 7 known items are forgotten and all is collected again; records with the old key stay in the sink",
		FingerprintChanged: "stream s: its fingerprint changed: the walk starts again, and all items count as changed",
		IncrementalChanged: "stream s: its incremental changed: the walk starts again, items that did not change are skipped",
		DetailAdded:        "stream s: its details were added: those of 7 known items are owed",
		DetailChanged:      "stream s: its details changed: those of 7 known items are owed again",
		DetailRenamed:      "stream s: its details go to another stream: those of 7 known items are owed again; details in the old stream stay there",
		DetailRemoved:      "stream s: its details were removed: no more are collected",
		GapsOrphaned:       "stream s: the connection no longer has it, and 7 details are owed that no run can fetch: restore the stream, or drop them",
		SinkFileGone:       "stream s: its file was moved away or emptied since the last run: a new file begins, earlier records are in the old one",
		"of_a_later_day":   "stream s: of_a_later_day",
	} {
		c := Change{Kind: kind, Stream: "s", Count: 7}
		if got := c.String(); got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
		e := event.Event{Type: event.ConnectionChanged, Note: string(kind), Stream: "s", Count: 7}
		if diff := cmp.Diff(c, ChangeOf(e)); diff != "" {
			t.Errorf("%s as an event: -want +got:\n%s", kind, diff)
		}
	}
	for kind, want := range map[ChangeKind]string{
		StreamGone:   "its position and 1 known item are kept in case it comes back",
		KeyChanged:   "its key changed: 1 known item is forgotten and all is collected again; records with the old key stay in the sink",
		DetailAdded:  "its details were added: those of 1 known item are owed",
		GapsOrphaned: "the connection no longer has it, and 1 detail is owed that no run can fetch: restore the stream, or drop that",
	} {
		if got := (Change{Kind: kind, Count: 1}).String(); !strings.HasSuffix(got, want) {
			t.Errorf("%s of one: %q, want %q", kind, got, want)
		}
	}
	if got, want := (Change{Kind: StreamAdded}).String(), "it is new and is collected from the beginning"; got != want {
		t.Errorf("of all streams: %q, want %q", got, want)
	}
	warning := connector.Warning{Kind: connector.PagingUnmatched, Stream: "s", Records: 7}
	if diff := cmp.Diff(warning, WarningOf(event.Event{Type: event.Warning, Note: string(connector.PagingUnmatched), Stream: "s", Count: 7})); diff != "" {
		t.Errorf("a warning as an event: -want +got:\n%s", diff)
	}
}

func TestAChangedSinkSaysWhatBecomesOfWhatWasCollected(t *testing.T) {
	jsonl, other := Location{Kind: "jsonl", Path: "./out"}, Location{Kind: "jsonl", Path: "./new"}
	tables, state := Location{Kind: "sqlite", Path: "a.db"}, Location{Kind: "state"}
	const begins, stays = "the sink changed: ", "; it gets what is collected from now on. What was collected before stays where it is: to have it here too, "
	for _, tt := range []struct {
		kind    ChangeKind
		was, is *Location
		want    string
	}{
		{SinkChanged, &tables, &state, begins + "it is sqlite in the state file and was sqlite in a.db" + stays + "`headway replay`, which fetches nothing"},
		{SinkChanged, &tables, &jsonl, begins + "it is jsonl in ./out and was sqlite in a.db" + stays +
			"`headway replay` while nothing else was written here, which fetches nothing; after that collect with --fresh, which fetches all of it again"},
		{SinkChanged, &jsonl, &other, begins + "it is jsonl in ./new and was jsonl in ./out" + stays + "collect with --fresh, which fetches all of it again"},
		{SinkChanged, nil, nil, begins + "it is another one" + stays + "`headway replay` copies what a sqlite or postgres sink kept; else collect with --fresh, which fetches all of it again"},
		{SinkChanged, &tables, nil, begins + "it is another one" + stays + "`headway replay` copies what a sqlite or postgres sink kept; else collect with --fresh, which fetches all of it again"},
		{SinkChanged, nil, &tables, begins + "it is another one" + stays + "`headway replay` copies what a sqlite or postgres sink kept; else collect with --fresh, which fetches all of it again"},
		{SinkReturned, &tables, &Location{}, "the sink changed back: it is an unknown sink and was sqlite in a.db; it goes on where it was, and what was collected in between is in sqlite in a.db"},
		{SinkReturned, nil, nil, "the sink changed back: it is another one; it goes on where it was, and what was collected in between is in the other"},
		{SinkMoved, &jsonl, &other, "the sink's files are at another place, and it continues with them"},
		{SinkAhead, nil, nil, "the sink holds more than the state, which is an older copy: records that are collected again replace those in the sink"},
	} {
		if got := (Change{Kind: tt.kind, Was: tt.was, Is: tt.is}).String(); got != tt.want {
			t.Errorf("%s from %v to %v: %q, want %q", tt.kind, tt.was, tt.is, got, tt.want)
		}
	}
	for _, tt := range []struct {
		name    string
		was, is Location
		changed bool
	}{
		{"the same", tables, tables, false},
		{"another path", jsonl, other, true},
		{"another kind", jsonl, tables, true},
		{"another kind of one path", Location{"jsonl", "x"}, Location{"parquet", "x"}, true},
		{"another kind, nowhere in particular", Location{Kind: "singer"}, Location{Kind: "airbyte"}, true},
		{"a path where none was on record", Location{Kind: "jsonl"}, jsonl, false},
		{"no path where one was on record", jsonl, Location{Kind: "jsonl"}, true},
		{"the former sink is unknown", Location{}, jsonl, false},
		{"the current sink is unknown", jsonl, Location{}, false},
	} {
		want := Change{}
		if tt.changed {
			want = Change{Kind: SinkChanged, Was: &tt.was, Is: &tt.is}
		}
		got, changed := SinkChange(tt.was, tt.is)
		if diff := cmp.Diff(want, got); diff != "" || changed != tt.changed {
			t.Errorf("%s: %v; -want +got:\n%s", tt.name, changed, diff)
		}
	}
	for l, want := range map[Location]string{
		{}: "an unknown sink", {Path: "x"}: "an unknown sink", {Kind: "state", Path: "x"}: "sqlite in the state file",
		{Kind: "singer"}: "singer", jsonl: "jsonl in ./out",
	} {
		if got := l.String(); got != want {
			t.Errorf("%#v is %q, want %q", l, got, want)
		}
	}
}

// opening is a sink that records the position at which it was opened.
type opening struct {
	place
	position json.RawMessage
	found    []Change
	fails    error
}

func (o *opening) Noticed() []Change { return o.found }

func (o *opening) Open(_ context.Context, committed json.RawMessage, _ []StreamInfo) error {
	o.position = committed
	return o.fails
}

// openTable is an opening that takes older records at any time.
type openTable struct{ *opening }

func (openTable) Restore(context.Context, string, []KeptRecord) error { return nil }

func TestPositionOfAReopenedSink(t *testing.T) {
	files, other, tables := Location{"jsonl", "./out"}, Location{"jsonl", "./old"}, Location{"sqlite", "a.db"}
	former := []FormerSink{{other, json.RawMessage(`1`)}, {files, json.RawMessage(`5`)}}
	unfinished := func(to Location) []Replay { return []Replay{{From: tables, To: to, State: ReplayUnfinished}} }
	for _, tt := range []struct {
		name    string
		was     Location
		mine    bool
		tables  bool
		former  []FormerSink
		replays []Replay
		found   []Change
		fails   error
		at      string
		want    []ChangeKind
		left    []Replay // replays that are on record from now on
		err     string
	}{
		{name: "where it was", was: files, former: former, at: "7"},
		{name: "the former position is unknown", at: "7"},
		{name: "moved with its files", was: other, mine: true, former: former, at: "7", want: []ChangeKind{SinkMoved}},
		{name: "at another place", was: other, former: former[:1], want: []ChangeKind{SinkChanged}},
		{name: "of another kind, though it knows the files", was: tables, mine: true, want: []ChangeKind{SinkChanged}},
		{
			name: "where it was before", was: tables, former: former, at: "5", want: []ChangeKind{SinkReturned},
			replays: []Replay{{From: other, To: files, State: ReplayDone}, {From: files, To: tables, State: ReplayDone}},
			left:    []Replay{{From: files, To: tables, State: ReplayDone}, {To: files, State: ReplayRefused}},
		},
		{name: "beside an unfinished replay", was: files, replays: unfinished(files), err: "a replay of sqlite in a.db into jsonl in ./out is not finished"},
		{name: "beside one into another", was: files, replays: unfinished(other), at: "7"},
		{name: "after one that is done", was: files, replays: []Replay{{To: files, State: ReplayDone}}, at: "7"},
		{name: "tables beside an unfinished replay", was: files, tables: true, replays: unfinished(files), at: "7"},
		{name: "without its files", was: files, found: []Change{{Kind: SinkFileGone}}, at: "7", want: []ChangeKind{SinkFileGone}},
		{name: "that cannot be opened", was: files, fails: errors.New("no such disk"), found: []Change{{Kind: SinkFileGone}}, at: "7", err: "no such disk"},
	} {
		o := &opening{place: place{at: files, mine: tt.mine}, found: tt.found, fails: tt.fails}
		s := &shelf{}
		r := upon(t, s)
		r.o.Sink = o
		if tt.tables {
			r.o.Sink = openTable{o}
		}
		state := State{SinkAt: tt.was, Sink: json.RawMessage(`7`), FormerSinks: tt.former, Replays: tt.replays}
		err := r.openSink(t.Context(), state)
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
		var noticed []ChangeKind
		for _, c := range r.noticed {
			noticed = append(noticed, c.Kind)
		}
		if string(o.position) != tt.at || !slices.Equal(noticed, tt.want) || len(s.said) != len(noticed) {
			t.Errorf("%s: opened at %q, noticed %q, said %+v; want %q, %q", tt.name, o.position, noticed, s.said, tt.at, tt.want)
		}
		if diff := cmp.Diff(tt.left, r.returned(state)); diff != "" {
			t.Errorf("%s: replays: -want +got:\n%s", tt.name, diff)
		}
	}
}

func TestTombstonesQuoteKeysAsTheyAre(t *testing.T) {
	got, err := tombstones("p&q", []string{"<a>", "b"}, clock(0))
	const want = `{"_headway_deleted_at":"2023-11-14T22:13:20Z","_headway_parent":"p&q","_headway_key":"<a>"}`
	if err != nil || len(got) != 2 || string(got[0].Data) != want || got[0].Key != "<a>" || got[0].Parent != "p&q" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestStatusOf(t *testing.T) {
	s := &shelf{status: ConnectionStatus{Name: "bench", Quarantined: 2}}
	if was, ok, err := StatusOf(t.Context(), s, "bench"); err != nil || !ok || was.Quarantined != 2 {
		t.Errorf("%+v, %v, %v", was, ok, err)
	}
	if was, ok, err := StatusOf(t.Context(), s, "other"); err != nil || ok || was.Name != "" {
		t.Errorf("another: %+v, %v, %v", was, ok, err)
	}
	s.lost = errors.New("the disk is gone")
	if was, ok, err := StatusOf(t.Context(), s, "bench"); err == nil || ok || was.Name != "" {
		t.Errorf("of a store that fails: %+v, %v, %v", was, ok, err)
	}
}

func TestCheckStreams(t *testing.T) {
	there := []connector.Stream{{Name: "docs", DetailStream: "messages"}, {Name: "users"}, {Name: "talks", DetailStream: "replies"}}
	for _, tt := range []struct {
		names []string
		err   string
	}{
		{[]string{"docs"}, ""},
		{[]string{"users", "talks"}, ""},
		{[]string{"messages"}, `stream "messages" is collected with docs, whose details it holds: name docs instead`},
		{[]string{"replies"}, `stream "replies" is collected with talks, whose details it holds: name talks instead`},
		{[]string{"users", "other"}, `no stream "other" in this connection, which has docs, users, talks`},
		{[]string{""}, `no stream ""`},
	} {
		err := CheckStreams(tt.names, there)
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %v, want %q", tt.names, err, tt.err)
		}
	}
	o := Options{Connection: "bench", Connector: lists{streams: there}, Store: &shelf{}, Sink: &paper{}}
	for _, change := range []func(*Options){
		func(o *Options) { o.Streams = []string{} }, func(o *Options) { o.Lane = Catchup }, func(o *Options) { o.Lane = Steady }, func(o *Options) { o.Concurrency = 1024 },
	} {
		o := o
		change(&o)
		c, err := New(o)
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		if c.o.Streams != nil || c.o.LeaseTTL != 30*time.Second || c.o.MaxBody != 64<<20 || c.o.Timeout != 30*time.Second {
			t.Errorf("it becomes %+v", c.o)
		}
	}
	for want, change := range map[string]func(*Options){
		"catch-up pages is -1":                func(o *Options) { o.CatchupPages = -1 },
		`lane is "both"`:                      func(o *Options) { o.Lane = "both" },
		"concurrency is -1, must be from 1":   func(o *Options) { o.Concurrency = -1 },
		"concurrency is 1025, must be from 1": func(o *Options) { o.Concurrency = 1025 },
		"which forgets the whole connection":  func(o *Options) { o.Streams, o.Fresh = []string{"docs"}, true },
	} {
		o := o
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
