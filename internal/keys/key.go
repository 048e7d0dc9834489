// Package keys answers "who presents this key, and what may they do": Headway's
// own keys, which clients present in place of the provider's. A key is a random
// secret of 256 bits; only its SHA-256 is kept, and all of a [Ring] is compared
// in constant time. A key may be bound to a tenant and an agent, to models and
// providers by globs, to a priority and to a last day.
//
// [Ring.Admit] is the verb that most callers want; [Key.Permit] then asks
// whether that key may use a provider and a model. [Limiter] bounds how often
// one address may present what is not a key.
//
// It is not for a provider's keys, and not for passwords: a plain SHA-256 is
// safe only because the secret cannot be guessed, so a ring takes nothing but
// hashes and [Generate] makes the secrets.
//
// A [Ring] never changes and is safe for concurrent use; so is a [Limiter],
// which has one mutex. No clock is read: callers pass the instant. No error
// holds a secret or a hash.
package keys

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/reason"
)

// Key is one key and its scope. The zero scope is open: any tenant, agent,
// model and provider, no end, priority 0.
type Key struct {
	// ID names the key in logs and errors: 1 to 128 printable bytes, unique in
	// its ring.
	ID string
	// Hash is "sha256:" and 64 hexadecimal digits, as [Generate] and [Hash] write
	// it. A ring's answers leave it out.
	Hash string
	// Tenant and Agent are what the key speaks for; empty leaves it to the caller.
	Tenant string
	Agent  string
	// Models are globs as [path.Match] reads them, where "*" stops at a slash;
	// "*" alone is any model. Empty is any.
	Models []string
	// Providers are globs of provider names. Empty is any.
	Providers []string
	// Uploads lets a key that is bound to models upload and keep files, which name none.
	Uploads bool
	// Admin says that the key may change the configuration.
	Admin bool
	// Expires is the first instant at which the key is no more; zero is never.
	Expires time.Time
	// Priority is what the key's calls have when they ask for none.
	Priority int
	// PriorityMax is the most that they may ask for, at least Priority. 0 is the
	// default: Priority.
	PriorityMax int
}

// Expired reports whether the key is no more at the wall-clock instant now.
func (k *Key) Expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// Permit is nil when the key may use the model of the provider. A call that names
// no model passes "": a key that is bound to models may make it only with Uploads,
// since what it would use cannot be known; the caller takes Uploads away from calls
// that may run a model. The error is a [reason.Refusal] with the reason forbidden, and
// names the key's ID and what it may not use.
func (k *Key) Permit(provider, model string) error {
	switch {
	case !matches(k.Providers, provider):
		return k.forbidden("the provider %q is not among the key's (%d globs)", clip(provider), len(k.Providers))
	case matches(k.Models, model), model == "" && k.Uploads:
		return nil
	case model == "":
		return k.forbidden("the key is bound to models (%d globs) and the call names none", len(k.Models))
	default:
		return k.forbidden("the model %q is not among the key's (%d globs)", clip(model), len(k.Models))
	}
}

// Bind gives the tenant and the agent for whom a call is that asks for these.
// Those of the key stand; to ask for another is an error: a [reason.Refusal]
// with the reason forbidden.
func (k *Key) Bind(tenant, agent string) (boundTenant, boundAgent string, err error) {
	for _, b := range [...]struct {
		what, asked, own string
		bound            *string
	}{{"tenant", tenant, k.Tenant, &boundTenant}, {"agent", agent, k.Agent, &boundAgent}} {
		switch {
		case b.own == "":
			*b.bound = b.asked
		case b.asked == "" || b.asked == b.own:
			*b.bound = b.own
		default:
			return "", "", k.forbidden("the key speaks for another %s than %q", b.what, clip(b.asked))
		}
	}
	return boundTenant, boundAgent, nil
}

// Rank is the priority of a call that asks for one: at most PriorityMax. A
// call may always ask for less.
func (k *Key) Rank(asked int) int {
	if k.PriorityMax == 0 {
		return min(asked, k.Priority)
	}
	return min(asked, k.PriorityMax)
}

func (k *Key) forbidden(format string, args ...any) error {
	return &reason.Refusal{Reason: reason.Forbidden, Scope: "key " + k.ID, Err: fmt.Errorf(format, args...)}
}

// matches takes globs that were checked.
func matches(globs []string, name string) bool {
	if len(globs) == 0 {
		return true
	}
	return name != "" && slices.ContainsFunc(globs, func(glob string) bool {
		ok, _ := path.Match(glob, name) // New checked the pattern
		return ok || glob == "*"
	})
}

// clip bounds what of a caller's own words is repeated to it.
func clip(s string) string { return s[:min(len(s), maxText)] }

// formed is the length in bytes of the keys that [Generate] makes, less [Prefix].
const formed = (secretSize*8 + 5) / 6

// Found reports whether a text holds anything that has the form of a key that
// [Generate] makes.
func Found(text string) bool {
	for {
		at := strings.Index(text, Prefix)
		if at < 0 {
			return false
		}
		text = text[at+len(Prefix):]
		n := 0
		for n < len(text) && n < formed && inKey(text[n]) {
			n++
		}
		if n == formed {
			return true
		}
	}
}

func inKey(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}
