package console

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/profile"
	"github.com/headway-go/headway/internal/story"
	"github.com/headway-go/headway/reason"
)

// perPage is the number of runs or gaps on a page.
const perPage = 100

// runList is the page of runs.
type runList struct {
	Connection string
	Runs       []collect.Run
	Whole      bool // the list is complete
}

func (c *Console) runs(v *visit) error {
	list := runList{Connection: v.r.URL.Query().Get("connection")}
	var err error
	if list.Runs, err = v.api.Runs(v.r.Context(), list.Connection, perPage); err != nil {
		return err
	}
	list.Whole = len(list.Runs) < perPage
	v.show(http.StatusOK, "runs", "Runs", list)
	return nil
}

func (c *Console) run(v *visit) error {
	trace, err := v.api.Run(v.r.Context(), v.r.URL.Query().Get("id"))
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "run", "Run", trace)
	return nil
}

// gapList is the page of gaps.
type gapList struct {
	Connection, Status, Reason string
	Gaps                       []collect.Gap
	Statuses                   []collect.GapStatus
	More                       string // the address of the next page; empty on the last page
	Review                     *client.GapChange
	Done                       string // the action that was just done; empty if none was
}

func (c *Console) gaps(v *visit) error {
	list := gapList{
		Connection: v.r.URL.Query().Get("connection"), Status: v.text("status"), Reason: v.text("reason"),
		Statuses: []collect.GapStatus{collect.GapPending, collect.GapLeased, collect.GapTerminal, collect.GapRecovered},
	}
	if n, err := strconv.ParseInt(v.text("changed"), 10, 64); err == nil && n >= 0 {
		list.Done = figure.Count(n)
	}
	f := collect.GapFilter{Connection: list.Connection, Status: collect.GapStatus(list.Status), Limit: perPage}
	f.AfterID, _ = strconv.ParseInt(v.text("after"), 10, 64)
	if list.Reason != "" {
		why, ok := reason.Parse(list.Reason)
		if !ok {
			return &client.Problem{Status: http.StatusBadRequest, Title: "No such reason"}
		}
		f.Reason = why
	}
	var err error
	if list.Gaps, err = v.api.Gaps(v.r.Context(), f); err != nil {
		return err
	}
	if len(list.Gaps) == perPage {
		q := v.r.URL.Query()
		q.Set("after", strconv.FormatInt(list.Gaps[perPage-1].ID, 10))
		list.More = Path + "gaps?" + q.Encode()
	}
	v.show(http.StatusOK, "gaps", "Gaps", list)
	return nil
}

// actOnGaps retries, quarantines or releases gaps: the selected ones or, after a
// confirmation, all gaps of the page's connection and reason.
func (c *Console) actOnGaps(v *visit) error {
	if err := v.form(); err != nil {
		return err
	}
	if !v.operates() {
		return errOperator
	}
	form := v.r.PostForm
	change := client.GapChange{Action: collect.GapAction(form.Get("action"))}
	if !slices.Contains([]collect.GapAction{collect.GapRetry, collect.GapQuarantine, collect.GapRelease}, change.Action) {
		return &client.Problem{Status: http.StatusBadRequest, Title: "No such action"}
	}
	q := url.Values{}
	for _, name := range []string{"connection", "status", "reason"} {
		if form.Get(name) != "" {
			q.Set(name, form.Get(name))
		}
	}
	if form.Get("which") == "all" {
		change.Connection, change.Reason = form.Get("connection"), form.Get("reason")
		change.All = change.Connection+change.Reason == ""
		if form.Get("step") != "apply" {
			v.show(http.StatusOK, "gaps", "Gaps", gapList{Connection: change.Connection, Status: form.Get("status"), Reason: change.Reason, Review: &change})
			return nil
		}
	} else {
		for _, text := range form["id"] {
			id, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return &client.Problem{Status: http.StatusBadRequest, Title: "The form cannot be read"}
			}
			change.IDs = append(change.IDs, id)
		}
		if len(change.IDs) == 0 {
			return &client.Problem{Status: http.StatusBadRequest, Title: "No gap was chosen", Detail: "go back and tick the gaps that are meant"}
		}
	}
	done, err := v.api.ActOnGaps(v.r.Context(), change)
	if err != nil {
		return err
	}
	q.Set("changed", strconv.FormatInt(done.Gaps, 10))
	http.Redirect(v.w, v.r, Path+"gaps?"+q.Encode(), http.StatusSeeOther)
	return nil
}

