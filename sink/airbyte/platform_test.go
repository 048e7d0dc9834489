package airbyte

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
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

// platform is a reader of messages that holds each against the protocol, and
// their order against what a stream may do: it starts, runs, gets records and
// states, and ends once.
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

// session begins another process, at committed positions. What the records of
// the one before came to is kept.
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
