package cli

import (
	"fmt"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/reason"
)

// eventText tells an event as a line of a run's story.
func eventText(e event.Event) string {
	switch e.Type {
	case event.RunStart:
		if e.Phase == string(collect.RunReplays) {
			return "the replay began: what a former sink kept is copied, nothing is fetched"
		}
		if e.Phase != "" {
			return "the run began, for " + laneText(collect.LaneKind(e.Phase))
		}
		return "the run began"
	case event.RunEnd:
		return fmt.Sprintf("the run ended: %s", e.Reason)
	case event.WarmStart:
		return "stored rate " + e.Note
	case event.Phase:
		text := e.Phase
		if e.Stream != "" {
			text += " of " + e.Stream
		}
		if e.Note != "" {
			text += ": " + e.Note
		}
		if e.Reason != reason.None {
			text += " (" + e.Reason.String() + ")"
		}
		return text
	case event.ConnectionChanged:
		return changeText(e.Connection, collect.ChangeOf(e))
	case event.Warning:
		return "warning: " + collect.WarningOf(e).String()
	case event.Deferral:
		return fmt.Sprintf("%s of %s put off: %s", figure.Count(e.Count), e.Stream, e.Reason)
	case event.Circuit:
		return fmt.Sprintf("circuit %s, was %s: %s after %s requests, %s retries",
			e.Circuit.State, e.Circuit.Previous, e.Circuit.Trigger, figure.Count(e.Circuit.Requests), figure.Count(e.Circuit.Retries))
	case event.CollectionRate:
		verb := map[string]string{"speed_up": "speeding up to ", "back_off": "backing off to ", "end": "rate at the end "}[e.Note]
		text := fmt.Sprintf("%s%s of at most %s", verb, figure.Rate(e.Rate.EffectiveRatePerMin), figure.Rate(e.Rate.CeilingRatePerMin))
		if b := e.Rate.LastBackoff; b != nil && e.Note == "back_off" {
			text += fmt.Sprintf(": %s at %s", b.Reason, figure.Rate(60000/b.AtIntervalMS))
		}
		return text
	}
	return string(e.Type)
}
