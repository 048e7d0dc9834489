package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

var errNoAnswer = errors.New("egress: the upstream's response is informational and ends no request")

// Sizes of the copy buffers. Those of streams are small, because there may be thousands of
// streams and each event is passed on at once anyway.
const (
	wholeBuffer  = 32 << 10
	streamBuffer = 4 << 10
)

// maxBuffered is how much of an answer the server of net/http buffers before it writes.
const maxBuffered = 1 << 10

var (
	wholeBuffers  = sync.Pool{New: func() any { return new([wholeBuffer]byte) }}
	streamBuffers = sync.Pool{New: func() any { return new([streamBuffer]byte) }}
)

// answer is the response to an attempt, and its classification.
type answer struct {
	answerAt time.Time
	status   int // 0 without a response
	header   http.Header
	head     []byte         // beginning of an error body
	scanner  *usage.Scanner // reads usage from the body
	drained  int64          // output tokens charged while they were relayed
	signal   signal.Signal
	class    reason.Class // overrules the class of the signal
	problem  string       // inside a body of status 200
	used     quota.Usage  // the usage charged, once settled
}

// relay copies an answer to the client and reads its usage.
func (a *attempt) relay(res *http.Response, injected bool) {
	c := a.call
	kind := mediaType(res.Header.Get("Content-Type"))
	events := kind == "text/event-stream"
	served := res.StatusCode < http.StatusMultipleChoices
	if served && c.asked.Metered && c.asked.Shape != usage.None {
		a.scanner = usage.NewScanner(c.asked.Shape, res.Header.Get("Content-Type"))
	}
	strip := injected && served && events
	readdress := len(c.up.Description.Addresses) > 0 && (kind == "application/json" || strings.HasSuffix(kind, "+json")) && !encoded(res.Header)
	c.begun(res, a, strip || readdress)
	flows := events || res.ContentLength < 0
	if flows || strip || readdress || res.ContentLength > maxBuffered {
		a.freeClient()
	}
	to := io.Writer(c.w)
	// Send the header at once. An error here shows again in copy.
	flush := flows
	if flows && a.watch.enter() {
		flush = !errors.Is(c.rc.Flush(), http.ErrNotSupported)
		a.watch.leave()
	}
	var rest io.Closer // a rewriter that may hold back bytes
	if strip {
		s := usage.NewStripper(c.w)
		to, rest = s, s
	} else if readdress {
		d := &readdresser{w: c.w, names: c.up.Description.Addresses, leads: func(address string) string {
			if to := c.leads(address, res.Request.URL); to != "" {
				return c.here() + to
			}
			return ""
		}}
		to, rest = d, d
	}
	if flows {
		buffer := streamBuffers.Get().(*[streamBuffer]byte)
		defer streamBuffers.Put(buffer)
		c.log.Ending = a.copy(to, res.Body, buffer[:], flush)
	} else {
		buffer := wholeBuffers.Get().(*[wholeBuffer]byte)
		defer wholeBuffers.Put(buffer)
		c.log.Ending = a.copy(to, res.Body, buffer[:], false)
	}
	if rest != nil && rest.Close() != nil && c.log.Ending == Complete {
		c.log.Ending = ClientGone
	}
	if c.log.Ending == Complete && len(res.Trailer) > 0 {
		trailer := http.Header{}
		c.up.Description.Return(trailer, res.Trailer)
		for name, values := range trailer {
			if len(values) > 0 {
				c.w.Header()[http.TrailerPrefix+name] = values
			}
		}
	}
}

