package eventlog_test

import (
	"log/slog"
	"os"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/event/eventlog"
)

func ExampleTo() {
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: noTime}))
	onEvent := eventlog.To(log) // for headway.Config, collect.Options and others
	onEvent(event.Event{Type: event.Deferral, Connection: "crm", Stream: "people", Count: 12})
	// Output: level=INFO msg=deferral connection=crm stream=people count=12
}
