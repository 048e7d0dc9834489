package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/story"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// Tone says how a state is to be looked at.
type Tone string

// The tones. What is not known is Plain, never Good.
const (
	Plain Tone = "plain"
	Good  Tone = "good"
	Warn  Tone = "warn"
	Bad   Tone = "bad"
)

// Compare orders tones by what somebody should look at first: -1 where t comes before u.
func (t Tone) Compare(u Tone) int {
	rank := func(t Tone) int { return slices.Index([]Tone{Bad, Warn, Plain, Good}, t) }
	return cmp.Compare(rank(t), rank(u))
}

// Row is one connection at a glance, as the API's answers have it.
type Row struct {
	Name string
	// State is a word or two, and Tone how to look at it. Why says more; it may be empty.
	State, Why string
	Tone       Tone
	Rate       client.Rate
	// Status is what is collected and owed; nil where nothing is.
	Status *collect.ConnectionStatus
	// Quota is the state of the provider's budget; empty without one. Refused are the models
	// whose calls it refuses.
	Quota   string
	Refused []string
	// Spark is the rate over the last hour, drawn.
	Spark spark
}

// Known is the latest rate; nil is unknown.
func (r Row) Known() *event.Rate { return r.Rate.Rate }

// Share is the rate's part of its ceiling in percent; -1 where either is unknown.
func (r Row) Share() int {
	k := r.Known()
	if k == nil || k.CeilingRatePerMin <= 0 || k.EffectiveRatePerMin <= 0 {
		return -1
	}
	return int(min(100, max(1, 100*k.EffectiveRatePerMin/k.CeilingRatePerMin)))
}

// Owed counts the items whose details are owed; -1 where nothing is collected.
func (r Row) Owed() (n int64) {
	if r.Status == nil {
		return -1
	}
	for _, of := range r.Status.Owed {
		n += of
	}
	return n
}

// Resumes is when a cooldown or an open circuit ends; zero when there is none.
func (r Row) Resumes() (at time.Time) {
	if r.Rate.Live != nil {
		at = r.Rate.Live.RetryAt
	}
	if s := r.Status; s != nil && s.Cooldown.Until.After(at) {
		at = s.Cooldown.Until
	}
	return at
}

// PoolRates returns the rates of the pools as a text, where that of the connection is
// unknown; "" if they are unknown as well.
func (r Row) PoolRates() string {
	if r.Known() != nil || r.Rate.Live == nil {
		return ""
	}
	var all []float64
	for _, p := range r.Rate.Live.Pools {
		if p.Rate != nil && p.Rate.EffectiveRatePerMin > 0 {
			all = append(all, p.Rate.EffectiveRatePerMin)
		}
	}
	if len(all) == 0 {
		return ""
	}
	low, high := figure.Rate(slices.Min(all)), figure.Rate(slices.Max(all))
	if low != high {
		low += " to " + high
	}
	if len(all) == 1 {
		return "1 pool at " + low
	}
	return strconv.Itoa(len(all)) + " pools at " + low
}

// recent is how long after a back-off a connection is shown as slowed down.
const recent = 2 * time.Minute

