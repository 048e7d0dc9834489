package api

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/samples"
	"github.com/headway-go/headway/reason"
)

// traced bounds the number of runs read for samples.
const traced = 100

// samples answers with the samples of a connection for the last hour or day.
func (a *API) samples(w http.ResponseWriter, r *http.Request, _ Caller) error {
	ask := ask(r, "connection", "span")
	name := ask.text("connection")
	span, ok := samples.Of(ask.text("span"))
	if !ok {
		ask.fail(badField("span", strconv.Quote(clip(ask.text("span"))), "hour or day"))
	}
	if name == "" {
		ask.fail(badField("connection", "missing", "the name of a connection"))
	}
	if ask.err != nil {
		return ask.err
	}
	now := time.Now()
	if a.o.Samples != nil {
		if s, ok := a.o.Samples(name, span, now); ok && s.Known() {
			return a.send(w, s)
		}
	}
	stored, err := a.stored(r.Context(), name)
	if err != nil {
		return err
	}
	if _, live := a.live(name)[name]; len(stored) == 0 && !live {
		return noConnection(name)
	}
	all, err := a.stretches(r.Context(), name, now)
	if err != nil {
		return err
	}
	return a.send(w, samples.Drawn(name, span, now, all))
}

// stretches returns the rates reported by the latest runs of a connection. Each is valid until
// the next one or the end of the run.
func (a *API) stretches(ctx context.Context, name string, now time.Time) (all []samples.Stretch, err error) {
	if a.o.Reader == nil {
		return nil, nil
	}
	runs, err := a.o.Reader.Runs(ctx, name, traced)
	if err != nil {
		return nil, err
	}
	for _, run := range slices.Backward(runs) {
		end := run.Ended
		if end.IsZero() {
			end = now
			if run.State != collect.RunRunning {
				end = run.Started // the end is unknown
			}
		}
		if now.Sub(end) > 24*time.Hour {
			continue
		}
		events, err := a.o.Reader.Events(ctx, run.ID)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			if e.Rate == nil {
				continue
			}
			if n := len(all); n > 0 && all[n-1].To.After(e.At) {
				all[n-1].To = e.At
			}
			all = append(all, samples.Stretch{From: e.At, To: end, Rate: e.Rate.EffectiveRatePerMin, Ceiling: e.Rate.CeilingRatePerMin})
		}
	}
	return all, nil
}

// sparks answers with the rates of connections over the last hour, in few steps.
func (a *API) sparks(w http.ResponseWriter, r *http.Request, _ Caller) error {
	ask := ask(r, "after", "limit")
	p := paging{after: ask.text("after"), limit: int(ask.number("limit", usualPage, 1, MaxPage))}
	if ask.err != nil {
		return ask.err
	}
	var all []samples.Spark
	if a.o.Sparks != nil {
		all = a.o.Sparks(time.Now())
	}
	return a.send(w, pageOf(w, r, p, all, func(s samples.Spark) string { return s.Connection }))
}

// words are the parameters that select calls by name.
var words = []string{"provider", "key", "tenant", "agent", "model"}

// named reads those parameters of words that are present.
func (q *query) named() map[string]string {
	is := map[string]string{}
	for _, name := range words {
		if _, ok := q.values[name]; ok {
			is[name] = q.text(name)
		}
	}
	return is
}

// calls answers with the latest calls that have ended, newest first.
func (a *API) calls(w http.ResponseWriter, r *http.Request, _ Caller) error {
	ask := ask(r, append([]string{"limit"}, words...)...)
	is, limit := ask.named(), int(ask.number("limit", usualPage, 1, MaxPage))
	if ask.err != nil {
		return ask.err
	}
	if a.o.Calls == nil {
		return a.send(w, []calls.Call{})
	}
	return a.send(w, a.o.Calls.Latest(limit, func(c *calls.Call) bool {
		has := map[string]string{"provider": c.Provider, "key": c.Key, "tenant": c.Tenant, "agent": c.Agent, "model": c.Model}
		for name, want := range is {
			if has[name] != want {
				return false
			}
		}
		return true
	}))
}

// used answers with totals of calls, grouped as requested.
func (a *API) used(w http.ResponseWriter, r *http.Request, _ Caller) error {
	ask := ask(r, append([]string{"by", "from", "to", "after", "limit"}, words...)...)
	limit := int(ask.number("limit", usualPage, 1, MaxPage))
	want := calls.Ask{From: ask.text("from"), To: ask.text("to"), Is: ask.named(), After: int(ask.number("after", 0, 0, 1<<31)), Limit: limit + 1}
	if by := ask.text("by"); by != "" {
		want.By = strings.Split(by, ",")
	}
	if ask.err != nil {
		return ask.err
	}
	if err := want.Check(); err != nil {
		return &Problem{Status: http.StatusBadRequest, Title: "Invalid", Detail: err.Error()}
	}
	if a.o.Usage == nil {
		return a.send(w, []calls.Usage{})
	}
	list, err := a.o.Usage.Sum(r.Context(), want)
	if err != nil {
		return err
	}
	if len(list) > limit {
		list = list[:limit]
		next(w, r, "after", strconv.Itoa(want.After+limit))
	}
	return a.send(w, orEmpty(list))
}

