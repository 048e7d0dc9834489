// Package signal reads what one response of a provider says about its limits: the class
// of the outcome, how long to wait, whether a long-window quota is used up, and every
// limit that the headers state.
//
// Most callers want [Read], which turns a whole response into one [Signal]. [Classify] is
// for callers that only have a status. [ReadStreamError] is for an error event inside a
// stream that began with 200.
//
// # What is understood
//
//   - Retry-After in seconds (decimals too) or as an HTTP-date, retry-after-ms,
//     x-ms-retry-after-ms and Traefik's X-Retry-In. They beat everything else.
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
// Malformed, negative or absurd values are ignored and never an error: a missing figure
// is [Unknown], a missing limit is absent. The figures are hints: a provider may refuse
// below them, so a caller must still handle refusals.
//
// # When not to use it
//
// It neither decides nor remembers: the packages that pace decide how long to wait, when
// to defer, and which interval follows. It does not read usage (what a call cost) and is
// independent of model names.
//
// # Concurrency and time
//
// All functions are pure and safe for concurrent use, provided that the header and body
// are not modified meanwhile; neither is retained or changed. No clock is read: the
// caller passes the wall-clock time. Times stated by the provider are compared with its
// Date field if there is one, so that a skewed clock on either side does not matter. All
// durations are integer nanoseconds.
//
// Input is bounded by [MaxHeader], [MaxBody] and [MaxLimits]. Reading a response without
// limit headers does not allocate.
//
// Stability: stable.
package signal