// judge sets state, reason and tone: the worst that is known comes first.
func (r *Row) judge(now time.Time) {
	set := func(state string, tone Tone) { r.State, r.Tone = state, tone }
	why := func(w reason.Reason) {
		if w != reason.None {
			r.Why = story.Reason(w)
		}
	}
	live, s := r.Rate.Live, r.Status
	circuit := ""
	if live != nil {
		circuit = live.Circuit
	}
	switch {
	case r.Quota == quota.Exhausted.String():
		set("exhausted", Bad)
	case circuit == "open" || circuit == "half_open" || len(r.Rate.Circuits) > 0:
		set("circuit "+strings.ReplaceAll(cmp.Or(strings.TrimPrefix(circuit, "closed"), "open in part"), "_", " "), Bad)
	case s != nil && s.Cooldown.NeedsAttention:
		set("needs attention", Bad)
		switch {
		case s.Quarantined > 0:
			r.Why = figure.Count(s.Quarantined) + " quarantined"
		case s.LastRun != nil:
			why(s.LastRun.Reason)
		}
	case r.Resumes().After(now):
		set("cooling down", Warn)
		if k := r.Known(); k != nil && k.LastBackoff != nil {
			why(k.LastBackoff.Reason)
		} else if s != nil && s.LastRun != nil {
			why(s.LastRun.Reason)
		}
	case r.Quota == refusals:
		set(refusals, Warn)
		if len(r.Refused) == 1 {
			r.Why = "of " + r.Refused[0]
		} else if len(r.Refused) > 1 {
			r.Why = "of " + strconv.Itoa(len(r.Refused)) + " models"
		}
	case live != nil && live.Fleet != nil && live.Fleet.Away:
		set("fleet away", Warn)
	case r.Known() != nil && r.Known().LastBackoff != nil && now.Sub(r.Known().LastBackoff.At) < recent && live != nil:
		set("slowed down", Warn)
	case r.Rate.Running && r.Known() == nil:
		set("in use, rate unknown", Plain)
	case r.Rate.Running:
		set("in use", Good)
	case s == nil || s.LastRun == nil:
		set("unknown", Plain)
	default:
		set(string(s.LastRun.State), tones[s.LastRun.State])
		if r.Tone != Good {
			why(s.LastRun.Reason)
		}
	}
	r.Tone = cmp.Or(r.Tone, Plain)
}

// tones are those of a run's state; all others are plain.
var tones = map[collect.RunState]Tone{
	collect.RunDrained: Good, collect.RunDeferred: Warn, collect.RunIncomplete: Bad, collect.RunFailed: Bad, collect.RunAbandoned: Bad,
}

// Rows are all connections by name, or the one that is named. They are read from the
// API's /v1/rate, /v1/connections and /v1/quota/snapshot.
func Rows(ctx context.Context, api *client.Client, name string) ([]Row, error) {
	rates, err := api.Rate(ctx, name)
	if err != nil {
		return nil, err
	}
	status, err := api.Connections(ctx, name)
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Status == http.StatusNotFound {
		err = nil // it is proxied, and nothing of it is collected
	}
	if err != nil {
		return nil, err
	}
	budgets, err := quotaStates(ctx, api)
	if err != nil {
		return nil, err
	}
	now, rows := time.Now(), make([]Row, len(rates))
	for i, rate := range rates {
		budget := budgets[rate.Connection]
		row := Row{Name: rate.Connection, Rate: rate, Quota: budget.state, Refused: budget.refused}
		if at, ok := slices.BinarySearchFunc(status, row.Name, func(s collect.ConnectionStatus, name string) int { return strings.Compare(s.Name, name) }); ok {
			row.Status = &status[at]
		}
		row.judge(now)
		rows[i] = row
	}
	return rows, nil
}

// quotaState is the state of a budget as a whole, with the models whose calls it refuses.
type quotaState struct {
	state   string
	refused []string
}

// quotaStates are the states of all budgets, by their names.
func quotaStates(ctx context.Context, api *client.Client) (map[string]quotaState, error) {
	index, err := api.Index(ctx)
	if err != nil {
		return nil, err
	}
	states, now := map[string]quotaState{}, time.Now()
	for _, name := range index.Quotas {
		s, err := api.Snapshot(ctx, name)
		if err != nil {
			return nil, err
		}
		is := quotaState{state: s.Global.State.String()}
		if s.Global.State == quota.Normal && !refusing(&s, "", now).IsZero() {
			is.state = refusals
			for model := range s.Models {
				if !refusing(&s, model, now).IsZero() {
					is.refused = append(is.refused, model)
				}
			}
			slices.Sort(is.refused)
		}
		states[name] = is
	}
	return states, nil
}

// board is what the session's pages last read of all connections, so that several pages
// and live streams read it once.
type board struct {
	mu   sync.Mutex
	at   time.Time
	rows []Row

	drawn  time.Time // when sparks were read
	sparks map[string]spark
}

// fresh is how old the board may be, and sparkTime how old its drawings.
const (
	fresh     = 900 * time.Millisecond
	sparkTime = 20 * time.Second
)

