package airbyte

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

var (
	epoch = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	infos = []collect.StreamInfo{{Name: "chats", KeyField: "id"}, {Name: "messages", Parent: "chats"}, {Name: "users"}}
)

// bench is a sink before a platform, with a run that reports what the test sets.
type bench struct {
	*Sink
	platform *platform
	now      collect.Live
}

func newBench(t *testing.T, committed string) *bench {
	t.Helper()
	b := &bench{platform: newPlatform()}
	b.now.More = true
	at := epoch
	b.Sink = New(b.platform, Options{
		Now:  func() time.Time { at = at.Add(time.Second); return at },
		Live: func() (collect.Live, bool) { return b.now, true },
	})
	b.platform.session(json.RawMessage(committed))
	if err := b.Open(t.Context(), json.RawMessage(committed), infos); err != nil {
		t.Fatal(err)
	}
	b.slice(t)
	return b
}

// put writes n records.
func (b *bench) put(t *testing.T, stream string, n int) {
	t.Helper()
	var records []collect.Record
	for i := range n {
		records = append(records, collect.Record{Key: fmt.Sprint(i), Parent: "p", Data: json.RawMessage(fmt.Sprintf(`{"id":%d}`, i))})
	}
	if err := b.Write(t.Context(), stream, records); err != nil {
		t.Fatal(err)
	}
}

// slice does what the runtime does at the end of a slice.
func (b *bench) slice(t *testing.T) string {
	t.Helper()
	p, err := b.Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Committed(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return string(p)
}

func (b *bench) phase(stream string) {
	b.OnEvent(event.Event{Type: event.Phase, Stream: stream, Phase: "catchup"})
}

// end ends the run, as the runtime does: the sink is closed before the event.
func (b *bench) end(t *testing.T, why reason.Reason) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.OnEvent(event.Event{Type: event.RunEnd, Reason: why})
}

