package headway

import (
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// notes are the events of one call, built with the lock held and emitted after it is
// released.
type notes struct {
	at     time.Duration
	fx     pacing.Effects
	rate   *event.Rate
	limits []event.Limit
}

// note returns nil, without allocating, if there is nothing to report.
func (g *Governor) note(now time.Duration, fx pacing.Effects) *notes {
	if g.set.onEvent == nil || !fx.Rate && !fx.Circuit.Moved() {
		return nil
	}
	n := &notes{at: now, fx: fx}
	if fx.Rate {
		n.rate, n.limits = g.rate(fx.Pool), g.limits(fx.Pool)
	}
	return n
}

func (g *Governor) publish(all ...*notes) {
	for _, n := range all {
		if n != nil {
			g.emit(n)
		}
	}
}

func (g *Governor) emit(n *notes) {
	at := g.wall(n.at).Round(0)
	if moved := n.fx.Circuit; moved.Moved() {
		e := event.Event{
			At: at, Type: event.Circuit, Connection: g.name, Pool: n.fx.CircuitPool.Name(),
			Circuit: &event.Breaker{Previous: moved.From.String(), State: moved.To.String(), Trigger: moved.Trigger.String()},
		}
		if moved.To != breaker.Closed {
			e.Reason = reason.CircuitOpen.Reason()
		}
		g.set.onEvent(e)
	}
	if n.fx.Rate {
		g.set.onEvent(event.Event{
			At: at, Type: event.CollectionRate, Connection: g.name, Pool: n.fx.Pool.Name(),
			Note: n.fx.Change.String(), Rate: n.rate, Limits: n.limits,
		})
	}
}
