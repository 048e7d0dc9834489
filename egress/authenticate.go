package egress

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/reason"
)

// caller identifies the client, and says how long the call may wait.
type caller struct {
	key keys.Key
	// presented is the Headway key from the client. It never goes upstream.
	presented string
	affinity  string    // selects one of several provider keys
	until     time.Time // end of waits: the client's deadline, or max_wait if that is earlier
}

// authenticate identifies the caller and reads how long the call may wait.
func (c *call) authenticate() *provider.Refusal {
	h, t := c.r.Header, c.table
	if t.keys != nil {
		presented := h.Get(headerKey)
		if presented == "" && c.up.owned() {
			presented = c.up.Description.Key(c.r)
		}
		key, err := t.keys.Admit(presented, c.began)
		if err != nil {
			return c.unauthenticated()
		}
		c.key, c.presented = key, presented
		c.log.KeyID = key.ID
	}
	var err error
	if c.log.Tenant, c.log.Agent, err = c.key.Bind(h.Get(headerTenant), h.Get(headerAgent)); err != nil {
		return forbidden("The key is bound to another tenant or agent than the one that the call names.")
	}
	if len(c.log.Tenant) > maxName || len(c.log.Agent) > maxName {
		return invalid(fmt.Sprintf("A tenant or agent is longer than %d bytes.", maxName))
	}
	if c.affinity = h.Get(headerAffinity); len(c.affinity) > maxName {
		return invalid(fmt.Sprintf("%s is longer than %d bytes.", headerAffinity, maxName))
	}
	c.log.Priority = c.key.Priority
	if v := h.Get(headerPriority); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < -maxPriority || n > maxPriority {
			return invalid(fmt.Sprintf("%s must be a whole number from -%d to %d.", headerPriority, maxPriority, maxPriority))
		}
		if c.log.Priority = n; t.keys != nil {
			c.log.Priority = c.key.Rank(n)
		}
	}
	if c.until, err = waitUntil(c.began, maxSpan, h); err != nil {
		return invalid(err.Error() + ".")
	}
	return nil
}

const (
	maxName     = 256 // bytes, as quota has it
	maxPriority = 1_000_000
)

// unauthenticated refuses a client without a valid key. A valid key is accepted even from an
// address that presented invalid ones: many clients may share an address.
func (c *call) unauthenticated() *provider.Refusal {
	now := c.began.Sub(c.proxy.origin)
	if wait, blocked := c.table.failedKeys.Blocked(now, c.r.RemoteAddr); blocked {
		return &provider.Refusal{
			Status: http.StatusTooManyRequests, Reason: reason.Unauthorized, RetryIn: wait,
			Message: "Too many requests without a valid Headway key.",
		}
	}
	c.table.failedKeys.Failed(now, c.r.RemoteAddr)
	c.w.Header().Set("WWW-Authenticate", `Bearer realm="headway"`)
	where := "in place of the provider's key."
	if !c.up.owned() {
		where = "in " + headerKey + ", beside the provider's key."
	}
	return &provider.Refusal{
		Status: http.StatusUnauthorized, Reason: reason.Unauthorized, RetryIn: noRetry,
		Message: "A valid Headway key is needed, " + where,
	}
}

// sdkTimeouts are the header fields in which SDKs send their own timeout, in seconds: those
// of OpenAI and Anthropic (made with Stainless), and of Google.
var sdkTimeouts = [...]string{"X-Stainless-Timeout", "X-Stainless-Read-Timeout", "X-Server-Timeout"}

// waitUntil returns the instant until which a call may wait: limit after it began, or the
// deadline in its header, if that is earlier. An SDK's field that is invalid is ignored; an
// invalid Headway field is an error that names it.
func waitUntil(began time.Time, limit time.Duration, h http.Header) (time.Time, error) {
	until := began.Add(limit)
	sooner := func(t time.Time) {
		if t.Before(until) {
			until = t
		}
	}
	if v := h.Get(headerDeadline); v != "" {
		t, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return until, fmt.Errorf("%s is not an RFC 3339 instant, such as 2006-01-02T15:04:05Z", headerDeadline)
		}
		sooner(t)
	}
	if v := h.Get(headerTimeout); v != "" {
		d, ok := span(v)
		if !ok {
			return until, fmt.Errorf("%s is not a length of time above 0, such as 2s or 2 (seconds)", headerTimeout)
		}
		sooner(began.Add(d))
	}
	for _, name := range sdkTimeouts {
		if d, ok := span(h.Get(name)); ok {
			sooner(began.Add(d))
		}
	}
	return until, nil
}

// maxSpan bounds durations in headers, so that sums do not overflow.
const maxSpan = 24 * time.Hour

// span parses a number of seconds, or a duration with a unit.
func span(v string) (time.Duration, bool) {
	if v == "" || len(v) > 32 {
		return 0, false
	}
	if seconds, err := strconv.ParseFloat(v, 64); err == nil {
		if !(seconds > 0) || math.IsInf(seconds, 0) {
			return 0, false
		}
		return time.Duration(min(seconds, maxSpan.Seconds()) * float64(time.Second)), true
	}
	d, err := time.ParseDuration(strings.TrimSpace(v))
	return min(d, maxSpan), err == nil && d > 0
}

// Names for Headway's own keys, so that a program needs only this package to ask
// for them.
type (
	// Key is one Headway key: the hash of its secret, and what it may do.
	Key = keys.Key
	// Role is what a key may do with the API and the console of a daemon.
	Role = keys.Role
	// Keys are all keys of a proxy. Make them with [NewKeys].
	Keys = keys.Ring
	// KeyLimits bound how often one address may present what is not a key.
	KeyLimits = keys.Limits
)

// NewKeys checks keys and puts them together. The error names each wrong key by its
// ID, never by its hash.
func NewKeys(all []Key) (*Keys, error) { return keys.New(all) }

// HashKey gives the hash of a secret, as in [Key].
func HashKey(secret string) string { return keys.Hash(secret) }

// GenerateKey makes the secret of a new key, and its hash. Only the hash is to be
// kept.
func GenerateKey() (secret, hash string) { return keys.Generate() }
