package bulk

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Start says what [Run] expects of its folder.
type Start uint8

// The ways to start.
const (
	// StartOrResume starts a load, or goes on with the one that is there.
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
	// Drain is how long batches in flight may go on after the context has ended.
	// Default 30 s; negative is not at all.
	Drain time.Duration
	// Abort ends batches in flight at once when it is closed: the load stops as if
	// the context had ended and Drain had passed. nil is never.
	Abort <-chan struct{}
	// OnProgress is told how the load stands, at its beginning and end and every
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
		return o, errors.New("bulk: the target has no name, must have one to be told from others")
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
