package bulk

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/internal/ledger"
)

// Start says what [Run] expects of its folder.
type Start uint8

// The ways to start.
const (
	// StartOrResume starts a load, or resumes the one that is there.
	StartOrResume Start = iota
	// StartOnly refuses a folder with a load.
	StartOnly
	// ResumeOnly refuses a folder without one.
	ResumeOnly
)

// Options are how a load is run. Zero fields take the defaults.
type Options struct {
	// Dir is the folder of the journal, the reject file and the uncertain file:
	// one for each load. Required.
	Dir   string
	Start Start
	// Params are the numbers; batch bounds of the target count where they are
	// lower. Resend is the target's. A Seed of 0 is drawn at random.
	Params Params
	// StopOnMalformed stops at the first malformed row, with an error that names
	// its line, instead of rejecting it.
	StopOnMalformed bool
	// Pacing gives the governor of an identity, such as a member of a fleet: each batch
	// waits for its permit before the journal knows of it. The load closes it. Batches are
	// one attempt each, whatever they hold. nil: only the parallelism is bounded.
	Pacing func(identity string) (*headway.Governor, error)
	// Drain is how long batches in flight may go on after the context has ended.
	// Default 30 s; negative is not at all.
	Drain time.Duration
	// Abort ends batches in flight at once when it is closed: the load stops as if
	// the context had ended and Drain had passed. nil is never.
	Abort <-chan struct{}
	// OnProgress is called with how the load stands, at its beginning and end and every
	// ProgressEvery (default 1 s) between. It is called by one goroutine, which the
	// load waits for.
	OnProgress    func(Progress)
	ProgressEvery time.Duration
}

// resolve fills in defaults and checks the rest.
func (o Options) resolve(t Traits) (Options, error) {
	o.Drain = cmp.Or(o.Drain, 30*time.Second)
	o.ProgressEvery = cmp.Or(o.ProgressEvery, time.Second)
	switch {
	case o.Dir == "":
		return o, errors.New("bulk: dir is empty, must be the folder for the load's journal")
	case o.Start > ResumeOnly:
		return o, fmt.Errorf("bulk: start is %d, must be one of 0 to %d", o.Start, ResumeOnly)
	case o.ProgressEvery < 0:
		return o, fmt.Errorf("bulk: progress every is %v, must not be negative", o.ProgressEvery)
	case len(t.Identities) == 0:
		return o, errors.New("bulk: the target has no identity, must have at least one")
	case t.Name == "":
		return o, errors.New("bulk: the target has no name, must have one to be distinguished from others")
	}
	p := o.Params
	p.Resend, p.Hinted = t.Resend, t.Hinted
	if t.MaxRows > 0 {
		p.BatchRows = min(cmp.Or(p.BatchRows, t.MaxRows), t.MaxRows)
	}
	if t.MaxBytes > 0 {
		p.BatchBytes = min(cmp.Or(p.BatchBytes, t.MaxBytes), t.MaxBytes)
	}
	if p.Seed == 0 {
		p.Seed = rand.Uint64()
	}
	var err error
	o.Params, err = p.Resolve()
	return o, err
}

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