func (b *bench) statuses(t *testing.T, want map[string][]string) {
	t.Helper()
	got := map[string][]string{}
	for name, w := range b.platform.streams {
		got[name] = w.statuses
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

func backedOff(why reason.Reason) event.Event {
	return event.Event{Type: event.CollectionRate, Note: "back_off", Rate: &event.Rate{LastBackoff: &event.Backoff{Reason: why}}}
}

// TestMessages is a run that is slowed down and drained, to the letter.
func TestMessages(t *testing.T) {
	b := newBench(t, `{"streams":{"chats":{"position":7},"gone":{"position":3}}}`)
	b.OnEvent(event.Event{Type: event.RunStart})
	b.phase("chats")
	b.put(t, "chats", 2)
	b.now.Pacing.RetryAt = epoch.Add(time.Minute)
	b.OnEvent(backedOff(reason.RateLimited.Reason()))
	b.put(t, "messages", 1)
	b.slice(t)
	b.now.More, b.now.Owed = false, 2
	b.put(t, "chats", 1)
	b.put(t, "messages", 2)
	p := b.slice(t)
	b.end(t, reason.Drained)
	if want := `{"streams":{"chats":{"position":10},"gone":{"position":3},"messages":{"position":3}}}`; p != want {
		t.Errorf("the position is %s, want %s", p, want)
	}
	got := strings.Join(b.platform.messages, "\n") + "\n"
	const file = "testdata/messages.jsonl"
	if golden.Updating() {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestARunThatDrainsCompletesEachStream(t *testing.T) {
	b := newBench(t, "")
	b.phase("chats")
	b.put(t, "chats", 1)
	b.slice(t)
	b.end(t, reason.Drained)
	b.statuses(t, map[string][]string{
		"chats": {"STARTED", "RUNNING", "COMPLETE"}, "messages": {"STARTED", "COMPLETE"}, "users": {"STARTED", "COMPLETE"},
	})
	b.end(t, reason.Drained) // once more is nothing
	if n := len(b.platform.streams["users"].statuses); n != 2 {
		t.Errorf("%d statuses", n)
	}
}

func TestARunThatStopsLeavesStreamsIncomplete(t *testing.T) {
	at := epoch.Add(time.Hour)
	for why, last := range map[reason.Reason]string{
		reason.MaxWallClock.Reason(): "INCOMPLETE", reason.Interrupted: "INCOMPLETE", reason.Unauthorized: "INCOMPLETE", reason.None: "INCOMPLETE",
		reason.RateLimited.Reason(): fmt.Sprintf("INCOMPLETE RATE_LIMITED %d", at.UnixMilli()), reason.QuotaExhausted: fmt.Sprintf("INCOMPLETE RATE_LIMITED %d", at.UnixMilli()),
		reason.Cooldown:             fmt.Sprintf("INCOMPLETE RATE_LIMITED %d", at.UnixMilli()),
		reason.CircuitOpen.Reason(): fmt.Sprintf("INCOMPLETE RATE_LIMITED %d", at.UnixMilli()),
	} {
		b := newBench(t, "")
		b.phase("chats")
		b.put(t, "chats", 1)
		b.slice(t)
		b.now.Pacing.RetryAt = at
		b.end(t, why)
		b.statuses(t, map[string][]string{"chats": {"STARTED", "RUNNING", last}, "messages": {"STARTED", last}}) // and no users
	}
}

func TestPressureIsReportedWithItsEnd(t *testing.T) {
	b := newBench(t, "")
	b.phase("chats")
	b.put(t, "chats", 1)
	b.phase("users")
	at := epoch.Add(90 * time.Second)
	limited := fmt.Sprintf("RUNNING RATE_LIMITED %d", at.UnixMilli())
	b.now.Pacing.RetryAt = at
	for range 2 { // reported once
		b.OnEvent(backedOff(reason.RateLimited.Reason()))
	}
	b.put(t, "users", 1) // it goes on
	b.OnEvent(event.Event{Type: event.Circuit, Reason: reason.CircuitOpen.Reason(), Circuit: &event.Breaker{State: "open"}})
	b.now.Pacing.RetryAt = time.Time{} // nobody knows until when
	b.OnEvent(event.Event{Type: event.Deferral, Stream: "users", Reason: reason.UpstreamPressure.Reason(), Count: 3})
	b.put(t, "users", 1)
	for _, other := range []event.Event{
		{Type: event.Deferral, Reason: reason.MaxRequests.Reason()}, {Type: event.Deferral, Reason: reason.NotFound},
		{Type: event.Circuit, Reason: reason.CircuitOpen.Reason(), Circuit: &event.Breaker{State: "half_open"}},
		{Type: event.Circuit, Circuit: &event.Breaker{State: "closed"}}, {Type: event.WarmStart}, {Type: event.Circuit},
		{Type: event.CollectionRate, Note: "speed_up", Rate: &event.Rate{LastBackoff: &event.Backoff{Reason: reason.RateLimited.Reason()}}},
		{Type: event.CollectionRate, Note: "back_off"}, {Type: event.Phase, Stream: "unknown"}, {Type: event.Phase},
	} {
		b.OnEvent(other)
	}
	b.slice(t)
	b.statuses(t, map[string][]string{
		"chats": {"STARTED", "RUNNING"}, "messages": {"STARTED"},
		"users": {"STARTED", limited, "RUNNING", limited, "RUNNING RATE_LIMITED 0", "RUNNING"},
	})
}

func TestStatesAreOfCommittedSlicesOnly(t *testing.T) {
	b := newBench(t, "")
	b.phase("chats")
	b.put(t, "chats", 2)
	p, err := b.Sync(t.Context())
	if err != nil || b.platform.streams["chats"].states != 0 {
		t.Fatalf("a state before the commit: %q, %v", b.platform.messages, err)
	}
	// The commit happened, the process died, the next one reports it, in order.
	b = newBench(t, string(p))
	if len(b.platform.messages) != 0 {
		t.Errorf("before the stream started: %q", b.platform.messages)
	}
	b.phase("chats")
	if w := b.platform.streams["chats"]; w.states != 1 || w.position != 2 {
		t.Errorf("after it: %q", b.platform.messages)
	}
	b.put(t, "chats", 1)
	b.slice(t)
	b.slice(t) // the same position is not a state
	if w := b.platform.streams["chats"]; w.states != 2 || w.position != 3 {
		t.Errorf("after the slice: %q", b.platform.messages)
	}
}

func TestEstimatesAreGivenOnceNoPageFollows(t *testing.T) {
	b := newBench(t, "")
	b.phase("chats")
	b.put(t, "chats", 10)
	b.now.Owed = 9
	b.put(t, "messages", 3)
	b.slice(t)
	if got := b.platform.streams["messages"].estimates; got != nil {
		t.Errorf("with pages to come: %v", got)
	}
	b.now.More, b.now.Owed = false, 4
	b.put(t, "chats", 5)
	b.put(t, "messages", 5) // 4 a detail so far, 4 to come
	b.now.Owed = 3
	b.put(t, "messages", 100) // once a slice
	b.slice(t)
	b.now.Owed = 0
	b.put(t, "messages", 1)
	b.slice(t)
	if got := b.platform.streams["messages"].estimates; !slices.Equal(got, []int64{8 + 16, 109}) {
		t.Errorf("messages: %v", got)
	}
	if got := b.platform.streams["chats"].estimates; !slices.Equal(got, []int64{15}) {
		t.Errorf("chats: %v", got)
	}
}

func TestWithoutLiveThereIsNeitherEstimateNorReset(t *testing.T) {
	p := newPlatform()
	s := New(p, Options{})
	if err := s.Open(t.Context(), nil, infos); err != nil {
		t.Fatal(err)
	}
	s.OnEvent(event.Event{Type: event.Phase, Stream: "chats"})
	s.OnEvent(backedOff(reason.RateLimited.Reason()))
	if err := s.Write(t.Context(), "messages", []collect.Record{{Key: "1", Parent: "p", Data: json.RawMessage(`1`)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := p.streams["messages"]
	if !slices.Equal(w.statuses, []string{"STARTED", "RUNNING RATE_LIMITED 0", "RUNNING"}) || w.estimates != nil {
		t.Errorf("got %q, %v", w.statuses, w.estimates)
	}
	if diff := cmp.Diff(map[string]any{"_headway_parent": "p", "_headway_key": "1", "_headway_value": json.Number("1")}, w.records[0]); diff != "" {
		t.Error(diff)
	}
}

func TestBadRecordsLeaveNothing(t *testing.T) {
	b := newBench(t, "")
	for stream, data := range map[string]string{"chats": `{"secret":1}`, "messages": `{`, "users": `{"_headway_key":"secret"}`, "nobody": `{}`} {
		err := b.Write(t.Context(), stream, []collect.Record{{Key: "1", Data: json.RawMessage(`{"id":1}`)}, {Key: "2", Data: json.RawMessage(data)}})
		if err == nil || !strings.HasPrefix(err.Error(), "airbyte: stream") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", stream, err)
		}
	}
	if p := b.slice(t); p != `{"streams":{}}` || len(b.platform.messages) != 0 {
		t.Errorf("position %s after %q", p, b.platform.messages)
	}
	b.put(t, "chats", 0)
	if len(b.platform.messages) != 0 {
		t.Errorf("no records are %q", b.platform.messages)
	}
}

func TestABrokenPipeCommitsNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	s := New(w, Options{})
	if err := s.Open(t.Context(), nil, infos); err != nil {
		t.Fatal(err)
	}
	s.OnEvent(event.Event{Type: event.Phase, Stream: "chats"})
	if err := r.Close(); err != nil { // the reader died
		t.Fatal(err)
	}
	s.OnEvent(event.Event{Type: event.Phase, Stream: "users"}) // has nobody to tell
	write := func() error {
		return s.Write(t.Context(), "users", []collect.Record{{Key: "1", Data: json.RawMessage(`{}`)}})
	}
	for range 2 {
		_, synced := s.Sync(t.Context())
		for _, err := range []error{write(), synced} {
			if !errors.Is(err, syscall.EPIPE) || !strings.Contains(err.Error(), "has ended") {
				t.Errorf("got %v, want that the pipe is broken", err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.OnEvent(event.Event{Type: event.RunEnd})
	s.w = &bytes.Buffer{}
	if err := s.Open(t.Context(), nil, infos); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("opened again: %v", err)
	}
}

// TestEventsMayComeAtAnyTime runs events beside the runtime's calls; the race
// detector and the platform judge.
func TestEventsMayComeAtAnyTime(t *testing.T) {
	b := newBench(t, "")
	b.phase("chats")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				b.OnEvent(backedOff(reason.RateLimited.Reason()))
			}
		})
	}
	for range 50 {
		b.put(t, "messages", 1)
		b.slice(t)
	}
	wg.Wait()
	b.end(t, reason.Drained)
	if w := b.platform.streams["messages"]; w.position != 50 || w.statuses[len(w.statuses)-1] != "COMPLETE" {
		t.Errorf("got %q at %d", w.statuses, w.position)
	}
}

func TestContextsAndOrder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := New(&bytes.Buffer{}, Options{})
	s.OnEvent(event.Event{Type: event.RunEnd}) // of a run that did not get so far
	_, synced := s.Sync(t.Context())
	for _, err := range []error{synced, s.Write(t.Context(), "a", nil), s.Committed(t.Context(), nil), s.Close()} {
		if err != nil && !errors.Is(err, sinkstate.ErrNotOpen) {
			t.Errorf("before Open: %v", err)
		}
	}
	if err := s.Open(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	if err := s.Open(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context(), nil, nil); err == nil {
		t.Error("an open sink was opened")
	}
	_, synced = s.Sync(ctx)
	for _, err := range []error{synced, s.Write(ctx, "a", nil), s.Committed(ctx, nil)} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
	}
}

func TestOpenRefusesPositionsOfOthers(t *testing.T) {
	for _, p := range []string{"{", "[]", "{}", `{"streams":null}`, `{"files":{}}`, `{"streams":{"a":{"position":-1}}}`, `{"streams":{"a":{"position":1,"schema":{}}}}`} {
		err := New(nil, Options{}).Open(t.Context(), json.RawMessage(p), nil)
		if err == nil || !strings.Contains(err.Error(), "position cannot be read") || !strings.Contains(err.Error(), "--fresh") {
			t.Errorf("%s: %v", p, err)
		}
	}
	for _, p := range []string{"", "null", `{"streams":{}}`, `{"streams":{"a":{"position":0}}}`} {
		if err := New(nil, Options{}).Open(t.Context(), json.RawMessage(p), nil); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// TestWhatIsNotSyncedMayBeDropped: a slice that was aborted leaves no half of a
// message, and the streams' end still follows what was reported of them.
func TestWhatIsNotSyncedMayBeDropped(t *testing.T) {
	b := newBench(t, "")
	b.put(t, "users", 3)
	b.end(t, reason.Interrupted)
	b.statuses(t, map[string][]string{"users": {"STARTED", "RUNNING", "INCOMPLETE"}})
	if n := len(b.platform.streams["users"].records); n != 0 {
		t.Errorf("%d records of a slice that was given up", n)
	}
	if err := b.Write(t.Context(), "users", nil); !errors.Is(err, sinkstate.ErrNotOpen) {
		t.Errorf("after Close: %v", err)
	}
}
