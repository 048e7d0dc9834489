package egress

import "github.com/headway-go/headway/internal/keys"

// Names for Headway's own keys, so that a program needs only this package to ask
// for them.
type (
	// Key is one Headway key: the hash of its secret, and what it may do.
	Key = keys.Key
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
