package transport

import (
	"github.com/headway-go/headway"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
)

// Names for what a program hands in and gets back, so that it needs only this
// package to govern a client.
type (
	// Config is what a connection is governed by. Zero fields take the defaults.
	Config = headway.Config
	// Governor holds the rate of one connection. [Client] makes one from a [Config];
	// make one with [NewGovernor] for several transports.
	Governor = headway.Governor
	// Refusal is the error of a request that was not sent: why, and when to come back.
	// Match it with errors.As as *Refusal.
	Refusal = reason.Refusal
	// Class is how an attempt ended, as in [Attempt].
	Class = reason.Class
	// Backoff is the wait between attempts of one request, as in [Options].
	Backoff = retry.Backoff
	// Budget bounds the retries of all requests together, as in [Options].
	Budget = retry.Limits
)

// NewGovernor makes the governor of one connection.
func NewGovernor(c Config) (*Governor, error) { return headway.New(c) }
