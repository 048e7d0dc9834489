// Package llm puts any client of a language model under a quota: each call is
// approved before it is sent and settled with what it used.
//
// [Client] has one method, so that the call of any SDK fits it ([Func]);
// [Governed] wraps a Client and is one itself. What a call is expected to cost,
// and what it did cost, two functions of the owner say: no provider is known
// here.
//
//   - A call that is denied never reaches the client underneath. Its error is a
//     *reason.Refusal that wraps a *quota.Denial, and llm:backoff is recorded.
//   - A call that failed after it was sent has used a call and no tokens.
//   - A call that was never sent, by [ErrNotSent] or a denial further down, is
//     given back whole.
//   - A panic underneath is settled like a failure, and goes on.
//
// It does not retry: an SDK that retries inside Complete makes calls that
// nobody approved, so turn its retries off. It does not stream: for that use a
// governor's Drain. Everything here is safe for concurrent use if the client,
// the approver and the functions are; only the approver waits.
//
// Stability: settling.
package llm
