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

// Options are what a run is made of. Connection, Connector, Store and Sink are
// required; zero values elsewhere take the defaults.
type Options struct {
	// Connection is the connection's name: the key of its durable state.
	Connection string
	Connector  connector.Connector
	Store      Store
	Sink       Sink

	// Pacing governs the attempts. Its Name and OnEvent are set by the run.
	Pacing headway.Config
	// Fleet shares the pace with other processes on the same credential: it gives the way
	// in for the key of that name, "" where the connector has one credential. Default: none.
	Fleet func(key string) headway.Fleet
	// Base sends the attempts. Default http.DefaultTransport.
	Base http.RoundTripper
	// Timeout bounds one attempt. Default 30 s.
	Timeout time.Duration
	// MaxBody bounds one response's body in bytes. Default 64 MiB.
	MaxBody int64
	// Retry is the backoff between attempts of one request.
	Retry retry.Backoff
	// RetryBudget bounds the retries of the run. Its MaxRequests is the run's.
	RetryBudget retry.Limits
	// Classify may overrule what a response stands for, whatever its status. A
	// reason of none leaves the usual one. Body is a bounded prefix.
	Classify func(status int, body []byte) (c reason.Class, why reason.Reason, ok bool)

	// Profile is what the provider publishes of its limits. Where the connector can ask for
	// them at no cost, a run begins with that. Default: none.
	Profile transport.Profile

	// MaxRequests bounds the attempts of the run. Default 0: unbounded.
	MaxRequests int64
	// MaxWallClock bounds the run's time; an attempt under way is never cut.
	// Default 0: unbounded.
	MaxWallClock time.Duration
	// CatchupPages bounds the pages of each stream's catch-up in this run, so that
	// what changes now is not kept waiting for the past: once they are walked the
	// steady state follows, and the rest of the past is another run's. Default
	// 0: unbounded.
	CatchupPages int64
	// Concurrency is how many details of a slice are asked for at once, all at
	// the connection's one rate, at most 1024. Default 0: it begins with one, and grows
	// up to [DefaultMaxConcurrency] while that pays and the provider bears it.
	Concurrency int

	// Streams are the names of those that the run collects, with their details;
	// what the others owe is left alone. nil is all. It does not go with Fresh.
	Streams []string
	// Lane bounds the run to the steady state, or to the catch-up: what each owes
	// is worked off by either. Empty is both. A steady state that nothing was
	// collected of yet begins with the first page of the past, which says when now is.
	Lane LaneKind
	// Fresh forgets what is known of the connection and starts over.
	Fresh bool
	// Holder names this process for people. Default "this process".
	Holder string
	// LeaseTTL is how long the lease outlives its last renewal. Default 30 s.
	LeaseTTL time.Duration
	// Stop ends the run when closed, after the slice under way is committed.
	// Canceling the context instead ends it at once; neither loses anything.
	Stop <-chan struct{}
	// backlogAfter is how many details of one stream a run may owe as gaps of
	// their own; tests lower it.
	backlogAfter int

	// OnEvent gets each event that goes into the run's durable trace. It must not
	// block; calls may come from several goroutines.
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

// checkStreams holds the streams of a run against those that there are.
func (o Options) checkStreams() error {
	if o.Streams == nil {
		return nil
	}
	if o.Fresh {
		return fmt.Errorf("collect: streams are named and fresh is set, but fresh forgets the whole connection")
	}
	return CheckStreams(o.Streams, o.Connector.Streams())
}

// CheckStreams reports a name that is not one of the streams; the error names
// those that there are.
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
			return fmt.Errorf("stream %q is collected with %s, whose details it holds: name that", name, streams[i].Name)
		default:
			return fmt.Errorf("no stream %q in this connection, which has %s", name, strings.Join(all, ", "))
		}
	}
	return nil
}

// chosen are the streams that the run collects, in the connector's order.
func (r *execution) chosen() []connector.Stream {
	all := r.o.Connector.Streams()
	if r.o.Streams == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(s connector.Stream) bool { return !slices.Contains(r.o.Streams, s.Name) })
}

// concerns reports whether a gap is of a stream that the run collects.
func (r *execution) concerns(g Gap) bool {
	return r.o.Streams == nil || slices.Contains(r.o.Streams, g.Parent)
}
