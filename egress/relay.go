package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

var errNoAnswer = errors.New("egress: upstream's answer does not end a request")

// Sizes of the buffers that bodies pass through: a stream's are small, because
// there may be thousands and each event is passed on at once anyway.
const (
	wholeBuffer  = 32 << 10
	streamBuffer = 4 << 10
)

var (
	wholeBuffers  = sync.Pool{New: func() any { return new([wholeBuffer]byte) }}
	streamBuffers = sync.Pool{New: func() any { return new([streamBuffer]byte) }}
)

// begun passes the header of an answer on.
func (x *exchange) begun(res *http.Response, a *attempt, changed bool) {
	u, h := x.up, x.w.Header()
	u.Description.Return(h, res.Header)
	x.readdress(h, res.Request.URL)
	if res.ContentLength >= 0 && !changed && res.StatusCode != http.StatusNoContent {
		h.Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
	if a != nil && a.approved || u.Pacing != nil {
		h.Set(headerWait, milliseconds(x.told.Wait))
	}
	if a != nil && a.approved {
		x.advise(h, a)
	}
	x.told.Status = res.StatusCode
	x.answered = true
	x.w.WriteHeader(res.StatusCode)
}

// advise tells an agent how it should go on.
func (x *exchange) advise(h http.Header, a *attempt) {
	scale(h, a.x.up.Approver.Factor(a.request))
	switch advice := a.decision.Advisory; {
	case advice&quota.AdviseThrottled != 0:
		h.Set(headerPressure, "throttle")
	case advice&(quota.AdviseSoft|quota.AdviseOverSoft) != 0:
		h.Set(headerPressure, "soft")
	}
}

// scale says by how much an agent should stretch its rhythm.
func scale(h http.Header, factor float64) {
	if factor != 1 {
		h.Set(headerScale, strconv.FormatFloat(factor, 'f', -1, 64))
	}
}

// pass passes an answer on, byte for byte, and reads along.
func (a *attempt) pass(res *http.Response, injected bool) {
	x := a.x
	kind, _ := mediaType(res.Header.Get("Content-Type")) // "" when it cannot be read
	events := kind == "text/event-stream"
	served := res.StatusCode < http.StatusMultipleChoices
	if served && x.asked.Metered && x.asked.Shape != usage.None {
		a.scanner = usage.NewScanner(x.asked.Shape, res.Header.Get("Content-Type"))
	}
	strip := injected && served && events
	readdress := served && !events && len(x.up.Description.Addresses) > 0 && (kind == "application/json" || strings.HasSuffix(kind, "+json")) && !encoded(res.Header)
	x.begun(res, a, strip || readdress)
	flows := events || res.ContentLength < 0
	to := io.Writer(x.w)
	// The header goes out at once too; that the client has gone is noticed below.
	flush := flows
	if flows && a.watch.enter() {
		flush = !errors.Is(x.rc.Flush(), http.ErrNotSupported)
		a.watch.leave()
	}
	var stripper *usage.Stripper
	if strip {
		stripper = usage.NewStripper(x.w)
		to = stripper
	}
	if readdress {
		d := &readdresser{w: x.w, leads: func(address string) string {
			if to := x.leads(address, res.Request.URL); to != "" {
				return x.here() + to
			}
			return ""
		}}
		for _, name := range x.up.Description.Addresses {
			d.names = append(d.names, []byte(`"`+name+`"`))
		}
		to = d
		defer func() {
			if d.Close() != nil && x.told.Ending == Complete {
				x.told.Ending = ClientGone
			}
		}()
	}
	if flows {
		buffer := streamBuffers.Get().(*[streamBuffer]byte)
		defer streamBuffers.Put(buffer)
		x.told.Ending = a.copy(to, res.Body, buffer[:], flush)
	} else {
		buffer := wholeBuffers.Get().(*[wholeBuffer]byte)
		defer wholeBuffers.Put(buffer)
		x.told.Ending = a.copy(to, res.Body, buffer[:], false)
	}
	if stripper != nil && stripper.Close() != nil && x.told.Ending == Complete {
		x.told.Ending = ClientGone
	}
	if x.told.Ending == Complete && len(res.Trailer) > 0 {
		trailer := http.Header{}
		x.up.Description.Return(trailer, res.Trailer)
		for name, values := range trailer {
			if len(values) > 0 {
				x.w.Header()[http.TrailerPrefix+name] = values
			}
		}
	}
}

// copy passes a body on until it ends, whoever ends it.
func (a *attempt) copy(to io.Writer, from io.Reader, buffer []byte, flush bool) Ending {
	x := a.x
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
				gone = x.rc.Flush()
			}
			a.watch.leave()
			if gone != nil {
				return a.ended(ClientGone)
			}
			a.watch.move()
			x.told.Received += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			return Complete
		case err != nil:
			return a.ended(BrokenOff)
		}
	}
}

// look reads along.
func (a *attempt) look(p []byte) {
	switch {
	case a.scanner != nil:
		_, _ = a.scanner.Write(p) // never fails
		a.drain()
	case a.status >= http.StatusBadRequest && len(a.head) < signal.MaxBody:
		a.head = append(a.head, p[:min(len(p), signal.MaxBody-len(a.head))]...)
	}
}

// ended says why a body did not come to its end, which seemed to be the one
// given: when the call was ended from here, that is why.
func (a *attempt) ended(seemed Ending) Ending {
	cause := context.Cause(a.ctx)
	switch {
	case errors.Is(cause, errCut):
		a.x.told.Reason = reason.Closed
		return Cut
	case seemed == ClientGone, a.x.r.Context().Err() != nil:
		// Also one that is there but does not read: it is not the provider's fault.
		a.x.told.Reason = reason.Canceled
		return ClientGone
	case errors.Is(cause, errLong):
		// The owner's own bound: the provider had answered, and was still at it.
		a.x.told.Reason = reason.Timeout
		return TimedOut
	case errors.Is(cause, errStalled), a.x.upload.failed.Load():
		a.x.told.Reason = reason.ClientError
		return ClientGone
	case errors.Is(cause, errSilent):
		a.class = reason.Failed
		a.x.told.Reason = reason.Timeout
		return TimedOut
	}
	a.class = reason.Failed
	a.x.told.Reason = reason.InvalidResponse
	return BrokenOff
}
