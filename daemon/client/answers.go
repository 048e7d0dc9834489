package client

import (
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/schedule"
)

// What a daemon is asked with and answers.
type (
	// Index says what there is: version and quotas.
	Index = api.Index
	// Forecast says when a budget runs out.
	Forecast = api.Forecast
	// Patched names the configuration that is in force after a patch.
	Patched = api.Patched
	// KeyRequest is what a Headway key is asked for with.
	KeyRequest = api.KeyRequest
	// NewKey is a new Headway key with its secret, which is shown this once.
	NewKey = api.NewKey
	// IssuedKey is a Headway key without its secret.
	IssuedKey = api.IssuedKey
	// Rate is the rate of one connection, and its state when it is live.
	Rate = api.Rate
	// Source says where a [Rate] comes from.
	Source = api.Source
	// Trace is one run and what happened in it.
	Trace = api.Trace
	// Schedule is when one connection is collected.
	Schedule = schedule.Status
	// Entry is one event.
	Entry = events.Entry
	// Problem is an error that the daemon answered with; match it with errors.As
	// as *Problem.
	Problem = api.Problem
	// FieldProblem is one field of a [Problem] that is out of its bound.
	FieldProblem = api.FieldProblem
)

// The sources of rates.
const (
	SourceProxy   = api.Proxy   // Live, of a provider that the daemon proxies.
	SourceCollect = api.Collect // Live, of a collection in the daemon.
	SourceStored  = api.Stored  // As the last run left it, or as of the last committed page.
)

const (
	// Oldest as [Filter].Since begins with the oldest entry that is kept.
	Oldest = events.Oldest
	// Dropped is the type of the [Entry] that stands for those that were missed.
	Dropped = events.Dropped
)
