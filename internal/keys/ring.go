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
