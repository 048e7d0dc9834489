package bulk

import (
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/internal/ledger"
)

// Names for what other packages decide and keep, so that a program needs only this
// package to write a [Source] or a [Target] and to run a load.
type (
	// Params are the numbers of a load. The zero value takes the defaults.
	Params = dispatch.Params
	// Resend is what may be sent twice.
	Resend = dispatch.Resend
	// Result is what a target says of a batch and its rows, as far as the load goes on
	// by it. It is embedded in [Outcome].
	Result = dispatch.Outcome
	// Verdict is what a target says of one row.
	Verdict = dispatch.Verdict
	// RowCounts are how many rows have which outcome, embedded in [Totals] and [Counts].
	RowCounts = ledger.Counts
	// Counts are what a run did.
	Counts = dispatch.Counts
	// IdentityState is how one identity stands, embedded in [IdentityProgress].
	IdentityState = dispatch.Identity
	// Input tells one input from others, so that a load is resumed with the same one.
	Input = journal.Input
)

// What may be sent twice.
const (
	ResendNothing = dispatch.ResendNothing // Twice is two rows, as for a plain create.
	ResendWhole   = dispatch.ResendWhole   // The same rows together, as with an idempotency key for each batch.
	ResendAny     = dispatch.ResendAny     // Any row, as for an upsert.
)

// The verdicts.
const (
	Unknown = dispatch.Unknown // The answer does not say; the row may have been written.
	Done    = dispatch.Done    // The row is written.
	Refused = dispatch.Refused // The row is at fault and was not written.
	Later   = dispatch.Later   // The row was not written and may be sent again.
)

// ErrNone says that a folder holds no load.
var ErrNone = journal.ErrNone
