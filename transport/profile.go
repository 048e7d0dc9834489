package transport

import (
	"net/http"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/signal"
)

// Profile is what a provider publishes of its limits. Package egress/provider has those of
// many providers, by their names; a program may have one of its own. It must be safe for
// concurrent use and must not block, nor keep a header or body.
type Profile interface {
	// Attempt is what a request shares limits with, "" for the account alone, and what it
	// is thought to take of limits that count units. A pool that was named elsewhere is
	// given and kept.
	Attempt(req *http.Request, pool string) (string, float64)
	// Limits are those that a pool begins with, or the account for "". See
	// [Governor.Assume].
	Limits(pool string) []control.Limit
	// Reads says that Read has a use for the body of a response below 400. Up to 1 MiB of
	// it are read then before the response is handed on.
	Reads(req *http.Request, pool string, status int, header http.Header) bool
	// Read corrects the signal of a response. It gives the pool that the response names,
	// "" for none, what the attempt took, 0 where that is not said, and whether a refusal
	// is about the whole account.
	Read(now time.Time, req *http.Request, pool string, status int, header http.Header, body []byte, s *signal.Signal) (named string, cost float64, account bool)
}

// maxReport is how much of a body a profile is given.
const maxReport = 1 << 20

// maxBegun is how many pools are remembered to have begun.
const maxBegun = 4096

// ask is what an attempt asks for.
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

// poolOf is the pool of a request.
func (t *Transport) poolOf(req *http.Request) (pool string) {
	if t.o.Pool != nil {
		pool = t.o.Pool(req)
	}
	if t.o.Profile != nil {
		pool, _ = t.o.Profile.Attempt(req, pool)
	}
	return pool
}

// begin has a pool begin with what is published, when it is used first.
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