// GapChange asks to change gaps: those with the ids, those that a filter selects, or all.
type GapChange struct {
	Action     collect.GapAction `json:"action"`
	IDs        []int64           `json:"ids"`
	Connection string            `json:"connection"`
	Stream     string            `json:"stream"`
	Reason     string            `json:"reason"`
	All        bool              `json:"all"`
}

// GapsChanged is the answer to a [GapChange]: how many gaps it applied to.
type GapsChanged struct {
	Action collect.GapAction `json:"action"`
	Gaps   int64             `json:"gaps"`
}

// act changes gaps.
func (a *API) act(w http.ResponseWriter, r *http.Request, c Caller) error {
	body, err := read(w, r, typeJSON)
	if err != nil {
		return err
	}
	var ask GapChange
	if err := decode(body, &ask, "action", "ids", "connection", "stream", "reason", "all"); err != nil {
		return err
	}
	f, err := ask.filter()
	if err != nil {
		return err
	}
	if a.o.Act == nil || a.o.Audit == nil || a.o.Reader == nil {
		return &Problem{Status: http.StatusNotFound, Title: "No gaps here", Detail: "nothing is collected here"}
	}
	if f.Connection != "" {
		if stored, err := a.stored(r.Context(), f.Connection); err != nil {
			return err
		} else if len(stored) == 0 {
			return noConnection(f.Connection)
		}
	}
	for _, id := range ask.IDs {
		if _, err := a.gapOf(r.Context(), id); err != nil {
			return err
		}
	}
	n, err := a.o.Audit.ActOnGaps(r.Context(), c.ID, a.o.Reader, a.o.Act, ask.Action, f, ask.IDs)
	if err != nil {
		return err
	}
	_ = a.respond(w, GapsChanged{ask.Action, n}) // changed even if the client does not get the answer
	return nil
}

// filter checks what is asked for.
func (g *GapChange) filter() (f collect.GapFilter, err error) {
	f = collect.GapFilter{Connection: g.Connection, Stream: g.Stream}
	switch g.Action {
	case collect.GapRetry, collect.GapQuarantine, collect.GapRelease, collect.GapDrop:
	default:
		return f, badField("action", strconv.Quote(clip(string(g.Action))), "retry, quarantine, release or drop")
	}
	if len(g.IDs) > MaxPage {
		return f, badField("ids", strconv.Itoa(len(g.IDs))+" ids", "at most "+strconv.Itoa(MaxPage))
	}
	if g.Reason != "" {
		why, ok := reason.Parse(g.Reason)
		if !ok {
			return f, badField("reason", strconv.Quote(clip(g.Reason)), "a reason of a gap, such as rate_limited")
		}
		f.Reason = why
	}
	given := 0
	for _, is := range []bool{len(g.IDs) > 0, g.Connection != "" || g.Stream != "" || g.Reason != "", g.All} {
		if is {
			given++
		}
	}
	if given != 1 {
		return f, invalid("say which gaps: ids, a filter (connection, stream, reason), or all")
	}
	return f, nil
}

// audited answers with the changes that people made, newest first.
func (a *API) audited(w http.ResponseWriter, r *http.Request, _ Caller) error {
	ask := ask(r, "since", "after", "limit")
	after, limit := int(ask.number("after", 0, 0, 1<<31)), int(ask.number("limit", usualPage, 1, MaxPage))
	var since time.Time
	if text := ask.text("since"); text != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			ask.fail(badField("since", strconv.Quote(clip(text)), "an instant such as 2026-11-23T08:00:00Z"))
		}
	}
	if ask.err != nil {
		return ask.err
	}
	if a.o.Audit == nil {
		return a.send(w, []audit.Entry{})
	}
	list, unread, err := a.o.Audit.Read(since, after, limit+1)
	if err != nil {
		return err
	}
	if unread > 0 {
		a.log.LogAttrs(r.Context(), slog.LevelWarn, "lines of the audit log cannot be read", slog.Int("lines", unread))
	}
	if len(list) > limit {
		list = list[:limit]
		next(w, r, "after", strconv.Itoa(after+limit))
	}
	return a.send(w, orEmpty(list))
}

// audit makes a change of a caller and writes it down, where there is a log for that.
func (a *API) audit(ctx context.Context, c Caller, e audit.Entry, change func(context.Context) (map[string]any, error)) error {
	if a.o.Audit == nil {
		_, err := change(ctx)
		return err
	}
	e.Who = c.ID
	return a.o.Audit.Do(ctx, e, change)
}

