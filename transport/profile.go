package transport

import (
	"net/http"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/signal"
)

// Profile describes the limits that a provider publishes. Package egress/provider has profiles
// of many providers; a program may also implement its own. Methods must be safe for concurrent
// use. They must not block or keep a header or body.
type Profile interface {
	// Attempt returns the pool whose limits a request shares, "" for those of the account
	// alone, and its estimated cost under limits that count units. If pool is not "",
	// [Options.Pool] has chosen it and Attempt returns it.
	Attempt(req *http.Request, pool string) (string, float64)
	// Limits returns the limits with which a pool starts, or the account for "". See
	// [Governor.Assume].
	Limits(pool string) []control.Limit
	// Reads reports whether Read needs the body of a response with a status below 400. If
	// so, up to 1 MiB of it is read before the response is returned.
	Reads(req *http.Request, pool string, status int, header http.Header) bool
	// Read corrects the signal of a response. It returns the pool named by the response or
	// "", the cost of the attempt or 0 if unknown, and whether a refusal concerns the
	// whole account.
	Read(now time.Time, req *http.Request, pool string, status int, header http.Header, body []byte, s *signal.Signal) (named string, cost float64, account bool)
}

// maxReport bounds the part of a body passed to a profile, in bytes.
const maxReport = 1 << 20

// maxBegun bounds the number of pools remembered as started.
const maxBegun = 4096

// ask returns the request of an attempt to the governor.
func (t *Transport) ask(req *http.Request) (headway.Request, error) {
	ask := headway.Request{Cost: 1}
	if t.o.Pool != nil {
		ask.Pool = t.o.Pool(req)
	}
	if t.o.Profile != nil {
		ask.Pool, ask.Cost = t.o.Profile.Attempt(req, ask.Pool)
	}
	if t.o.Cost != nil {
		ask.Cost = t.o.Cost(req)
	}
	return ask, t.begin(ask.Pool)
}

// poolOf returns the pool of a request.
func (t *Transport) poolOf(req *http.Request) (pool string) {
	if t.o.Pool != nil {
		pool = t.o.Pool(req)
	}
	if t.o.Profile != nil {
		pool, _ = t.o.Profile.Attempt(req, pool)
	}
	return pool
}

// begin gives a pool the published limits at its first use.
func (t *Transport) begin(pool string) error {
	if t.o.Profile == nil {
		return nil
	}
	t.mu.Lock()
	known := t.begun[pool]
	if !known {
		if t.begun == nil || len(t.begun) >= maxBegun {
			t.begun = map[string]bool{}
		}
		t.begun[pool] = true
	}
	t.mu.Unlock()
	if known {
		return nil
	}
	return t.governor.Assume(pool, t.o.Profile.Limits(pool))
}
