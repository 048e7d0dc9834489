package collect

import (
	"errors"
	"fmt"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// GapStatus is where a gap stands.
type GapStatus string

// The statuses of a gap.
const (
	GapPending   GapStatus = "pending"
	GapLeased    GapStatus = "leased"
	GapRecovered GapStatus = "recovered"
	GapTerminal  GapStatus = "terminal"
)

// GapKey identifies a gap in its connection.
type GapKey struct {
	// Stream is the stream that is missing records: the detail stream.
	Stream string `json:"stream"`
	// Key is the item's key in the parent stream.
	Key string `json:"key"`
}

// Gap is a durable record of work still owed.
type Gap struct {
	ID         int64  `json:"id"`
	Connection string `json:"connection"`
	GapKey
	// Parent is the stream whose item the gap belongs to.
	Parent string `json:"parent,omitempty"`
	// Locator is what the connector needs to ask again: the item's list record.
	Locator []byte `json:"-"`
	// Reason is why it is owed.
	Reason reason.Reason `json:"reason"`
	Status GapStatus     `json:"status"`
	// Attempts counts requests that were sent for it; being looked at is not an attempt.
	Attempts  int64     `json:"attempts"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	// RetryAt is the earliest instant to try again; zero is any time.
	RetryAt time.Time `json:"retry_at,omitzero"`
	// Backlog says that the gap stands for a whole tail: every item of the
	// parent stream that changed at Since or later and whose detail is owed. Its
	// Key is empty. Cursor is how far its list has been walked.
	Backlog bool   `json:"backlog,omitempty"`
	Since   string `json:"since,omitempty"`
	Cursor  string `json:"cursor,omitempty"`
	// Items is how many items a backlog gap stands for now, as the store counts
	// them; 0 for the gap of one item.
	Items int64 `json:"items,omitempty"`
	// LastError is the class of the last failure and no content: "503 server_error".
	LastError string `json:"last_error,omitempty"`
}

// owes is how many items the gap stands for.
func (g Gap) owes() int64 {
	if g.Backlog {
		return g.Items
	}
	return 1
}

// GapFilter selects gaps. Zero fields select all.
type GapFilter struct {
	Connection string
	Stream     string
	Status     GapStatus
	Reason     reason.Reason
	// Backlog selects backlog gaps only.
	Backlog bool
	// AfterID pages through: gaps with a greater id only.
	AfterID int64
	// Limit bounds the number; 0 means no bound.
	Limit int
}

// ServeRequest asks for gaps to work off.
type ServeRequest struct {
	Now time.Time
	// Before leaves out gaps that were tried at this instant or later, so that
	// one pass tries each gap once.
	Before time.Time
	// NoPressure leaves out gaps that the provider's pressure caused, during a
	// cooldown.
	NoPressure bool
	// Streams leaves out gaps of all other streams; nil is all. It is the stream
	// of the details that counts.
	Streams []string
	// MaxBytes bounds the locators of a page together; one gap is served
	// whatever its size. MaxRows bounds their number.
	MaxBytes int64
	MaxRows  int
}

// GapAction is what an operator does to gaps.
type GapAction string

// The operator's actions.
const (
	// GapRetry makes pending and leased gaps due at once, and ends the
	// connection's source-pressure cooldown.
	GapRetry GapAction = "retry"
	// GapQuarantine takes pending gaps out of recovery.
	GapQuarantine GapAction = "quarantine"
	// GapRelease puts quarantined gaps back, with their attempts forgotten.
	GapRelease GapAction = "release"
	// GapDrop removes gaps that are not recovered: what they stand for is owed no
	// more. Of a backlog gap the items' own marks are removed too.
	GapDrop GapAction = "drop"
)

// When a detail that keeps failing is tried again, and when it is given up. A
// try is a run that asked for it, whatever redirects and retries that took: the
// walk asks once, and recovery at the run's end once more. After that it waits.
// Giving up takes both many tries and a long time, so that an outage of minutes
// or hours never becomes a loss; only what the provider says is gone needs no
// such time.
const (
	quarantineAfter = 8
	quarantineAge   = 24 * time.Hour
	firstTryWait    = time.Minute
	maxTryWait      = 6 * time.Hour
)

// tryWait is the wait after so many failed tries: a minute, doubled each time,
// at most six hours.
func tryWait(tries int64) time.Duration {
	return min(firstTryWait<<min(max(tries-1, 0), 16), maxTryWait)
}

// givenUp reports whether a gap that failed so often since age is quarantined.
func givenUp(why reason.Reason, tries int64, age time.Duration) bool {
	if tries < quarantineAfter || excused(why) {
		return false
	}
	return why == reason.NotFound || age >= quarantineAge
}

// excused reports whether a failure says nothing of the item: pressure, caps,
// and a provider that cannot be reached.
func excused(why reason.Reason) bool {
	switch why.Kind() {
	case reason.KindPressure, reason.KindCap, reason.KindCaller:
		return true
	case reason.KindNone, reason.KindWait, reason.KindFailure:
	}
	return why == reason.Unreachable || why == reason.Timeout || why == reason.QuotaExhausted || why == reason.Unauthorized || why == reason.TLS || why == reason.WrongScheme
}

// gapOf is the gap that an outcome which failed leaves. Its reason is the
// failure itself, also where something else kept it from being retried.
func gapOf(connection string, o outcome, now time.Time) Gap {
	g := Gap{
		GapKey: GapKey{Stream: o.to, Key: o.item.Key}, Connection: connection,
		Parent: o.from, Locator: o.item.Data, Status: GapPending, FirstSeen: now, LastSeen: now,
	}
	f, failed := errors.AsType[*connector.Failure](o.err)
	if !failed {
		g.Reason = reason.Internal
		if r, ok := errors.AsType[*reason.Refusal](o.err); ok {
			g.Reason, g.RetryAt = r.Reason, r.RetryAt
		}
		return g
	}
	g.Reason, g.RetryAt, g.LastError = f.Reason, f.RetryAt, f.Reason.String()
	if f.Status != 0 {
		g.LastError = fmt.Sprintf("%d %s", f.Status, f.Reason)
	}
	if f.Attempts == 0 && f.Stopped != reason.None {
		return g
	}
	// What nothing forbade and was not sent all the same counts as a try too, or
	// recovery would serve it again and again. A request that cannot be made will
	// not be possible later either.
	g.Attempts = 1
	if f.Attempts == 0 && f.Reason == reason.InvalidResponse {
		g.Status = GapTerminal
	}
	return g
}

// waitFor puts the next try off, after so many that failed. Pressure has waits
// of its own: the provider's, and the connection's cooldown.
func (g *Gap) waitFor(tries int64, now time.Time) {
	if g.Reason.Kind() != reason.KindFailure {
		return
	}
	if at := now.Add(tryWait(tries)).Round(0); at.After(g.RetryAt) {
		g.RetryAt = at
	}
}