// Simulator tries laws against models of providers.
type Simulator interface {
	// Menu says what there is to choose from.
	Menu() (SimulatorMenu, error)
	// Draft returns the text of a scenario: an embedded one, or a member of a population.
	Draft(SimulatorPick) (string, error)
	// Simulate runs a scenario under laws until ctx ends. An error of the scenario or of a
	// law is a [*Problem].
	Simulate(ctx context.Context, ask Simulation) (Simulated, error)
}

// SimulatorMenu is what can be simulated.
type SimulatorMenu struct {
	Scenarios []SimulatorScenario `json:"scenarios"`
	Families  []string            `json:"families"`
	Laws      []string            `json:"laws"`
	// Draft is the text of the scenario that was picked; empty where none was.
	Draft string `json:"draft"`
}

// SimulatorScenario is one that comes with headway.
type SimulatorScenario struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Limits      []string `json:"limits"`
}

// SimulatorPick picks a scenario by name, or a member of a population by family (empty is all),
// seed and number.
type SimulatorPick struct {
	Scenario, Family string
	Seed             uint64
	Member           int
}

// Simulation asks to run a scenario under laws.
type Simulation struct {
	// Source is the text of the scenario, a YAML file.
	Source string `json:"source"`
	// Laws are 1 to 4 names of control laws.
	Laws []string `json:"laws"`
	Seed int64    `json:"seed"`
}

// Simulated is the result of a [Simulation].
type Simulated struct {
	Results []SimulatedLaw `json:"results"`
}

// SimulatedLaw is the run of one law.
type SimulatedLaw struct {
	Law string `json:"law"`
	// SVG is the picture of the run.
	SVG string `json:"svg"`
	// Figures are what is known of the run, for people.
	Figures []SimulatedFigure `json:"figures"`
}

// SimulatedFigure is one figure, in words: "unknown" where it is not known.
type SimulatedFigure struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Note  string `json:"note"`
}

// simulateTime bounds one simulation, and maxLaws how many laws it runs.
const (
	simulateTime = 10 * time.Second
	maxLaws      = 4
)

var errNoSimulator = &Problem{Status: http.StatusNotFound, Title: "No simulator here", Detail: "this program has none; headway serve and headway console have"}

// menu answers with what can be simulated, and the text of a scenario.
func (a *API) menu(w http.ResponseWriter, r *http.Request, _ Caller) error {
	ask := ask(r, "scenario", "family", "seed", "member")
	pick := SimulatorPick{Scenario: ask.text("scenario"), Family: ask.text("family"), Member: int(ask.number("member", -1, 0, 1<<31-1))}
	pick.Seed = uint64(ask.number("seed", 1, 0, 1<<62))
	if ask.err != nil {
		return ask.err
	}
	if a.o.Simulator == nil {
		return errNoSimulator
	}
	menu, err := a.o.Simulator.Menu()
	if err == nil && (pick.Scenario != "" || pick.Member >= 0) {
		menu.Draft, err = a.o.Simulator.Draft(pick)
	}
	if err != nil {
		return err
	}
	return a.send(w, menu)
}

// simulate runs one scenario: one at a time, in a bounded time, and not when nobody waits for
// it any more.
func (a *API) simulate(w http.ResponseWriter, r *http.Request, _ Caller) error {
	body, err := read(w, r, typeJSON)
	if err != nil {
		return err
	}
	var ask Simulation
	if err := decode(body, &ask, "source", "laws", "seed"); err != nil {
		return err
	}
	switch {
	case len(ask.Laws) < 1 || len(ask.Laws) > maxLaws:
		return badField("laws", strconv.Itoa(len(ask.Laws))+" names", "1 to "+strconv.Itoa(maxLaws))
	case ask.Seed < 0:
		return badField("seed", strconv.FormatInt(ask.Seed, 10), "0 or more")
	case a.o.Simulator == nil:
		return errNoSimulator
	case !a.simulating.TryLock():
		return &Problem{Status: http.StatusServiceUnavailable, Title: "Another simulation is running", Detail: "one runs at a time, for 10 s at most; try again", RetryInMS: simulateTime.Milliseconds()}
	}
	defer a.simulating.Unlock()
	ctx, done := context.WithTimeout(r.Context(), simulateTime)
	defer done()
	result, err := a.o.Simulator.Simulate(ctx, ask)
	if ctx.Err() != nil && r.Context().Err() == nil {
		return &Problem{Status: http.StatusUnprocessableEntity, Title: "Too large", Detail: "it took more than 10 s: shorten the horizon or lower the limits, or use headway sim run, which has no bound"}
	}
	if err != nil {
		return err
	}
	return a.send(w, result)
}

// picked returns the part of a value that a patch is about, so that the log has no more.
func picked(from any, patch map[string]any) map[string]any {
	tree, _ := from.(map[string]any)
	part := map[string]any{}
	for name, change := range patch {
		part[name] = tree[name]
		if below, ok := change.(map[string]any); ok {
			part[name] = picked(tree[name], below)
		}
	}
	return part
}
