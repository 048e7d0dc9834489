package rest

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headway-go/headway/internal/configfile"
)

// MaxConcurrency bounds run.concurrency.
const MaxConcurrency = 1024

// Fields that [Config.Override] sets.
const (
	FieldCeiling      = "provider.ceiling"
	FieldMaxRequests  = "run.max_requests"
	FieldMaxWallClock = "run.max_wall_clock"
	FieldCatchupPages = "run.catchup_pages"
	FieldConcurrency  = "run.concurrency"
)

// Override sets one of the fields above for a run, from a flag or the
// environment: text is written, and bounded, as in the file. An error says what is
// wrong with it and what is allowed, and leaves the field as it is.
func (c *Config) Override(field, text string) error {
	f := configfile.NewFile("", configfile.Options{})
	b := builder{File: f}
	n := configfile.NewNode(f, field, text)
	if text == "" {
		return errors.New(n.Is())
	}
	changed := *c
	switch field {
	case FieldCeiling:
		changed.Provider.Ceiling = b.ceiling(n)
	case FieldMaxRequests:
		changed.Run.MaxRequests = b.maxRequests(n)
	case FieldMaxWallClock:
		changed.Run.MaxWallClock = b.maxWallClock(n)
	case FieldCatchupPages:
		changed.Run.CatchupPages = b.catchupPages(n)
	case FieldConcurrency:
		changed.Run.Concurrency = b.concurrency(n)
	default:
		return fmt.Errorf("no field %q may be set apart from the file", field)
	}
	if e, ok := errors.AsType[*ConfigError](f.Err()); ok {
		return errors.New(e.Problems[0].Message)
	}
	*c = changed
	return nil
}

// The bounds of what may be set in the file or apart from it.

func (b builder) ceiling(n *node) time.Duration {
	return b.duration(n, 0, time.Millisecond, 24*time.Hour)
}

func (b builder) maxRequests(n *node) int64  { return b.positive(n, 0, 1<<53-1) }
func (b builder) catchupPages(n *node) int64 { return b.positive(n, 0, 1<<53-1) }

func (b builder) maxWallClock(n *node) time.Duration {
	return b.duration(n, 0, time.Second, 366*24*time.Hour)
}

func (b builder) concurrency(n *node) int { return int(b.positive(n, 1, MaxConcurrency)) }

// positive is a count that is not 0, as the schema has it.
func (b builder) positive(n *node, unset, limit int64) int64 {
	if v, err := strconv.ParseInt(b.text(n), 10, 64); err == nil && v < 1 {
		n.Want("a whole number of at least 1")
		return unset
	}
	return b.count(n, unset, limit)
}
