// Package signal reads what one response of a provider tells about its limits:
// the class of the outcome, how long to wait, whether a long quota is used up,
// and every limit that the headers name.
//
// [Read] is the verb that most callers want: one call with a whole response
// gives one [Signal]. [Classify] is for callers that have a status and nothing
// else. [ReadStreamError] is for an error event inside a stream that began
// with 200.
//
// # What is understood
//
//   - Retry-After in seconds (decimals too) or as an HTTP-date, retry-after-ms
//     and x-ms-retry-after-ms. They beat everything else.
//   - RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers):
//     the structured-field Lists with q, w, qu, pk and r, t, pk, the Dictionary
//     of draft 7 (limit=100, remaining=5, reset=30), and the three separate
//     fields of earlier drafts.
//   - The convention X-RateLimit-Limit, -Remaining, -Used, -Reset, -Resource,
//     also written X-Rate-Limit-*, and its kin by requests and tokens of
//     OpenAI, Azure OpenAI and Anthropic. A reset may be delta seconds, epoch
//     seconds or milliseconds, a duration such as 6m0s, RFC 3339 or an
//     HTTP-date.
//   - Strava's pairs of usage and limit, Shopify's bucket 32/40, Dataverse's
//     x-ms-dop-hint. Dataverse's x-ms-ratelimit-* are for debugging only, by
//     its own documentation, and are not read.
//   - Error bodies of Google, OpenAI, Anthropic, GitHub and Dataverse.
//
// What is malformed, negative or absurd is ignored and never an error: a
// missing figure is [Unknown], a missing limit is absent. The figures are
// hints. A provider may refuse below them, so a caller still has to follow what
// actually comes back.
//
// # When not to use it
//
// It neither decides nor remembers: how long to wait in place, when to defer,
// and what interval follows belong to the packages that pace and control. It
// does not read usage (what a call cost) and knows no model names.
//
// # Concurrency and time
//
// All functions are pure and safe for concurrent use as long as nobody writes
// to the header and body meanwhile; neither is kept or changed. No clock is
// read: the caller passes the wall instant that it read once. Instants that the
// provider names are compared with the provider's own Date field where there is
// one, so that a skewed clock on either side does not matter. All durations are
// integer nanoseconds.
//
// Input is bounded by [MaxHeader], [MaxBody] and [MaxLimits]. Reading a
// response without limit headers does not allocate.
//
// Stability: stable.
package signal
