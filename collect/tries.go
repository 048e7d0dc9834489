package collect

import (
	"errors"
	"fmt"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
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
