package collect

import (
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/connector"
)

// NewCaller gives a governed way out that belongs to no run, for a request or
// two such as a check's probe. It uses the options' pacing, base, bounds and
// classification; it stores nothing.
func NewCaller(o Options) (connector.Caller, error) {
	o.Timeout = orDefault(o.Timeout, 30*time.Second)
	o.MaxBody = orDefault(o.MaxBody, 64<<20)
	o.RetryBudget.MaxRequests = o.MaxRequests
	r := &run{o: o, started: time.Now()}
	r.live.started = r.started
	r.budget.maxRequests = o.MaxRequests
	pacing := o.Pacing
	pacing.Name = o.Connection
	var err error
	if r.governor, err = headway.New(pacing); err != nil {
		return nil, err
	}
	return newCaller(r, r.governor)
}
