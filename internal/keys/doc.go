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
