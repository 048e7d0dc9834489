package collect

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
	"github.com/headway-go/headway/transport"
)

// Options are the options of a [Collector]. Connection, Connector, Store and Sink are
// required; for other fields the zero value means the default.
type Options struct {
	// Connection is the connection's name, under which the store keeps its state.
	Connection string
	Connector  connector.Connector
	Store      Store
	Sink       Sink

	// Pacing configures the governor. The run sets its Name and OnEvent.
	Pacing headway.Config
	// Fleet returns the fleet that shares the pace of a key with other processes. key is
	// "" if the connector has one credential. Default nil: no sharing.
	Fleet func(key string) headway.Fleet
	// Base sends the attempts. Default http.DefaultTransport.
	Base http.RoundTripper
	// Timeout is the maximum duration of one attempt. Default 30 s.
	Timeout time.Duration
	// MaxBody is the maximum size of a response body in bytes. Default 64 MiB.
	MaxBody int64
	// Retry is the backoff between the attempts of one request.
	Retry retry.Backoff
	// RetryBudget limits the retries of the run. Its MaxRequests is set to MaxRequests below.
	RetryBudget retry.Limits
	// Classify, if not nil, may override the class and the reason of a response. If why is
	// [reason.None], the reason follows from the response as usual. body is a prefix of
	// the response's body. ok reports whether it overrides.
	Classify func(status int, body []byte) (c reason.Class, why reason.Reason, ok bool)

	// Profile holds the limits that the provider publishes. With a profile, the run
	// begins by requesting the current limits, if the connector can. Default nil: none.
	Profile transport.Profile

	// MaxRequests is the maximum number of attempts of the run. Default 0: no limit.
	MaxRequests int64
	// MaxWallClock is the maximum duration of the run; an attempt in flight is never
	// canceled. Default 0: no limit.
	MaxWallClock time.Duration
	// CatchupPages is the maximum number of catch-up pages for each stream in this run.
	// After them the run continues with the steady lane, so that a long catch-up does not
	// delay recent changes; later runs continue the catch-up. Default 0: no limit.
	CatchupPages int64
	// Concurrency is how many details are requested at once, at most 1024. All share the
	// connection's rate. Default 0: adaptive. It then starts at one and grows up to
	// [DefaultMaxConcurrency] while that raises the throughput.
	Concurrency int

	// Streams are the names of the streams to collect, with their details. Gaps of other
	// streams are left alone. Default nil: all. It cannot be combined with Fresh.
	Streams []string
	// Lane restricts the run to the steady lane or to the catch-up. Gaps are recovered in
	// either case. Default "": both. The first steady run of a stream begins with the
	// first page of the catch-up, from which it learns the provider's time.
	Lane LaneKind
	// Fresh forgets the connection's state and starts over.
	Fresh bool
	// Holder describes this process to people. Default "this process".
	Holder string
	// LeaseTTL is how long the lease outlives its last renewal. Default 30 s.
	LeaseTTL time.Duration
	// Stop ends the run when closed, after the current slice is committed. Canceling the
	// context ends it at once instead. Neither loses data.
	Stop <-chan struct{}
	// backlogAfter is how many details of one stream get gaps of their own in a run;
	// tests lower it.
	backlogAfter int

	// OnEvent, if not nil, is called with each event of the run's trace. It must not
	// block, and may be called from several goroutines.
	OnEvent func(event.Event)
}

func (o Options) resolve() (Options, error) {
	switch {
	case o.Connection == "":
		return o, fmt.Errorf("collect: the connection has no name")
	case o.Connector == nil:
		return o, fmt.Errorf("collect: the connection has no connector")
	case o.Store == nil:
		return o, fmt.Errorf("collect: the connection has no store")
	case o.Sink == nil:
		return o, fmt.Errorf("collect: the connection has no sink")
	case o.MaxRequests < 0:
		return o, fmt.Errorf("collect: max requests is %d, must not be negative", o.MaxRequests)
	case o.MaxWallClock < 0:
		return o, fmt.Errorf("collect: max wall clock is %v, must not be negative", o.MaxWallClock)
	case o.CatchupPages < 0:
		return o, fmt.Errorf("collect: catch-up pages is %d, must not be negative", o.CatchupPages)
	case o.Lane != "" && o.Lane != Steady && o.Lane != Catchup:
		return o, fmt.Errorf("collect: lane is %q, must be %s, %s or empty", o.Lane, Steady, Catchup)
	case o.Concurrency < 0 || o.Concurrency > 1024:
		return o, fmt.Errorf("collect: concurrency is %d, must be from 1 to 1024", o.Concurrency)
	case o.Timeout < 0:
		return o, fmt.Errorf("collect: timeout is %v, must not be negative", o.Timeout)
	case o.MaxBody < 0:
		return o, fmt.Errorf("collect: max body is %d bytes, must not be negative", o.MaxBody)
	case o.LeaseTTL < 0:
		return o, fmt.Errorf("collect: lease TTL is %v, must not be negative", o.LeaseTTL)
	}
	if len(o.Streams) == 0 {
		o.Streams = nil
	}
	o.RetryBudget.MaxRequests = o.MaxRequests
	if _, err := o.RetryBudget.Resolve(); err != nil {
		return o, fmt.Errorf("collect: %w", err)
	}
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.MaxBody = cmp.Or(o.MaxBody, 64<<20)
	o.LeaseTTL = cmp.Or(o.LeaseTTL, 30*time.Second)
	o.backlogAfter = cmp.Or(o.backlogAfter, backlogAfter)
	o.Holder = cmp.Or(o.Holder, "this process")
	streams := map[string]bool{}
	for _, s := range o.Connector.Streams() {
		for _, name := range []string{s.Name, s.DetailStream} {
			if name != "" && streams[name] {
				return o, fmt.Errorf("collect: two streams are named %q", name)
			}
			streams[name] = true
		}
	}
	if len(streams) == 0 {
		return o, fmt.Errorf("collect: the connector has no streams")
	}
	return o, o.checkStreams()
}

// checkStreams checks the option Streams.
func (o Options) checkStreams() error {
	if o.Streams == nil {
		return nil
	}
	if o.Fresh {
		return fmt.Errorf("collect: streams cannot be combined with fresh, which forgets the whole connection")
	}
	return CheckStreams(o.Streams, o.Connector.Streams())
}

// CheckStreams returns an error if a name is not one of the streams. The error lists the
// streams.
func CheckStreams(names []string, streams []connector.Stream) error {
	var all []string
	for _, s := range streams {
		all = append(all, s.Name)
	}
	for _, name := range names {
		i := slices.IndexFunc(streams, func(s connector.Stream) bool { return name != "" && s.DetailStream == name })
		switch {
		case slices.Contains(all, name):
		case i >= 0:
			return fmt.Errorf("stream %q is collected with %s, whose details it holds: name %[2]s instead", name, streams[i].Name)
		default:
			return fmt.Errorf("no stream %q in this connection, which has %s", name, strings.Join(all, ", "))
		}
	}
	return nil
}

// chosen returns the streams that the run collects, in the connector's order.
func (r *execution) chosen() []connector.Stream {
	all := r.o.Connector.Streams()
	if r.o.Streams == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(s connector.Stream) bool { return !slices.Contains(r.o.Streams, s.Name) })
}

// concerns reports whether a gap belongs to a stream that the run collects.
func (r *execution) concerns(g Gap) bool {
	return r.o.Streams == nil || slices.Contains(r.o.Streams, g.Parent)
}
