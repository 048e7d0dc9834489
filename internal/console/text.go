package console

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/profile"
	"github.com/headway-go/headway/internal/story"
	"github.com/headway-go/headway/reason"
)

// published returns a published limit as text.
func published(l profile.Limit) string {
	unit := l.Unit
	if unit == "" {
		unit = "requests"
	}
	size := strconv.FormatFloat(l.Size, 'f', -1, 64)
	if l.Size == float64(int64(l.Size)) {
		size = figure.Count(int64(l.Size))
	}
	switch l.Kind {
	case profile.InFlight:
		return size + " " + unit + " at once"
	case profile.Bucket:
		return size + " " + unit + ", refilled in " + window(l.Window)
	case profile.Window:
	}
	return size + " " + unit + " in " + window(l.Window)
}

// sentence returns what an API says in a clause as a sentence.
func sentence(text string) string {
	text = story.Visible(text)
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// who returns the key, the tenant and the agent of a call, as far as it has them.
func who(c client.Call) string {
	var parts []string
	for _, p := range [][2]string{{"key ", c.Key}, {"tenant ", c.Tenant}, {"agent ", c.Agent}} {
		if p[1] != "" {
			parts = append(parts, p[0]+short(p[1]))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// window returns the length of a limit's window as text.
func window(d time.Duration) string {
	switch d {
	case 0:
		return "an " + story.Unknown + " time"
	case time.Second:
		return "a second"
	case time.Minute:
		return "a minute"
	case time.Hour:
		return "an hour"
	case 24 * time.Hour:
		return "a day"
	default:
		return story.Clock(d)
	}
}

// functions are the functions of the templates. An unknown value is never shown as a
// number.
var functions = template.FuncMap{
	"count": figure.Count,
	"known": func(n int64) string {
		if n < 0 {
			return story.Unknown
		}
		return figure.Count(n)
	},
	"left": func(n *int64) string {
		if n == nil {
			return "no limit"
		}
		return figure.Count(*n)
	},
	"rate": func(r *event.Rate) string {
		if r == nil || r.EffectiveRatePerMin <= 0 {
			return story.Unknown
		}
		return figure.Rate(r.EffectiveRatePerMin)
	},
	"ceiling": func(r *event.Rate) string {
		switch {
		case r == nil:
			return "ceiling " + story.Unknown
		case r.CeilingRatePerMin <= 0:
			return "no ceiling set"
		}
		return "of " + figure.Rate(r.CeilingRatePerMin)
	},
	"backoff": func(r *event.Rate) *event.Backoff {
		if r == nil {
			return nil
		}
		return r.LastBackoff
	},
	"at": func(b *event.Backoff) string {
		if b.AtIntervalMS <= 0 {
			return story.Unknown
		}
		return figure.Rate(60000 / b.AtIntervalMS)
	},
	"stored": func(p *collect.Pacing) string {
		if p == nil || p.IntervalMS <= 0 {
			return story.Unknown
		}
		return figure.Rate(60000/p.IntervalMS) + " (" + p.Law + ")"
	},
	"belief": func(r *event.Rate) string {
		if r == nil {
			return story.Unknown
		}
		text := spaced(story.Belief(r.Belief))
		if load := story.RefusedForLoad(r); load != "" {
			text += ", " + load
		}
		return text
	},
	"use":        func(l event.Limit) string { return cmp.Or(story.Use(l, time.Now()), story.Unknown) },
	"confidence": func(l event.Limit) string { return strconv.FormatFloat(l.Confidence, 'f', 2, 64) },
	"limit":      func(l event.Limit) string { return story.Visible(story.Limit(l)) },
	"event":      func(e event.Event) string { return story.Visible(story.Event(e)) },
	"who":        who,
	"sentence":   sentence,
	"visible":    story.Visible,
	"stands":     story.Run,
	"lane":       story.Lane,
	"tone":       func(s collect.RunState) Tone { return tones[s] },
	"clock":      story.Clock,
	"took": func(r collect.Run) string {
		switch {
		case !r.Ended.IsZero():
			return story.Clock(r.Ended.Sub(r.Started))
		case r.State == collect.RunRunning:
			return "still running"
		}
		return story.Unknown
	},
	"since": func(from, at time.Time) string {
		if from.IsZero() || at.IsZero() {
			return story.Unknown
		}
		return "+" + story.Clock(at.Sub(from))
	},
	"ms": func(ms float64) string { return story.Clock(time.Duration(ms * float64(time.Millisecond))) },
	"name": func(name string) string {
		if name == "" {
			return "none"
		}
		return short(name)
	},
	"in":   func(ms int64) string { return story.Clock(time.Duration(ms) * time.Millisecond) },
	"when": when,
	"stamp": func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	},
	"date": func(t time.Time) string {
		if t.IsZero() {
			return story.Unknown
		}
		return t.Local().Format(time.DateTime)
	},
	"short": short,
	"id":    rowID,
	"at_name": func(page, key, name string) string {
		return Path + page + "?" + url.Values{key: {name}}.Encode()
	},
	"tenth":     func(percent int) int { return (percent + 4) / 5 * 5 },
	"words":     story.Reason,
	"spaced":    spaced,
	"total":     func(b reason.Bounds) bool { return b.Total() > 0 },
	"quote":     shellQuote,
	"published": published,
	"percent":   func(share float64) string { return strconv.FormatFloat(100*share, 'f', 0, 64) + " %" },
	"interval": func(ms float64) string {
		if ms <= 0 {
			return story.Unknown
		}
		return figure.Rate(60000 / ms)
	},
	"budget": func(name string) string {
		if text := kinds[name]; text != "" {
			return text
		}
		return name
	},
	"inc": func(i int) int { return i + 1 },
	"values": func(values map[string]any) string {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if b, err := json.Marshal(values[name]); err == nil {
				parts = append(parts, name+" "+string(b))
			}
		}
		return story.Visible(strings.Join(parts, ", "))
	},
}

// spaced returns a name of the API, such as token_bucket, as words.
func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

// kinds are the budgets of a forecast for people.
var kinds = map[string]string{
	"calls": "Calls a minute", "tokens": "Tokens a minute", "inputTokens": "Input tokens a minute", "outputTokens": "Output tokens a minute",
	"softTokens": "Tokens a minute before pressure", "dailyTokens": "Tokens a day", "dailyCalls": "Calls a day",
}

// when returns how long ago, or how far in the future, an instant is. The text changes at
// most once a minute.
func when(t time.Time) string {
	if t.IsZero() {
		return story.Unknown
	}
	d := time.Since(t)
	ahead := d < 0
	if ahead {
		d = -d
	}
	text := "under a minute"
	switch {
	case d >= 48*time.Hour:
		text = strconv.Itoa(int(d/(24*time.Hour))) + " days"
	case d >= time.Hour:
		text = strconv.Itoa(int(d/time.Hour)) + " h"
	case d >= time.Minute:
		text = strconv.Itoa(int(d/time.Minute)) + " min"
	}
	if ahead {
		return "in " + text
	}
	return text + " ago"
}

// maxShown is the maximum length of a name in a list, in characters.
const maxShown = 80

// short shortens a name that is too long for a list.
func short(name string) string {
	name = story.Visible(name)
	if utf8.RuneCountInString(name) <= maxShown {
		return name
	}
	return string([]rune(name)[:maxShown-1]) + "…"
}

// rowID returns the id of a row in the page, for any connection name.
func rowID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "c" + hex.EncodeToString(sum[:8])
}

// shellQuote quotes a name for a command line that is shown to be copied.
func shellQuote(name string) string {
	if name != story.Visible(name) {
		return "NAME" // such a name cannot be copied
	}
	plain := !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./:@", r)
	})
	if plain && name != "" && name[0] != '-' {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
