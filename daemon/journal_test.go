package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/events"
)

// TestEventsAreLoggedOnce: what the hub gets stands in the log too, unless somebody
// else logs it.
func TestEventsAreLoggedOnce(t *testing.T) {
	open := &event.Breaker{Previous: "closed", State: "open"}
	for _, tt := range []struct {
		e       event.Event
		proxied bool
		want    string
	}{
		{event.Event{Type: event.Circuit, Connection: "c", Circuit: open}, true, "level=WARN msg=circuit connection=c"},
		{event.Event{Type: event.Circuit, Connection: "c", Circuit: open}, false, "level=WARN msg=circuit connection=c"},
		{event.Event{Type: event.Deferral, Connection: "c", Count: 2}, false, "level=INFO msg=deferral connection=c count=2"},
		{event.Event{Type: event.RunStart, Connection: "c"}, false, ""},
		{event.Event{Type: event.RunEnd, Connection: "c"}, false, ""},
		{event.Event{Type: event.Warning, Connection: "c"}, false, ""},
		{event.Event{Type: event.ConnectionChanged, Connection: "c"}, false, ""},
	} {
		hub, err := events.New(0)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		d := &Daemon{hub: hub, log: slog.New(slog.NewTextHandler(&out, nil))}
		publish := d.hear
		if tt.proxied {
			publish = d.circuit
		}
		publish(tt.e)
		if got := out.String(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) || hub.Total() != 1 {
			t.Errorf("%s: logged %q, want %q; %d published", tt.e.Type, got, tt.want, hub.Total())
		}
	}
}