// rows are those of the board, those first that somebody should look at. They are shared:
// nobody changes them.
func (v *visit) rows() ([]Row, error) {
	b := &v.s.board
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.at) < fresh {
		return b.rows, nil
	}
	rows, err := Rows(v.r.Context(), v.api, "")
	if err != nil {
		return nil, err
	}
	if time.Since(b.drawn) >= sparkTime {
		all, err := v.api.Sparks(v.r.Context())
		if err != nil {
			return nil, err
		}
		b.sparks, b.drawn = map[string]spark{}, time.Now()
		for _, s := range all {
			b.sparks[s.Connection] = sparkOf(&s)
		}
	}
	for i := range rows {
		rows[i].Spark = b.sparks[rows[i].Name]
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return a.Tone.Compare(b.Tone) })
	b.rows, b.at = rows, time.Now()
	return rows, nil
}

// glance is the overview.
type glance struct {
	Rows   []Row
	All    int
	States []tally
	Query  string
	State  string
}

// tally is how many connections are in a state.
type tally struct {
	State string
	Tone  Tone
	Count int
}

// glance selects rows as the address asks, and counts all of them.
func (v *visit) glance() (g glance, err error) {
	rows, err := v.rows()
	g = glance{All: len(rows), Query: v.text("q"), State: v.text("state")}
	query := strings.ToLower(g.Query)
	for _, r := range rows {
		at := slices.IndexFunc(g.States, func(t tally) bool { return t.State == r.State })
		if at < 0 {
			at = len(g.States)
			g.States = append(g.States, tally{State: r.State, Tone: r.Tone})
		}
		g.States[at].Count++
		if (g.State == "" || g.State == r.State) && strings.Contains(strings.ToLower(r.Name), query) {
			g.Rows = append(g.Rows, r)
		}
	}
	slices.SortFunc(g.States, func(a, b tally) int {
		return cmp.Or(a.Tone.Compare(b.Tone), strings.Compare(a.State, b.State))
	})
	return g, err
}

func (c *Console) overview(v *visit) error {
	g, err := v.glance()
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "overview", "Connections", g)
	return nil
}

// detail is one connection.
type detail struct {
	Row
	Runs   []collect.Run
	Events []event.Event
	Bounds reason.Bounds
	Chart  chart
}

const (
	shownRuns   = 10
	shownEvents = 40
	// maxName is the longest name that the API is asked by; longer ones are looked for.
	maxName = 256
)

// detail is the connection that the address names.
func (v *visit) detail() (d detail, err error) {
	name := v.r.URL.Query().Get("name")
	asked := name
	if len(name) > maxName {
		asked = ""
	}
	rows, err := Rows(v.r.Context(), v.api, asked)
	if err != nil {
		return d, err
	}
	at := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })
	if at < 0 {
		return d, &client.Problem{Status: http.StatusNotFound, Title: "No such connection"}
	}
	d.Row, d.Bounds = rows[at], rows[at].Rate.BoundBy
	if d.Status == nil || d.Status.LastRun == nil {
		return d, nil
	}
	if d.Bounds.Total() == 0 {
		d.Bounds = d.Status.LastRun.BoundBy
	}
	limit := shownRuns
	if asked == "" {
		limit = 0
	}
	if d.Runs, err = v.api.Runs(v.r.Context(), asked, limit); err != nil {
		return d, err
	}
	d.Runs = slices.DeleteFunc(d.Runs, func(r collect.Run) bool { return r.Connection != name })
	d.Runs = d.Runs[:min(shownRuns, len(d.Runs))]
	trace, err := v.api.Run(v.r.Context(), d.Status.LastRun.ID)
	d.Events = trace.Events[max(0, len(trace.Events)-shownEvents):]
	slices.Reverse(d.Events)
	return d, err
}

func (c *Console) connection(v *visit) error {
	d, err := v.detail()
	if err != nil {
		return err
	}
	if d.Chart, err = v.chart(d.Name); err != nil {
		return err
	}
	v.show(http.StatusOK, "connection", d.Name, d)
	return nil
}
