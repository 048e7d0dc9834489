package schedule

import (
	"fmt"
	"net/http"
	"os"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
)

// Options turns a connection file into the options of a run. Connector, Store
// and Sink are left to the caller.
func Options(c *rest.Config) collect.Options {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	p := c.Provider
	o := collect.Options{
		Connection: c.Name, Timeout: p.Timeout, MaxBody: p.MaxBody,
		MaxRequests: c.Run.MaxRequests, MaxWallClock: c.Run.MaxWallClock, Concurrency: c.Run.Concurrency,
		CatchupPages: c.Run.CatchupPages,
		Holder:       fmt.Sprintf("process %d on %s", os.Getpid(), host),
	}
	if len(c.Errors) > 0 {
		o.Classify = c.Classify
	}
	o.Pacing.Ceiling, o.Pacing.Initial, o.Pacing.Law = p.Ceiling, p.Pacing.Initial, p.Pacing.Law
	o.Pacing.Step, o.Pacing.Factor, o.Pacing.Tolerance = p.Pacing.Step, p.Pacing.Factor, p.Pacing.Tolerance
	o.Pacing.JitterMin, o.Pacing.JitterMax = p.Pacing.JitterMin, p.Pacing.JitterMax
	o.Pacing.MaxWait = p.Pacing.MaxRetryAfter
	o.Retry.Base, o.Retry.Cap, o.Retry.Attempts = p.Retry.Base, p.Retry.Cap, p.Retry.Attempts
	o.RetryBudget = p.Retry.Budget
	o.Pacing.Breaker, o.Pacing.NoBreaker = p.Circuit.Config, p.Circuit.Off
	if base, ok := http.DefaultTransport.(*http.Transport); ok && o.Concurrency > max(base.MaxIdleConnsPerHost, http.DefaultMaxIdleConnsPerHost) {
		// By default two connections are kept; who asks more at once would make
		// new ones, with a handshake, for nearly every request.
		base = base.Clone()
		base.MaxIdleConnsPerHost = o.Concurrency
		base.MaxIdleConns = max(base.MaxIdleConns, o.Concurrency)
		o.Base = base
	}
	return o
}
