package storetest

import (
	"testing"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
)

// shaped is how a stream is read.
func shaped(stream, version string) collect.StreamShape {
	return collect.StreamShape{Stream: stream, DetailStream: "d", Shape: connector.Shape{
		Base: version, List: version, Records: version, Key: version, Fingerprint: version, Incremental: version, Detail: version,
	}}
}

func shapesAreKept(t *testing.T, s collect.Store) {
	l, other := acquire(t, s, "c", "r1", now()), acquire(t, s, "e", "r2", now())
	commit(t, s, other, collect.Commit{Reshaped: []collect.Reshaped{{Shape: shaped("x", "other")}}})
	commit(t, s, l, collect.Commit{SinkAt: collect.Location{Kind: "jsonl"}, Reshaped: []collect.Reshaped{{Shape: shaped("y", "1")}, {Shape: shaped("x", "1")}}})
	gone := shaped("y", "2")
	gone.Gone = true
	commit(t, s, l, collect.Commit{Reshaped: []collect.Reshaped{{Shape: gone}}})
	status := must(s.Connections(t.Context()))(t)[0]
	same(t, "shapes", []collect.StreamShape{shaped("x", "1"), gone}, status.Shapes)
	if state := must(s.Load(t.Context(), "c"))(t); state.SinkAt.Kind != "jsonl" || status.SinkKind != "jsonl" {
		t.Errorf("sink kind %q and %q, want jsonl, which no commit replaced", state.SinkAt.Kind, status.SinkKind)
	}
	if err := s.Forget(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	status = must(s.Connections(t.Context()))(t)[0]
	if len(status.Shapes) != 0 || status.SinkKind != "" {
		t.Errorf("after forget: shapes %v, sink kind %q", status.Shapes, status.SinkKind)
	}
	same(t, "shapes of the other connection", []collect.StreamShape{shaped("x", "other")}, must(s.Connections(t.Context()))(t)[1].Shapes)
}

func reshapedItems(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	item := collect.KnownItem{Key: "k", Fingerprint: "f", Children: []byte("children")}
	own, foreign := gap("d", "k"), gap("other", "k")
	own.Parent, foreign.Parent = "x", "y"
	reset := func() {
		for _, stream := range []string{"x", "y"} {
			commit(t, s, l, collect.Commit{Stream: stream, Items: []collect.KnownItem{item}})
		}
		commit(t, s, l, collect.Commit{Opened: []collect.Gap{own, foreign}})
	}
	for _, c := range []struct {
		name string
		r    collect.Reshaped
		want map[string]collect.KnownItem
		gaps int
	}{
		{"nothing", collect.Reshaped{}, map[string]collect.KnownItem{"k": item}, 2},
		{"fingerprints", collect.Reshaped{ForgetFingerprints: true}, map[string]collect.KnownItem{"k": {Key: "k", Children: item.Children}}, 2},
		{"children", collect.Reshaped{ForgetChildren: true}, map[string]collect.KnownItem{"k": {Key: "k", Fingerprint: "f"}}, 2},
		{"owed", collect.Reshaped{OweDetails: true}, map[string]collect.KnownItem{"k": {Key: "k", Fingerprint: "f", Children: item.Children, Owed: true}}, 2},
		{"items", collect.Reshaped{ForgetItems: true}, map[string]collect.KnownItem{}, 1},
	} {
		reset()
		c.r.Shape = shaped("x", c.name)
		commit(t, s, l, collect.Commit{Reshaped: []collect.Reshaped{c.r}})
		same(t, c.name+": items", c.want, must(s.Known(t.Context(), "c", "x", []string{"k"}))(t))
		same(t, c.name+": items of another stream", map[string]collect.KnownItem{"k": item}, must(s.Known(t.Context(), "c", "y", []string{"k"}))(t))
		if n := len(must(s.Gaps(t.Context(), collect.GapFilter{}))(t)); n != c.gaps {
			t.Errorf("%s: %d gaps, want %d", c.name, n, c.gaps)
		}
		same(t, c.name+": items counted", map[string]int64{"x": int64(len(c.want)), "y": 1}, plus(must(s.Connections(t.Context()))(t)[0].Items, "x"))
	}
	// Items written in the very commit count as of after it.
	commit(t, s, l, collect.Commit{
		Reshaped: []collect.Reshaped{{Shape: shaped("x", "last"), ForgetItems: true}}, Stream: "x", Items: []collect.KnownItem{{Key: "new"}},
	})
	same(t, "items of the commit", map[string]collect.KnownItem{"new": {Key: "new"}}, must(s.Known(t.Context(), "c", "x", []string{"k", "new"}))(t))
}

// plus counts a stream that is not there as 0.
func plus(items map[string]int64, stream string) map[string]int64 {
	if _, ok := items[stream]; !ok {
		items[stream] = 0
	}
	return items
}

func gapsDropped(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	backlog := collect.Gap{GapKey: collect.GapKey{Stream: "d"}, Parent: "x", Backlog: true}
	pending, terminal, recovered, other := gap("d", "p"), gap("d", "t"), gap("d", "r"), gap("e", "p")
	terminal.Status = collect.GapTerminal
	owed := collect.KnownItem{Key: "k", Fingerprint: "f", Owed: true}
	commit(t, s, l, collect.Commit{Stream: "x", Items: []collect.KnownItem{owed}, Opened: []collect.Gap{pending, terminal, recovered, other, backlog}})
	commit(t, s, l, collect.Commit{Stream: "y", Items: []collect.KnownItem{owed}, Recovered: []collect.GapKey{recovered.GapKey}})
	byID := must(s.Gaps(t.Context(), collect.GapFilter{Stream: "e"}))(t)[0].ID
	if n := must(s.Act(t.Context(), collect.GapDrop, collect.GapFilter{}, []int64{byID, 12345}))(t); n != 1 {
		t.Errorf("by id: %d dropped, want 1", n)
	}
	if !must(s.Known(t.Context(), "c", "x", []string{"k"}))(t)["k"].Owed {
		t.Error("an item is owed no more, though its backlog gap was not dropped")
	}
	if n := must(s.Act(t.Context(), collect.GapDrop, collect.GapFilter{Connection: "c", Stream: "d"}, nil))(t); n != 3 {
		t.Errorf("by stream: %d dropped, want 3", n)
	}
	left := must(s.Gaps(t.Context(), collect.GapFilter{}))(t)
	if len(left) != 1 || left[0].Status != collect.GapRecovered {
		t.Errorf("left are %+v, want the recovered one", left)
	}
	if must(s.Known(t.Context(), "c", "x", []string{"k"}))(t)["k"].Owed || !must(s.Known(t.Context(), "c", "y", []string{"k"}))(t)["k"].Owed {
		t.Error("want the backlog's items owed no more, and those of another stream left alone")
	}
}
