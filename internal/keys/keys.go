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
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/reason"
)

const (
	// Prefix starts every key that [Generate] makes, so that people and secret scanners
	// recognize it.
	Prefix = "hw_"

	scheme     = "sha256:"
	secretSize = 32
	// maxSecret is the longest text that is looked up, in bytes.
	maxSecret = 512
	// maxText is the longest ID, tenant, agent or glob, in bytes.
	maxText = 128
	// maxGlobs is the most globs of a kind that a key may have.
	maxGlobs = 256
	// MaxKeys is the most keys that a ring may have, since each look-up compares all.
	MaxKeys = 10_000
)

// Ring is an immutable set of keys; to reload, make another. The nil Ring is empty.
type Ring struct {
	hashes [][sha256.Size]byte
	keys   []Key
}

// New checks the keys and returns a ring. Errors name the key, the field and its bound.
// They never repeat a hash, because it may be the secret itself by mistake.
func New(keys []Key) (*Ring, error) {
	if len(keys) > MaxKeys {
		return nil, fmt.Errorf("keys: there are %d, must be at most %d", len(keys), MaxKeys)
	}
	r := &Ring{hashes: make([][sha256.Size]byte, len(keys)), keys: slices.Clone(keys)}
	ids := make(map[string]int, len(keys))
	hashes := make(map[[sha256.Size]byte]int, len(keys))
	var wrong []error
	for i := range r.keys {
		k := &r.keys[i]
		problem := k.check()
		if problem == nil {
			if first, taken := ids[k.ID]; taken {
				problem = fmt.Errorf("id is that of keys[%d] too, must be unique", first)
			}
			ids[k.ID] = i
		}
		if problem == nil {
			problem = decode(k.Hash, &r.hashes[i])
		}
		if problem == nil {
			if first, taken := hashes[r.hashes[i]]; taken {
				problem = fmt.Errorf("hash is that of keys[%d] too: each key needs a secret of its own", first)
			}
			hashes[r.hashes[i]] = i
		}
		if problem != nil {
			wrong = append(wrong, fmt.Errorf("keys[%d] %q: %w", i, clip(k.ID), problem))
			continue
		}
		k.Hash = ""
		k.Models, k.Providers = slices.Clone(k.Models), slices.Clone(k.Providers)
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return r, nil
}

// check returns what is wrong with any field but the hash.
func (k *Key) check() error {
	if k.ID == "" {
		return errors.New("id is missing: give the key a name for logs")
	}
	for _, f := range [...]struct{ field, text string }{{"id", k.ID}, {"tenant", k.Tenant}, {"agent", k.Agent}} {
		if len(f.text) > maxText {
			return fmt.Errorf("%s has %d bytes, must have at most %d", f.field, len(f.text), maxText)
		}
		if strings.ContainsFunc(f.text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return fmt.Errorf("%s holds a control character, must be printable", f.field)
		}
	}
	for _, f := range [...]struct {
		field string
		globs []string
	}{{"models", k.Models}, {"providers", k.Providers}} {
		if len(f.globs) > maxGlobs {
			return fmt.Errorf("%s has %d globs, must have at most %d", f.field, len(f.globs), maxGlobs)
		}
		for i, glob := range f.globs {
			if glob == "" || len(glob) > maxText {
				return fmt.Errorf("%s[%d] has %d bytes, must have 1 to %d; leave the list out to allow all", f.field, i, len(glob), maxText)
			}
			if _, err := path.Match(glob, ""); err != nil {
				return fmt.Errorf("%s[%d] is %q, must be a glob such as \"gpt-*\": %w", f.field, i, glob, err)
			}
		}
	}
	if k.Role != "" && !slices.Contains(Roles(), k.Role) {
		return fmt.Errorf("role is %q, must be viewer, operator or admin, or left out for a key that makes calls", clip(string(k.Role)))
	}
	if k.PriorityMax != 0 && k.PriorityMax < k.Priority {
		return fmt.Errorf("priority_max is %d, must be at least priority, which is %d", k.PriorityMax, k.Priority)
	}
	return nil
}

// decode reads a hash.
func decode(text string, into *[sha256.Size]byte) error {
	const remedy = `must be "sha256:" and 64 hexadecimal digits, as "headway key new" prints it`
	if text == "" {
		return errors.New("hash is missing, " + remedy)
	}
	if strings.HasPrefix(text, Prefix) {
		return errors.New("hash is a key itself: make a new one, because this one was written down, and put its hash here")
	}
	digits, ok := strings.CutPrefix(text, scheme)
	if !ok {
		return errors.New("hash begins with no known scheme, " + remedy)
	}
	if len(digits) != hex.EncodedLen(sha256.Size) {
		return fmt.Errorf("hash has %d digits after its scheme, %s", len(digits), remedy)
	}
	if _, err := hex.Decode(into[:], []byte(digits)); err != nil {
		return errors.New("hash holds what is not a hexadecimal digit, " + remedy) // the error itself would quote it
	}
	return nil
}

// Len returns the number of keys.
func (r *Ring) Len() int {
	if r == nil {
		return 0
	}
	return len(r.keys)
}

// Find looks up a presented secret, expired or not. The time it takes depends on the
// length of the text and on the number of keys, never on how much of a key is right.
// [Ring.Admit] checks the expiry too.
func (r *Ring) Find(presented string) (Key, bool) {
	if r == nil || presented == "" || len(presented) > maxSecret {
		return Key{}, false
	}
	sum := sha256.Sum256([]byte(presented))
	at := -1
	for i := range r.hashes {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], r.hashes[i][:]), i, at)
	}
	if at < 0 {
		return Key{}, false
	}
	return r.keys[at], true
}

// Admit returns the key of a presented secret at the wall-clock instant now. If the
// secret is missing, unknown or expired, the error is a [reason.Refusal] with the reason
// unauthorized that says which.
func (r *Ring) Admit(presented string, now time.Time) (Key, error) {
	k, ok := r.Find(presented)
	switch {
	case presented == "":
		return Key{}, unauthorized("no key is presented")
	case !ok:
		return Key{}, unauthorized("the presented key is unknown")
	case k.Expired(now):
		return Key{}, unauthorized(fmt.Sprintf("the key %s expired on %s", k.ID, k.Expires.UTC().Format(time.RFC3339)))
	}
	return k, nil
}

func unauthorized(why string) error {
	return &reason.Refusal{Reason: reason.Unauthorized, Scope: "keys", Err: errors.New(why)}
}

// Hash returns the form in which a secret is kept.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return scheme + hex.EncodeToString(sum[:])
}

// Generate makes a key of 256 random bits. It returns the secret, which is shown to its
// user once, and its hash, which goes into the configuration.
func Generate() (secret string, hash string) {
	var b [secretSize]byte
	_, _ = rand.Read(b[:]) // never fails
	secret = Prefix + base64.RawURLEncoding.EncodeToString(b[:])
	return secret, Hash(secret)
}

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
	// Role says what the key may do with the API and the console; a key with a role makes
	// no calls. Empty is a key for calls.
	Role Role
	// Expires is the first instant at which the key is invalid; zero means never.
	Expires time.Time
	// Priority is the priority of calls that ask for none.
	Priority int
	// PriorityMax is the greatest priority that calls may ask for, at least Priority. 0
	// means Priority.
	PriorityMax int
}

// Role is what a key may do with the API and the console, which decide what a role takes.
type Role string

// The roles. A Viewer reads. An Operator also acts on gaps and overrides limits. An Admin
// may do everything.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Admin    Role = "admin"
)

// Roles returns the roles, the least one first.
func Roles() []Role { return []Role{Viewer, Operator, Admin} }

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
