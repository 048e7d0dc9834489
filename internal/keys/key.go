// Package keys authenticates clients by Headway's own keys, which they present instead of
// the provider's, and says what each key may do. A key is a random secret of 256 bits;
// only its SHA-256 is kept, and it is compared in constant time with all keys of a
// [Ring]. A key may be bound to a tenant and an agent, to models and providers by globs,
// to a priority and to an expiry.
//
// Most callers want [Ring.Admit]; [Key.Permit] then checks whether the key may use a
// provider and a model. [Limiter] bounds how often one address may present an invalid
// key.
//
// Do not use it for a provider's keys or for passwords: a plain SHA-256 is safe only
// because the secret cannot be guessed, so a ring accepts only hashes, and [Generate]
// makes the secrets.
//
// A [Ring] never changes and is safe for concurrent use; so is a [Limiter], which has one
// mutex. No clock is read: callers pass the instant. No error contains a secret or a
// hash.
package keys

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/reason"
)

// Key is one key and its scope. The zero scope allows any tenant, agent, model and
// provider, never expires, and has priority 0.
type Key struct {
	// ID names the key in logs and errors: 1 to 128 printable bytes, unique in
	// its ring.
	ID string
	// Hash is "sha256:" and 64 hexadecimal digits, as [Generate] and [Hash] write it. It
	// is omitted from the keys that a ring returns.
	Hash string
	// Tenant and Agent are those of the key's calls; if empty, the caller chooses.
	Tenant string
	Agent  string
	// Models are globs as in [path.Match], where "*" stops at a slash; "*" alone matches
	// any model. Empty means any.
	Models []string
	// Providers are globs of provider names. Empty means any.
	Providers []string
	// Uploads lets a key that is bound to models upload and manage files, which name no
	// model.
	Uploads bool
	// Admin says that the key may change the configuration.
	Admin bool
	// Expires is the first instant at which the key is invalid; zero means never.
	Expires time.Time
	// Priority is the priority of calls that ask for none.
	Priority int
	// PriorityMax is the greatest priority that calls may ask for, at least Priority. 0
	// means Priority.
	PriorityMax int
}

// Expired reports whether the key is expired at the wall-clock instant now.
func (k *Key) Expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// Permit returns nil if the key may use the model of the provider. Pass "" for a call
// that names no model: a key that is bound to models may make it only with Uploads, since
// the call's use cannot be known; the caller clears Uploads for calls that may run a
// model. The error is a [reason.Refusal] with the reason forbidden, and names the key's
// ID and what it may not use.
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

// Bind returns the tenant and agent of a call that asks for these. The key's own apply;
// asking for others is an error: a [reason.Refusal] with the reason forbidden.
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

// Rank returns the priority of a call that asks for one: at most PriorityMax. A call may
// always ask for less.
func (k *Key) Rank(asked int) int {
	if k.PriorityMax == 0 {
		return min(asked, k.Priority)
	}
	return min(asked, k.PriorityMax)
}

func (k *Key) forbidden(format string, args ...any) error {
	return &reason.Refusal{Reason: reason.Forbidden, Scope: "key " + k.ID, Err: fmt.Errorf(format, args...)}
}

// matches reports whether a name matches one of the globs, which were checked before.
func matches(globs []string, name string) bool {
	if len(globs) == 0 {
		return true
	}
	return name != "" && slices.ContainsFunc(globs, func(glob string) bool {
		ok, _ := path.Match(glob, name) // New checked the pattern
		return ok || glob == "*"
	})
}

// clip bounds how much of a caller's own text is repeated to it.
func clip(s string) string { return s[:min(len(s), maxText)] }

// formed is the length in bytes of the keys that [Generate] makes, without [Prefix].
const formed = (secretSize*8 + 5) / 6

// Found reports whether a text contains anything in the form of a key made by [Generate].
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
