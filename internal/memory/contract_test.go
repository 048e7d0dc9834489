package memory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/memory"
	"github.com/headway-go/headway/store/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) collect.Store { return memory.New() })
}

// TestASinkCannotShareTheStore: a commit that wants to write into the store's
// database is refused whole, and the error says what to use.
func TestASinkCannotShareTheStore(t *testing.T) {
	s := memory.New()
	l, err := s.Acquire(t.Context(), collect.LeaseRequest{Connection: "c", Run: "r", TTL: 1})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Commit(t.Context(), l, collect.Commit{SinkAt: collect.Location{Kind: "k"}, Within: func(context.Context, collect.Execer) error { return nil }})
	if err == nil || !strings.Contains(err.Error(), "store/sqlite") {
		t.Errorf("got %v, want an error that names store/sqlite", err)
	}
	if state, _ := s.Load(t.Context(), "c"); state.SinkAt.Kind != "" {
		t.Error("the refused commit left its mark")
	}
}

// TestWhatComesOutIsACopy: a caller that changes what it gave or got changes
// nothing in the store.
func TestWhatComesOutIsACopy(t *testing.T) {
	s := memory.New()
	l, err := s.Acquire(t.Context(), collect.LeaseRequest{Connection: "c", Run: "r", TTL: 1})
	if err != nil {
		t.Fatal(err)
	}
	text := func() []byte { return []byte(`"as given"`) }
	c := collect.Commit{
		Stream: "x", Items: []collect.KnownItem{{Key: "k", Children: text()}}, Sink: text(),
		Pacing: &collect.Pacing{Version: 1, State: text()},
		Opened: []collect.Gap{{GapKey: collect.GapKey{Stream: "d", Key: "k"}, Locator: text()}},
	}
	if err := s.Commit(t.Context(), l, c); err != nil {
		t.Fatal(err)
	}
	for _, given := range [][]byte{c.Items[0].Children, c.Sink, c.Pacing.State, c.Opened[0].Locator} {
		clear(given)
	}
	for range 2 { // the second time sees what was done to the first
		state, _ := s.Load(t.Context(), "c")
		known, _ := s.Known(t.Context(), "c", "x", []string{"k"})
		gaps, _ := s.Gaps(t.Context(), collect.GapFilter{})
		for i, got := range [][]byte{known["k"].Children, state.Sink, state.Pacing.State, gaps[0].Locator} {
			if string(got) != string(text()) {
				t.Errorf("field %d is %q", i, got)
			}
			clear(got)
		}
	}
}

// greetings is a connector of one stream with one page.
type greetings struct{}

func (greetings) Streams() []connector.Stream { return []connector.Stream{{Name: "greetings"}} }

func (greetings) List(ctx context.Context, call connector.Caller, _ connector.ListRequest) (connector.Page, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/greetings", nil)
	if err != nil {
		return connector.Page{}, err
	}
	res, err := call.Do(ctx, req) // paced, counted, retried
	if err != nil {
		return connector.Page{}, err
	}
	return connector.Page{Items: []connector.Item{{Key: "1", Data: res.Body}}}, nil
}

func (greetings) Detail(context.Context, connector.Caller, string, connector.Item) ([]connector.Record, error) {
	return nil, nil // never called: the stream has no details
}

// provider answers every request.
type provider struct{}

func (provider) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"text":"hello"}`)), Request: r}, nil
}

// printer is a sink that prints.
type printer struct{}

func (printer) Open(context.Context, json.RawMessage, []collect.StreamInfo) error { return nil }
func (printer) Sync(context.Context) (json.RawMessage, error)                     { return json.RawMessage(`{}`), nil }
func (printer) Close() error                                                      { return nil }

func (printer) Write(_ context.Context, stream string, records []collect.Record) error {
	for _, r := range records {
		fmt.Println(stream, r.Key, string(r.Data))
	}
	return nil
}

// A run that leaves nothing behind but what its sink was given. As long as the
// store is there, the next run collects only what is new.
func ExampleNew() {
	store := memory.New()
	for range 2 {
		c, err := collect.New(collect.Options{
			Connection: "greetings", Connector: greetings{}, Store: store, Sink: printer{}, Base: provider{},
			Pacing: headway.Config{JitterMax: -1},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		summary, err := c.Run(context.Background())
		fmt.Println(summary.State, summary.Records, "new,", summary.Unchanged, "unchanged,", err)
	}
	// Output:
	// greetings 1 {"text":"hello"}
	// drained 1 new, 0 unchanged, <nil>
	// drained 0 new, 1 unchanged, <nil>
}
