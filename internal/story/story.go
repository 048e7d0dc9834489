// Package story describes events, runs and limits of a connection as text, for the command
// line and the console. Unknown values are "unknown". It is pure and safe for concurrent
// use.
//
// Names of connections, streams and pools are not escaped in the texts; the caller has to
// escape them for its output.
package story

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/reason"
)

// Unknown is the text for an unknown value.
const Unknown = "unknown"

// Event describes an event in one line.
func Event(e event.Event) string {
	switch e.Type {
	case event.RunStart:
		if e.Phase == string(collect.RunReplays) {
			return "the replay began: what a former sink kept is copied, nothing is fetched"
		}
		if e.Phase != "" {
			return "the run began, for " + Lane(collect.LaneKind(e.Phase))
		}
		return "the run began"
	case event.RunEnd:
		return fmt.Sprintf("the run ended: %s", Reason(e.Reason))
	case event.WarmStart:
		return "stored rate " + e.Note
	case event.Phase:
		return phase(e)
	case event.ConnectionChanged:
		return Change(e.Connection, collect.ChangeOf(e))
	case event.Warning:
		return "warning: " + collect.WarningOf(e).String()
	case event.Fleet:
		if e.Note == "back" {
			return fmt.Sprintf("the fleet's server is back: sharing the pace of %s processes", figure.Count(e.Count))
		}
		return fmt.Sprintf("the fleet's server is away: going on at 1 of %s shares of the last known rate", figure.Count(e.Count))
	case event.Deferral:
		return fmt.Sprintf("%s of %s put off: %s", figure.Count(e.Count), e.Stream, Reason(e.Reason))
	case event.Circuit:
		if e.Circuit == nil {
			return "circuit " + Unknown
		}
		return fmt.Sprintf("circuit %s, was %s: %s after %s requests, %s retries",
			e.Circuit.State, e.Circuit.Previous, e.Circuit.Trigger, figure.Count(e.Circuit.Requests), figure.Count(e.Circuit.Retries))
	case event.CollectionRate:
		if e.Rate == nil {
			return "rate " + Unknown
		}
		verb := map[string]string{"speed_up": "speeding up to ", "back_off": "slowing down to ", "end": "rate at the end "}[e.Note]
		text := verb + OfCeiling(e.Rate)
		if b := e.Rate.LastBackoff; b != nil && e.Note == "back_off" {
			text += fmt.Sprintf(": %s at %s", Reason(b.Reason), BackoffRate(b))
		}
		return text
	}
	return string(e.Type)
}

// BackoffRate describes the rate at which a back-off happened. It is unknown where nothing was
// paced before.
func BackoffRate(b *event.Backoff) string {
	if b.AtIntervalMS <= 0 {
		return "an " + Unknown + " rate"
	}
	return figure.Rate(60000 / b.AtIntervalMS)
}

// phase says where a run went on.
func phase(e event.Event) string {
	text := e.Phase
	if e.Stream != "" {
		text += " of " + e.Stream
	}
	if e.Note != "" {
		text += ": " + e.Note
	}
	if e.Reason != reason.None {
		text += " (" + Reason(e.Reason) + ")"
	}
	return text
}

// Change describes a change of a connection.
func Change(connection string, c collect.Change) string {
	if c.Kind == collect.GapsOrphaned {
		return fmt.Sprintf("%s (headway gaps drop --connection %s --stream %s)", c, connection, c.Stream)
	}
	return c.String()
}

// Lane returns the name of a lane for people.
func Lane(l collect.LaneKind) string {
	if l == collect.Catchup {
		return "the past (catchup)"
	}
	return "what changes (steady)"
}

// Run describes the state of a run, and its kind if it is not a collection.
func Run(r collect.Run) string {
	if r.Kind != collect.RunCollects {
		return fmt.Sprintf("%s %s", r.Kind, r.State)
	}
	return string(r.State)
}

// OfCeiling describes a rate relative to its ceiling, if there is one.
func OfCeiling(r *event.Rate) string {
	if r == nil {
		return Unknown
	}
	if r.CeilingRatePerMin == 0 {
		return figure.Rate(r.EffectiveRatePerMin)
	}
	return fmt.Sprintf("%s of at most %s", figure.Rate(r.EffectiveRatePerMin), figure.Rate(r.CeilingRatePerMin))
}

// Limit describes a limit: size, unit, window and pool.
func Limit(l event.Limit) string {
	size, unit := Unknown, strings.ReplaceAll(l.Unit, "_", " ")
	if l.Size > 0 {
		size = figure.Number(l.Size)
	}
	text := size + " " + unit
	switch {
	case l.Kind == control.Concurrency.String():
		text += " under way"
	case l.WindowS > 0:
		text += " in " + window(l.Window())
	default:
		text += " in an " + Unknown + " time"
	}
	if l.Pool != "" {
		text += " (" + l.Pool + ")"
	}
	return text
}

// Use describes how much of a limit is in use, and when there is room for one more attempt;
// "" if neither is known.
func Use(l event.Limit, now time.Time) string {
	var all []string
	if l.Used != nil {
		all = append(all, figure.Number(*l.Used)+" in use")
	}
	switch wait := l.RoomAt.Sub(now); {
	case l.RoomAt.IsZero() && (l.Used == nil || l.Kind != control.TokenBucket.String() && *l.Used >= l.Size):
	case wait <= 0:
		all = append(all, "room now")
	default:
		all = append(all, "room in "+window(wait))
	}
	return strings.Join(all, ", ")
}

// window returns the length of a window. A learned one is seldom a round number: more than
// three digits of it are left out.
func window(d time.Duration) string {
	digits := time.Nanosecond
	for d >= 1000*digits && digits < time.Second {
		digits *= 10
	}
	return figure.Duration(d.Round(digits))
}

// Reason returns a reason as words.
func Reason(r reason.Reason) string { return strings.ReplaceAll(r.String(), "_", " ") }

// Belief describes a law's belief about a limit.
func Belief(b *event.Belief) string {
	if b == nil {
		return Unknown
	}
	limit := "of " + Unknown + " size"
	if b.Limit > 0 {
		limit = figure.Digits(b.Limit, 4)
	}
	if b.WindowS > 0 {
		limit += " in " + window(time.Duration(b.WindowS*float64(time.Second)))
	}
	return fmt.Sprintf("%s %s (confidence %.2f)", b.Kind, limit, b.Confidence)
}

// RefusedForLoad says what part of the attempts is refused for load whatever the pace; "" if none is.
func RefusedForLoad(r *event.Rate) string {
	if r.RefusedForLoad <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %% refused for load at any pace", 100*r.RefusedForLoad)
}

// Visible returns a name with control characters and direction marks replaced by U+FFFD.
// Letters of all scripts stay.
func Visible(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(name, string(unicode.ReplacementChar)))
}

// Clock returns a duration, rounded for people.
func Clock(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	default:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
}
