package collect

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// GapStatus is the status of a gap.
type GapStatus string

// The statuses of a gap.
const (
	GapPending   GapStatus = "pending"   // will be tried again
	GapLeased    GapStatus = "leased"    // a run is trying it now
	GapRecovered GapStatus = "recovered" // its detail was fetched and written
	GapTerminal  GapStatus = "terminal"  // quarantined: not tried again unless released
)

// GapKey identifies a gap in its connection.
type GapKey struct {
	// Stream is the stream that is missing records: the detail stream.
	Stream string `json:"stream"`
	// Key is the item's key in the parent stream.
	Key string `json:"key"`
}

// Gap is the stored record of a detail that is still owed.
type Gap struct {
	ID         int64  `json:"id"`
	Connection string `json:"connection"`
	GapKey
	// Parent is the stream whose item the gap belongs to.
	Parent string `json:"parent,omitempty"`
	// Locator is the item's list record, which the connector needs for another request.
	Locator []byte `json:"-"`
	// Reason is why the detail is owed.
	Reason reason.Reason `json:"reason"`
	Status GapStatus     `json:"status"`
	// Attempts counts the requests that were sent for it. Being served is not an attempt.
	Attempts  int64     `json:"attempts"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	// RetryAt is the earliest time of the next attempt; zero means any time.
	RetryAt time.Time `json:"retry_at,omitzero"`
	// Backlog reports that the gap stands for many items: every item of the parent
	// stream that changed at Since or later and is marked as owed. Its Key is empty.
	// Cursor is the next page of its walk.
	Backlog bool   `json:"backlog,omitempty"`
	Since   string `json:"since,omitempty"`
	Cursor  string `json:"cursor,omitempty"`
	// Items is the number of items that a backlog gap stands for, set by the store; 0 for
	// the gap of one item.
	Items int64 `json:"items,omitempty"`
	// LastError is the kind of the last failure, without content: "503 server_error".
	LastError string `json:"last_error,omitempty"`
}

// owes returns how many items the gap stands for.
func (g Gap) owes() int64 {
	if g.Backlog {
		return g.Items
	}
	return 1
}

// GapFilter selects gaps. A zero field does not restrict the selection.
type GapFilter struct {
	Connection string
	Stream     string
	Status     GapStatus
	Reason     reason.Reason
	// Backlog selects backlog gaps only.
	Backlog bool
	// AfterID selects gaps with a greater id only, for paging.
	AfterID int64
	// Limit is the maximum number of gaps; 0 means no limit.
	Limit int
}

// ServeRequest selects the gaps that a run tries next.
type ServeRequest struct {
	Now time.Time
	// Before leaves out gaps that were tried at this time or later, so that one pass
	// tries each gap once.
	Before time.Time
	// NoPressure leaves out gaps that the provider's pressure caused. It is set during a
	// cooldown.
	NoPressure bool
	// Streams are the detail streams whose gaps are served; nil means all.
	Streams []string
	// MaxBytes is the maximum total size of the locators; at least one gap is served,
	// whatever its size. MaxRows is the maximum number of gaps.
	MaxBytes int64
	MaxRows  int
}

// GapAction is an operator's action on gaps.
type GapAction string

// The operator's actions.
const (
	// GapRetry makes pending and leased gaps due at once, and ends the
	// connection's source-pressure cooldown.
	GapRetry GapAction = "retry"
	// GapQuarantine takes pending gaps out of recovery.
	GapQuarantine GapAction = "quarantine"
	// GapRelease makes quarantined gaps pending again and sets their attempts to 0.
	GapRelease GapAction = "release"
	// GapDrop removes gaps that are not recovered: their details are no longer owed. For
	// a backlog gap, the marks on its items are removed too.
	GapDrop GapAction = "drop"
)

// When a detail that keeps failing is tried again, and when it is quarantined. A try
// is one run that requested it, whatever redirects and retries that took. Quarantine
// needs both quarantineAfter tries and quarantineAge, so that an outage of hours
// quarantines nothing. A detail that is not found needs the tries only.
const (
	quarantineAfter = 8
	quarantineAge   = 24 * time.Hour
	firstTryWait    = time.Minute
	maxTryWait      = 6 * time.Hour
)

// tryWait returns the wait after the given number of failed tries: one minute, doubled
// each time, at most six hours.
func tryWait(tries int64) time.Duration {
	return min(firstTryWait<<min(max(tries-1, 0), 16), maxTryWait)
}

// givenUp reports whether a gap of that age is quarantined after that many tries.
func givenUp(why reason.Reason, tries int64, age time.Duration) bool {
	if tries < quarantineAfter || excused(why) {
		return false
	}
	return why == reason.NotFound || age >= quarantineAge
}

// excused reports whether a failure is not the item's fault: pressure, a cap, or a
// provider that cannot be reached or does not accept the credential.
func excused(why reason.Reason) bool {
	switch why.Kind() {
	case reason.KindPressure, reason.KindCap, reason.KindCaller:
		return true
	case reason.KindNone, reason.KindWait, reason.KindFailure:
	}
	return why == reason.Unreachable || why == reason.Timeout || why == reason.QuotaExhausted || why == reason.Unauthorized || why == reason.TLS || why == reason.WrongScheme
}

// gapOf returns the gap for a failed outcome. Its reason is the failure itself, even if
// something else, such as a cap, prevented a retry.
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
	// A request that was not sent although nothing forbade it counts as a try too;
	// otherwise recovery would serve the gap again and again. If the request cannot be
	// built, a later try cannot succeed either.
	g.Attempts = 1
	if f.Attempts == 0 && f.Reason == reason.InvalidResponse {
		g.Status = GapTerminal
	}
	return g
}

// waitFor sets RetryAt after the given number of failed tries. It leaves gaps that
// pressure caused: they wait for the provider's Retry-After or the cooldown.
func (g *Gap) waitFor(tries int64, now time.Time) {
	if g.Reason.Kind() != reason.KindFailure {
		return
	}
	if at := now.Add(tryWait(tries)).Round(0); at.After(g.RetryAt) {
		g.RetryAt = at
	}
}

// Check returns an error if a request to serve gaps has no bounds. It is for implementations
// of [Store]; store begins the error.
func (r ServeRequest) Check(store string) error {
	if r.MaxBytes <= 0 || r.MaxRows <= 0 {
		return fmt.Errorf("%s: serve: at most %d bytes and %d rows were asked for, both must be above 0", store, r.MaxBytes, r.MaxRows)
	}
	return nil
}

// Check returns an error if a commit has items without a stream, or a gap with an unknown
// status. It is for implementations of [Store]; store begins the error.
func (c *Commit) Check(store string) error {
	if len(c.Items) > 0 && c.Stream == "" {
		return fmt.Errorf("%s: commit: %d items without a stream: name it", store, len(c.Items))
	}
	for i := range c.Opened {
		switch g := &c.Opened[i]; g.Status {
		case "", GapPending, GapLeased, GapRecovered, GapTerminal:
		default:
			return fmt.Errorf("%s: commit: a gap of stream %q has the unknown status %q", store, g.Stream, g.Status)
		}
	}
	return nil
}

// Opening returns a gap as a commit at an instant opens it: pending unless it has a status,
// and seen at that instant unless it has others. tried is the time of its last attempt, zero
// without one, and rank orders it in [Store.Serve]. It is for implementations of [Store].
func (g Gap) Opening(at time.Time) (opened Gap, tried, rank time.Time) {
	if g.Status == "" {
		g.Status = GapPending
	}
	if g.FirstSeen.IsZero() {
		g.FirstSeen = at
	}
	if g.LastSeen.IsZero() {
		g.LastSeen = at
	}
	if g.Attempts > 0 {
		return g, g.LastSeen, g.LastSeen
	}
	return g, time.Time{}, g.FirstSeen
}

// PressureReasons returns the names of the reasons that [ServeRequest].NoPressure excludes,
// sorted.
func PressureReasons() (names []string) {
	for _, r := range reason.All() {
		if _, ok := reason.AsPressure(r); ok {
			names = append(names, r.String())
		}
	}
	slices.Sort(names)
	return names
}

// EncodeEvents returns events as JSON, numbered from last+1, for a trace whose last event has
// the number last.
func EncodeEvents(last int64, events []event.Event) ([][]byte, error) {
	list := make([][]byte, len(events))
	for i, e := range events {
		e.Seq, e.At = last+int64(i)+1, e.At.UTC()
		b, err := json.Marshal(e)
		if err != nil {
			return nil, fmt.Errorf("event %s cannot be written: %w", e.Type, err)
		}
		list[i] = b
	}
	return list, nil
}

// DecodeCooldown reads a cooldown that was stored as JSON. An unreadable or empty one means no
// cooldown.
func DecodeCooldown(stored []byte) (c Cooldown) {
	if json.Unmarshal(stored, &c) != nil {
		return Cooldown{}
	}
	return c
}
