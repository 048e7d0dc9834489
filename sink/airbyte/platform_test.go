package airbyte

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/sink/internal/sinktest"
	"github.com/headway-go/headway/store/sqlite"
)

//go:embed testdata/protocol.json
var protocolSource []byte

var protocol = sync.OnceValue(func() *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(protocolSource))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("protocol.json", doc); err != nil {
		panic(err)
	}
	return c.MustCompile("protocol.json")
})

// platform is a reader of messages. It checks each against the protocol's schema, and their
// order against a stream's life: it starts, runs, gets records and states, and ends once.
type platform struct {
	messages []string
	streams  map[string]*watched
	base     map[string]int64
}

type watched struct {
	statuses []string // in order, with their reasons
	ended    bool
	records  []map[string]any
	position int64
	// since counts the records that no state covers.
	since     int64
	states    int
	estimates []int64
}

func newPlatform() *platform {
	return &platform{streams: map[string]*watched{}, base: map[string]int64{}}
}

// session starts another process at committed positions. The records of the former one are
// kept.
func (p *platform) session(committed json.RawMessage) {
	var at position
	_ = json.Unmarshal(committed, &at)
	p.base = map[string]int64{}
	for name, w := range p.streams {
		p.streams[name] = &watched{records: w.records}
	}
	for name, e := range at.Streams {
		p.base[name] = e.Position
	}
}

func (p *platform) stream(name string) *watched {
	if p.streams[name] == nil {
		p.streams[name] = &watched{}
	}
	return p.streams[name]
}

// Write takes whole lines.
func (p *platform) Write(b []byte) (int, error) {
	if !bytes.HasSuffix(b, []byte("\n")) {
		return 0, fmt.Errorf("platform: half a line: %s", b)
	}
	for line := range strings.Lines(string(b)) {
		if err := p.message(strings.TrimSpace(line)); err != nil {
			return 0, fmt.Errorf("platform: %w in %s", err, line)
		}
	}
	return len(b), nil
}

func (p *platform) message(line string) error {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
	if err != nil {
		return err
	}
	if err := protocol().Validate(doc); err != nil {
		return err
	}
	p.messages = append(p.messages, line)
	var m struct {
		Type   string
		Record struct {
			Stream string
			Data   map[string]any
		}
		State struct {
			Stream streamState
			Stats  struct{ RecordCount json.Number } `json:"sourceStats"`
		}
		Trace trace
	}
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		return err
	}
	switch m.Type {
	case "RECORD":
		w := p.stream(m.Record.Stream)
		if n := len(w.statuses); n == 0 || w.statuses[n-1] != "RUNNING" {
			return fmt.Errorf("a record while the stream is %q", w.statuses)
		}
		w.records, w.since = append(w.records, m.Record.Data), w.since+1
	case "STATE":
		return p.state(m.State.Stream, m.State.Stats.RecordCount)
	default:
		if e := m.Trace.Estimate; e != nil {
			w := p.stream(e.Name)
			w.estimates = append(w.estimates, e.Rows)
			return nil
		}
		return p.status(m.Trace.Status)
	}
	return nil
}

func (p *platform) state(s streamState, count json.Number) error {
	w := p.stream(s.Descriptor.Name)
	switch {
	case len(w.statuses) == 0 || w.ended:
		return fmt.Errorf("a state while the stream is %q", w.statuses)
	case count.String() != fmt.Sprintf("%d.0", w.since):
		return fmt.Errorf("a state of %s records, and %d came", count, w.since)
	}
	from := w.position
	if w.states == 0 {
		from = p.base[s.Descriptor.Name]
	}
	if s.State.Position != from+w.since {
		return fmt.Errorf("position %d after %d and %d records", s.State.Position, from, w.since)
	}
	w.position, w.since = s.State.Position, 0
	w.states++
	return nil
}

func (p *platform) status(s *streamStatus) error {
	w := p.stream(s.Descriptor.Name)
	last := ""
	if n := len(w.statuses); n > 0 {
		last, _, _ = strings.Cut(w.statuses[n-1], " ")
	}
	now := string(s.Status)
	from := map[string][]string{
		"STARTED": {""}, "RUNNING": {"STARTED", "RUNNING"}, "COMPLETE": {"STARTED", "RUNNING"}, "INCOMPLETE": {"STARTED", "RUNNING"},
	}
	if !slices.Contains(from[now], last) {
		return fmt.Errorf("from %q", last)
	}
	w.ended = s.Status == complete || s.Status == incomplete
	for _, r := range s.Reasons {
		now += fmt.Sprintf(" %s %d", r.Type, r.Limited.QuotaReset)
	}
	w.statuses = append(w.statuses, now)
	return nil
}

// shelf is a provider over HTTP: pages of two books, a detail of two notes each.
type shelf struct {
	base  string
	books int
}

func (shelf) Streams() []connector.Stream {
	return []connector.Stream{{Name: "books", Key: "id", DetailStream: "notes"}}
}

func (s shelf) get(ctx context.Context, call connector.Caller, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return err
	}
	_, err = call.Do(ctx, req)
	return err
}

