package storetest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
)

func sinksReplaced(t *testing.T, s collect.Store) {
	l, other := acquire(t, s, "c", "r1", now()), acquire(t, s, "e", "r2", now())
	at := func(l collect.Lease, kind, path, position string) {
		t.Helper()
		c := collect.Commit{SinkAt: collect.Location{Kind: kind, Path: path}}
		if position != "" {
			c.Sink = json.RawMessage(position)
		}
		commit(t, s, l, c)
	}
	shows := func(kind, path, position string, former ...collect.FormerSink) {
		t.Helper()
		state := must(s.Load(t.Context(), "c"))(t)
		want := collect.Location{Kind: kind, Path: path}
		if state.SinkAt != want || string(state.Sink) != position {
			t.Errorf("the sink is %+v with %s, want %+v with %s", state.SinkAt, state.Sink, want, position)
		}
		same(t, "former sinks", former, state.FormerSinks)
		status := must(s.Connections(t.Context()))(t)[0]
		var locations []collect.Location
		for _, f := range former {
			locations = append(locations, f.Location)
		}
		same(t, "former sinks on show", locations, status.FormerSinks)
		if status.SinkAt() != want {
			t.Errorf("on show is %+v, want %+v", status.SinkAt(), want)
		}
	}
	former := func(kind, path, position string) collect.FormerSink {
		return collect.FormerSink{Location: collect.Location{Kind: kind, Path: path}, Position: json.RawMessage(position)}
	}
	at(other, "jsonl", "z", `"z"`)
	commit(t, s, l, collect.Commit{Sink: json.RawMessage(`"0"`)})
	shows("", "", `"0"`)
	at(l, "jsonl", "a", `"1"`) // what is unknown is not kept aside
	shows("jsonl", "a", `"1"`)
	at(l, "jsonl", "a", `"2"`)
	commit(t, s, l, collect.Commit{Sink: json.RawMessage(`"3"`)})
	shows("jsonl", "a", `"3"`)
	at(l, "sqlite", "a", `"4"`)
	at(l, "jsonl", "b", `"5"`)
	shows("jsonl", "b", `"5"`, former("jsonl", "a", `"3"`), former("sqlite", "a", `"4"`))
	at(l, "jsonl", "a", `"6"`)
	shows("jsonl", "a", `"6"`, former("jsonl", "b", `"5"`), former("sqlite", "a", `"4"`))
	if err := s.Forget(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	shows("", "", "")
	if state := must(s.Load(t.Context(), "e"))(t); state.SinkAt.Path != "z" || string(state.Sink) != `"z"` {
		t.Errorf("the other connection has %+v", state)
	}
}

func replaysKept(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	one := collect.Replay{
		From: collect.Location{Kind: "sqlite", Path: "a"}, To: collect.Location{Kind: "jsonl", Path: "b"}, State: collect.ReplayUnfinished,
		Records: 3, Deleted: 1, Started: now().UTC().Round(0), Stream: "docs", After: collect.RecordID{Parent: "p", Key: "k"},
	}
	shown := one
	shown.Stream, shown.After = "", collect.RecordID{}
	refused := collect.Replay{To: collect.Location{Kind: "sqlite", Path: "c"}, State: collect.ReplayRefused}
	shows := func(stored, onShow []collect.Replay) {
		t.Helper()
		same(t, "replays", stored, must(s.Load(t.Context(), "c"))(t).Replays)
		same(t, "replays on show", onShow, must(s.Connections(t.Context()))(t)[0].Replays)
	}
	shows(nil, nil)
	commit(t, s, l, collect.Commit{Replays: []collect.Replay{one, refused}})
	shows([]collect.Replay{one, refused}, []collect.Replay{shown})
	commit(t, s, l, collect.Commit{})
	shows([]collect.Replay{one, refused}, []collect.Replay{shown})
	commit(t, s, l, collect.Commit{Replays: []collect.Replay{}})
	shows(nil, nil)
	commit(t, s, l, collect.Commit{Replays: []collect.Replay{one}})
	if err := s.Forget(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	shows(nil, nil)

	// A replay has the lease and a record, and is not the connection's last run.
	if err := s.Finish(t.Context(), l, collect.RunEnd{At: now(), State: collect.RunDrained}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), collect.LeaseRequest{Connection: "c", Run: "r2", Kind: collect.RunReplays, Holder: "h", Now: now(), TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	runs := must(s.Runs(t.Context(), "c", 1))(t)
	if len(runs) != 1 || runs[0].ID != "r2" || runs[0].Kind != collect.RunReplays {
		t.Errorf("the newest run is %+v", runs)
	}
	status := must(s.Connections(t.Context()))(t)[0]
	if status.LastRun == nil || status.LastRun.ID != "r1" || status.Holder == "" {
		t.Errorf("the status has the last run %+v and the holder %q", status.LastRun, status.Holder)
	}
}
