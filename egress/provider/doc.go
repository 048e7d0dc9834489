// Package provider describes the APIs that egress stands in front of, as data:
// where a call's model stands, which calls cost quota, what a request asks for,
// how a key is presented, which headers pass, and how a refusal is said so that
// the provider's own SDK understands it.
//
// [Builtin] gives what is known of an API, [New] a description from the few lines
// of a configuration. [Description.Call] is the verb of the hot path: one pass
// over the body that builds no tree and copies no text.
//
// It counts no tokens (egress does that with [Call.Texts]), reads no
// usage and sends nothing. What it cannot read is a call that is
// estimated roughly, not an error: a provider that adds a member tomorrow is
// served as before.
//
// A [Description] is not changed after it is made; all its methods are safe for
// concurrent use. Nothing here reads a clock.
//
// Stability: settling.
package provider