// changeList is the page of the audit log.
type changeList struct {
	Changes []client.Change
	Whole   bool // the list is complete
}

func (c *Console) audit(v *visit) error {
	list, err := v.api.Audit(v.r.Context(), time.Time{}, perPage)
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "audit", "Audit", changeList{list, len(list) < perPage})
	return nil
}

// callList is the page of calls.
type callList struct {
	Filters []callFilter
	Calls   []client.Call
	By      string
	Groups  []string // possible groups of usage
	Usage   []client.Usage
	Days    int
}

// callFilter is a name by which calls are selected.
type callFilter struct {
	Name, Value string
	Set         bool
}

// Name returns the name that a line of usage is about; empty if it has none.
func (l callList) Name(u client.Usage) string {
	at := map[string]*string{"day": u.Day, "provider": u.Provider, "key": u.Key, "tenant": u.Tenant, "agent": u.Agent, "model": u.Model}[l.By]
	if at == nil {
		return ""
	}
	return *at
}

// usageDays is the number of days that the page sums up.
const usageDays = 30

func (c *Console) calls(v *visit) error {
	list := callList{By: v.text("by"), Groups: []string{"key", "tenant", "agent", "model", "provider", "day"}, Days: usageDays}
	if !slices.Contains(list.Groups, list.By) {
		list.By = "key"
	}
	is := map[string]string{}
	for _, name := range []string{"provider", "key", "tenant", "agent", "model"} {
		f := callFilter{Name: name, Value: v.r.URL.Query().Get(name)}
		if f.Set = f.Value != ""; f.Set {
			is[name] = f.Value
		}
		list.Filters = append(list.Filters, f)
	}
	var err error
	if list.Calls, err = v.api.Calls(v.r.Context(), is, perPage); err != nil {
		return err
	}
	from := time.Now().UTC().AddDate(0, 0, 1-usageDays).Format(time.DateOnly)
	if list.Usage, err = v.api.Usage(v.r.Context(), from, "", []string{list.By}, is, perPage); err != nil {
		return err
	}
	v.show(http.StatusOK, "calls", "Calls", list)
	return nil
}

func (c *Console) profiles(v *visit) error {
	all, err := profile.All(c.o.Profiles...)
	if err != nil {
		return err
	}
	list := make([]profile.Sheet, len(all))
	for i, p := range all {
		list[i] = profile.Show(p)
	}
	v.show(http.StatusOK, "profiles", "Profiles", list)
	return nil
}

// fleetPage is the page of the fleet.
type fleetPage struct {
	Credentials []client.Credential // shared through this daemon
	Members     []Row               // connections of this daemon that are members
}

func (c *Console) fleet(v *visit) error {
	var page fleetPage
	var err error
	if page.Credentials, err = v.api.Fleet(v.r.Context()); err != nil {
		return err
	}
	rows, err := v.rows()
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Rate.Live != nil && r.Rate.Live.Fleet != nil {
			page.Members = append(page.Members, r)
		}
	}
	v.show(http.StatusOK, "fleet", "Fleet", page)
	return nil
}

func (c *Console) profile(v *visit) error {
	all, err := profile.All(c.o.Profiles...)
	if err != nil {
		return err
	}
	name := v.r.URL.Query().Get("name")
	at := slices.IndexFunc(all, func(p *profile.Profile) bool { return p.Name() == name })
	if at < 0 {
		return &client.Problem{Status: http.StatusNotFound, Title: "No such profile"}
	}
	v.show(http.StatusOK, "profile", all[at].Title(), profile.Show(all[at]))
	return nil
}

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
		return story.Belief(r.Belief)
	},
	"confidence": func(l event.Limit) string { return strconv.FormatFloat(l.Confidence, 'f', 2, 64) },
	"limit":      func(l event.Limit) string { return story.Visible(story.Limit(l)) },
	"event":      func(e event.Event) string { return story.Visible(story.Event(e)) },
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
	"words":     func(s fmt.Stringer) string { return strings.ReplaceAll(s.String(), "_", " ") },
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
