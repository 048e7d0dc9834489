package rest

import (
	"strconv"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/retry"

	"github.com/headway-go/headway/internal/configfile"
)

// Circuit is when a provider that keeps failing is left alone.
type Circuit struct {
	// Config is the circuit's shape. Zero fields take the defaults of package breaker.
	breaker.Config
	// Off leaves the circuit out.
	Off bool
}

// circuit reads provider.circuit.
func (b builder) circuit(n *node) Circuit {
	if n == nil || n.Kind != configfile.Table {
		return Circuit{Off: b.text(n) == "off"}
	}
	c := Circuit{Config: breaker.Config{
		Ratio:   b.fraction(n.Get("ratio")),
		Window:  int(b.count(n.Get("window"), 0, 64)),
		Minimum: int(b.count(n.Get("minimum"), 0, 64)),
		OpenFor: b.duration(n.Get("open_for"), 0, time.Millisecond, 24*time.Hour),
		Probes:  int(b.count(n.Get("probes"), 0, 255)),
	}}
	if r, _ := (breaker.Config{Window: c.Window}).Resolve(); c.Minimum > r.Window && r.Window > 0 {
		at := n.Get("minimum")
		at.Fail("%s; want at most the window of %d", at.Is(), r.Window)
	}
	return c
}

// retryBudget reads provider.retry.budget.
func (b builder) retryBudget(n *node) retry.Limits {
	if n == nil {
		return retry.Limits{}
	}
	l := retry.Limits{
		Start:      int(b.count(n.Get("start"), 0, 1_000_000)),
		Capacity:   int(b.count(n.Get("capacity"), 0, 1_000_000)),
		PerSuccess: int(b.fraction(n.Get("per_success"))*1000 + 0.5),
	}
	if l.Capacity > 0 && l.Start > l.Capacity {
		at := n.Get("start")
		at.Fail("%s; want at most the capacity of %d", at.Is(), l.Capacity)
	}
	return l
}

// fraction is a number above 0 and at most 1, in thousandths; 0 when it is not set.
func (b builder) fraction(n *node) float64 {
	s := b.text(n)
	if s == "" {
		return 0
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0.001 && v <= 1) {
		n.Want("a number from 0.001 to 1, such as 0.5")
		return 0
	}
	return v
}
