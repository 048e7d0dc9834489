package event

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/headway-go/headway/reason"
)

// Log returns a function that writes each event to a logger. It can be used as OnEvent:
//
//	headway.Config{OnEvent: event.Log(slog.Default())}
//
// One event is one line. The message is the event's type, and the attributes are the
// event's members under their JSON names; those of a rate or a circuit form a group. An
// open circuit, a warning about a list and a change of the fleet are logged as warnings,
// changes of the rate and of the phase as debug lines, the rest as info.
//
// The function is safe for concurrent use if the logger's handler is, as those of
// log/slog are. An event below the handler's level costs next to nothing.
func Log(log *slog.Logger) func(Event) {
	return func(e Event) {
		ctx, level := context.Background(), levelOf(&e)
		if log.Enabled(ctx, level) {
			log.LogAttrs(ctx, level, string(e.Type), attributes(&e)...) //nolint:sloglint // a fixed set of words
		}
	}
}

func levelOf(e *Event) slog.Level {
	switch e.Type {
	case CollectionRate, Phase:
		return slog.LevelDebug
	case Warning, Fleet:
		return slog.LevelWarn
	case Circuit:
		if e.Circuit != nil && e.Circuit.State == "open" {
			return slog.LevelWarn
		}
	case WarmStart, Deferral, ConnectionChanged, RunStart, RunEnd:
	}
	return slog.LevelInfo
}

// attributes returns the members that are set.
func attributes(e *Event) (attrs []slog.Attr) {
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	text("connection", e.Connection)
	text("run", e.Run)
	text("stream", e.Stream)
	text("phase", e.Phase)
	if e.Reason != reason.None {
		text("reason", e.Reason.String())
	}
	text("note", e.Note)
	if e.Count != 0 {
		attrs = append(attrs, slog.Int64("count", e.Count))
	}
	if r := e.Rate; r != nil {
		attrs = append(attrs, slog.Group("rate", rate(r)...))
	}
	for _, l := range e.Limits {
		attrs = append(attrs, slog.Group("limit",
			slog.String("kind", l.Kind), slog.Float64("size", l.Size), slog.Float64("window_s", l.WindowS), slog.String("unit", l.Unit),
			slog.String("pool", l.Pool), slog.String("provenance", string(l.Provenance)), slog.Float64("confidence", l.Confidence)))
	}
	if c := e.Circuit; c != nil {
		attrs = append(attrs, slog.Group("circuit",
			slog.String("previous_state", c.Previous), slog.String("state", c.State), slog.String("trigger", c.Trigger),
			slog.Int64("elapsed_ms", c.ElapsedMS), slog.Int64("requests", c.Requests), slog.Int64("retries", c.Retries)))
	}
	if b := e.Bound; b != nil {
		var shares []any
		for _, by := range slices.Sorted(maps.Keys(b.Shares)) {
			shares = append(shares, slog.Float64(by, b.Shares[by]))
		}
		attrs = append(attrs, slog.Group("bound", shares...))
	}
	return attrs
}

func rate(r *Rate) []any {
	attrs := []any{
		slog.Float64("current_interval_ms", r.CurrentIntervalMS), slog.Float64("effective_rate_per_min", r.EffectiveRatePerMin),
		slog.Float64("ceiling_interval_ms", r.CeilingIntervalMS), slog.Float64("ceiling_rate_per_min", r.CeilingRatePerMin),
	}
	if b := r.LastBackoff; b != nil {
		attrs = append(attrs, slog.Group("last_backoff",
			slog.String("reason", b.Reason.String()), slog.Float64("at_interval_ms", b.AtIntervalMS), slog.Time("at", b.At)))
	}
	if b := r.Belief; b != nil {
		attrs = append(attrs, slog.Group("belief", slog.String("kind", b.Kind), slog.Float64("limit", b.Limit),
			slog.Float64("window_s", b.WindowS), slog.Float64("confidence", b.Confidence)))
	}
	if r.RefusedForLoad > 0 {
		attrs = append(attrs, slog.Float64("refused_for_load", r.RefusedForLoad))
	}
	return attrs
}