// begun sends the header of the answer to the client.
func (c *call) begun(res *http.Response, a *attempt, changed bool) {
	u, h := c.up, c.w.Header()
	u.Description.Return(h, res.Header)
	c.readdress(h, res.Request.URL)
	if !c.whole && !c.upload.ended.Load() && c.r.ProtoMajor == 1 {
		// The upstream answers before the end of the request body. Without this, net/http
		// would now read and drop the rest of the body.
		_ = c.rc.EnableFullDuplex()
		h.Set("Connection", "close")
	}
	if res.ContentLength >= 0 && !changed && res.StatusCode != http.StatusNoContent {
		h.Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
	if a != nil && a.approved || u.paced() {
		h.Set(headerWait, milliseconds(c.log.Wait))
	}
	u.markFleet(h)
	if a != nil && a.approved {
		c.advise(h, a)
	}
	c.log.Status = res.StatusCode
	c.answered = true
	c.w.WriteHeader(res.StatusCode)
}

// advise adds the fields that say by how much an agent should slow down.
func (c *call) advise(h http.Header, a *attempt) {
	scale(h, a.call.up.Approver.Factor(a.request))
	switch advice := a.decision.Advisory; {
	case advice&quota.AdviseThrottled != 0:
		h.Set(headerPressure, "throttle")
	case advice&(quota.AdviseSoft|quota.AdviseOverSoft) != 0:
		h.Set(headerPressure, "soft")
	}
}

// scale returns the factor for the interval of agents.
func scale(h http.Header, factor float64) {
	if factor != 1 {
		h.Set(headerScale, strconv.FormatFloat(factor, 'f', -1, 64))
	}
}

// copy relays a body until either side ends it.
func (a *attempt) copy(to io.Writer, from io.Reader, buffer []byte, flush bool) Ending {
	c := a.call
	for {
		n, err := from.Read(buffer)
		a.watch.move()
		if n > 0 {
			a.look(buffer[:n])
			if !a.watch.enter() {
				return a.ended(BrokenOff)
			}
			_, gone := to.Write(buffer[:n])
			if gone == nil && flush {
				gone = c.rc.Flush()
			}
			a.watch.leave()
			if gone != nil {
				return a.ended(ClientGone)
			}
			a.watch.move()
			c.log.Received += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			return Complete
		case err != nil:
			return a.ended(BrokenOff)
		}
	}
}

// look lets the scanners read the bytes that are relayed.
func (a *attempt) look(p []byte) {
	switch {
	case a.scanner != nil:
		_, _ = a.scanner.Write(p) // never fails
		a.drain()
	case a.status >= http.StatusBadRequest && len(a.head) < signal.MaxBody:
		a.head = append(a.head, p[:min(len(p), signal.MaxBody-len(a.head))]...)
	}
}

// ended returns how a body ended, given the apparent reason. If the proxy itself ended the
// call, that is the reason.
func (a *attempt) ended(seemed Ending) Ending {
	cause := context.Cause(a.ctx)
	switch {
	case errors.Is(cause, errCut):
		a.call.log.Reason = reason.Closed
		return Cut
	case errors.Is(cause, errStalled):
		a.call.log.Reason = reason.ClientError
		return ClientGone
	case seemed == ClientGone:
		// Includes a client that does not read, which is not the provider's fault.
		a.call.log.Reason = reason.Canceled
		return ClientGone
	case errors.Is(cause, errLong):
		// CallTimeout is the owner's bound: the provider was still answering.
		a.call.log.Reason = reason.Timeout
		return TimedOut
	case errors.Is(cause, errSilent) && !a.call.upload.failed.Load():
		a.class = reason.Failed
		a.call.log.Reason = reason.Timeout
		return TimedOut
	case a.call.r.Context().Err() != nil: // net/http cancels it after a deadline too
		a.call.log.Reason = reason.Canceled
		return ClientGone
	case a.call.upload.failed.Load():
		a.call.log.Reason = reason.ClientError
		return ClientGone
	}
	a.class = reason.Failed
	a.call.log.Reason = reason.InvalidResponse
	return BrokenOff
}

// Header fields that clients may send to the proxy. They do not go upstream.
const (
	headerKey      = "X-Headway-Key"      // A Headway key, beside the provider's own key. Without it, the provider's field holds the Headway key.
	headerTenant   = "X-Headway-Tenant"   // The tenant of the call, where the key names none.
	headerAgent    = "X-Headway-Agent"    // The agent of the call, where the key names none.
	headerPriority = "X-Headway-Priority" // Who goes first where calls wait, up to the key's priority_max: a whole number, the greater first.
	headerAffinity = "X-Headway-Affinity" // A name for calls that have to use the same one of several keys, such as those about one uploaded file.
	headerDeadline = "X-Headway-Deadline" // The instant at which the client stops waiting, as RFC 3339 writes it.
	headerTimeout  = "X-Headway-Timeout"  // The time that the client waits, as 2s, or 2 for seconds.
)

// Header fields that the proxy adds to answers.
const (
	headerWait     = "X-Headway-Wait-Ms"  // How long the call waited for budget and pace, in milliseconds.
	headerScale    = "X-Headway-Scale"    // What clients should multiply their pauses by; above 1 only if they have to slow down.
	headerPressure = "X-Headway-Pressure" // Why to slow down: soft (the budget runs out), throttle (the provider refuses calls) or exhausted.
	headerFleet    = "X-Headway-Fleet"    // The word away while the server of the fleet cannot be reached: pace and budgets are then a share of what was last known, or nothing is sent.
)
