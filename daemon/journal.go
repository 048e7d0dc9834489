package daemon

import (
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/event/eventlog"
)

// circuit publishes and logs a move of a provider's breaker.
func (d *Daemon) circuit(e event.Event) {
	d.hub.Proxied(e.Connection)(e)
	eventlog.To(d.log)(e)
}

// hear publishes and logs an event of a collected connection, but for those
// that the schedule logs in its own words.
func (d *Daemon) hear(e event.Event) {
	d.hub.Connection(e)
	switch e.Type {
	case event.RunStart, event.RunEnd, event.ConnectionChanged, event.Warning:
	default:
		eventlog.To(d.log)(e)
	}
}