func (s shelf) List(ctx context.Context, call connector.Caller, r connector.ListRequest) (connector.Page, error) {
	var at int
	if _, err := fmt.Sscan(r.Cursor+" 0", &at); err != nil {
		return connector.Page{}, err
	}
	var p connector.Page
	for i := at; i < min(at+2, s.books); i++ {
		p.Items = append(p.Items, connector.Item{Key: fmt.Sprint(i), Data: json.RawMessage(fmt.Sprintf(`{"id":%d}`, i))})
	}
	if at+2 < s.books {
		p.Next = fmt.Sprint(at + 2)
	}
	return p, s.get(ctx, call, "/books")
}

func (s shelf) Detail(ctx context.Context, call connector.Caller, _ string, it connector.Item) ([]connector.Record, error) {
	return []connector.Record{{Key: "0", Data: json.RawMessage(`{}`)}, {Key: "1", Data: json.RawMessage(`{}`)}}, s.get(ctx, call, "/notes/"+it.Key)
}

// library is a shelf that is collected into a platform.
type library struct {
	store    *sqlite.Store
	failing  *sinktest.Dying
	platform *platform
	base     string
	o        collect.Options
}

func newLibrary(t *testing.T, handle http.HandlerFunc) *library {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	l := &library{platform: newPlatform(), base: server.URL}
	var err error
	if l.store, err = sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "state.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.store.Close() })
	l.failing = &sinktest.Dying{Store: l.store}
	l.o.Retry.Base, l.o.Retry.Cap = time.Microsecond, time.Microsecond
	return l
}

// run collects once, wired as a program does it.
func (l *library) run(t *testing.T, now func() time.Time) (collect.Summary, error) {
	t.Helper()
	state, err := l.store.Load(t.Context(), "shelf")
	if err != nil {
		t.Fatal(err)
	}
	l.platform.session(state.Sink)
	var collector *collect.Collector
	sink := New(l.platform, Options{Now: now, Live: func() (collect.Live, bool) { return collector.Live() }})
	o := l.o
	o.Connection, o.Connector, o.Store, o.Sink, o.OnEvent = "shelf", shelf{l.base, 5}, l.failing, sink, sink.OnEvent
	o.Pacing = headway.Config{Ceiling: 1, Initial: 1}
	if collector, err = collect.New(o); err != nil {
		t.Fatal(err)
	}
	return collector.Run(t.Context())
}

func TestARunThatDiesAnywhereIsMadeGood(t *testing.T) {
	for _, unheard := range []bool{false, true} {
		for at := 1; ; at++ {
			l := newLibrary(t, func(http.ResponseWriter, *http.Request) {})
			l.failing.Nth, l.failing.Unheard = at, unheard
			_, err := l.run(t, nil)
			died := errors.Is(err, sinktest.ErrDied)
			if w := l.platform.streams["books"]; died && w != nil && w.statuses[len(w.statuses)-1] != "INCOMPLETE" {
				t.Fatalf("death at %d: %q", at, w.statuses)
			}
			if died {
				if _, err = l.run(t, nil); err != nil {
					t.Fatal(err)
				}
			} else if err != nil || at < 4 {
				t.Fatalf("death at %d: %v", at, err)
			}
			for name, want := range map[string]int64{"books": 5, "notes": 10} {
				w := l.platform.streams[name]
				found := map[string]bool{}
				for _, r := range w.records {
					found[fmt.Sprint(r["_headway_parent"], r["_headway_key"], r["id"])] = true
				}
				if w.position != want || len(found) != int(want) || w.statuses[len(w.statuses)-1] != "COMPLETE" {
					t.Fatalf("death at %d: %s is %q at %d with %d records", at, name, w.statuses, w.position, len(found))
				}
			}
			if !died {
				break
			}
		}
	}
}

// TestAProviderThatWantsLessIsReported: a 429 with a long Retry-After defers the
// run; the streams say that they are limited, and until when.
func TestAProviderThatWantsLessIsReported(t *testing.T) {
	l := newLibrary(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/notes/3") {
			w.Header().Set("Retry-After", "7200")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	l.o.Retry.Attempts = 1
	before := time.Now()
	s, err := l.run(t, nil)
	if err != nil || s.State != collect.RunDeferred || s.Reason != reason.RateLimited.Reason() && s.Reason != reason.Cooldown {
		t.Fatalf("got %+v, %v", s, err)
	}
	w := l.platform.streams["notes"]
	i := slices.IndexFunc(w.statuses, func(s string) bool { return strings.HasPrefix(s, "RUNNING RATE_LIMITED") })
	if i < 0 {
		t.Fatalf("got %q", w.statuses)
	}
	var reset int64
	if _, err := fmt.Sscanf(w.statuses[i], "RUNNING RATE_LIMITED %d", &reset); err != nil {
		t.Fatal(err)
	}
	if in := time.UnixMilli(reset).Sub(before); in < 2*time.Hour-time.Minute || in > 2*time.Hour+time.Minute {
		t.Errorf("the quota is said to reset in %v, want two hours", in)
	}
	if last := w.statuses[len(w.statuses)-1]; last != strings.Replace(w.statuses[i], "RUNNING", "INCOMPLETE", 1) {
		t.Errorf("it ends %q (%s)", w.statuses, s.Reason)
	}
}
