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

// Start is whether [Run] starts or resumes a load.
type Start uint8

// The ways to start.
const (
	// StartOrResume starts a load, or resumes the one in the folder.
	StartOrResume Start = iota
	// StartOnly returns an error if the folder has a load.
	StartOnly
	// ResumeOnly returns an error if the folder has no load.
	ResumeOnly
)

// Options are the options of a load. Zero fields take the defaults.
type Options struct {
	// Dir is the folder of the journal, the reject file and the uncertain file. Each load
	// needs its own. Required.
	Dir   string
	Start Start
	// Params are the parameters of the load. Lower batch limits of the target take
	// precedence, and Resend is set to the target's. A Seed of 0 is replaced by a random one.
	Params Params
	// StopOnMalformed stops the load at the first malformed row, with an error that names
	// its line, instead of rejecting the row.
	StopOnMalformed bool
	// Pacing gives the governor of an identity, such as a member of a fleet: each batch
	// waits for its permit before the journal knows of it. The load closes it. Batches are
	// one attempt each, whatever they hold. nil: only the parallelism is bounded.
	Pacing func(identity string) (*headway.Governor, error)
	// Drain is how long batches in flight may continue after the context has ended.
	// Default 30 s; negative means not at all.
	Drain time.Duration
	// Abort cancels batches in flight when it is closed: the load stops as if the context
	// had ended and Drain had passed. Default nil: never.
	Abort <-chan struct{}
	// OnProgress, if not nil, is called with the progress of the load at its begin and
	// end, and every ProgressEvery (default 1 s) in between. It is called from one
	// goroutine and must not block for long, since the load waits for it.
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

// Types of internal packages, so that a program needs only this package to implement a
// [Source] or a [Target] and to run a load.
type (
	// Params are the parameters of a load. Zero fields take the defaults.
	Params = dispatch.Params
	// Resend is what may be sent twice.
	Resend = dispatch.Resend
	// Result is the part of a batch's outcome on which the load bases its decisions. It is
	// embedded in [Outcome].
	Result = dispatch.Outcome
	// Verdict is the outcome of one row.
	Verdict = dispatch.Verdict
	// RowCounts counts rows by outcome. It is embedded in [Totals] and [Counts].
	RowCounts = ledger.Counts
	// Counts are what a run did.
	Counts = dispatch.Counts
	// IdentityState is how one identity stands, embedded in [IdentityProgress].
	IdentityState = dispatch.Identity
	// Input distinguishes inputs, so that a load is resumed with the same one.
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
