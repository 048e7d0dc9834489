package api

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/reason"
)

// Source is the source of a rate.
type Source string

// The sources of rates.
const (
	// Proxy: live, of a proxied provider.
	Proxy Source = "proxy"
	// Forward: live, of a host that the forward proxy governs.
	Forward Source = "forward"
	// Collect: live, of a collection in this process.
	Collect Source = "collect"
	// Stored: from the end of the last run, or from the last committed page of a run in
	// another process.
	Stored Source = "stored"
)

// Live is the live rate of one connection in this process.
type Live struct {
	// Source is [Proxy], [Forward] or [Collect].
	Source Source
	headway.Snapshot
	// Circuits are the breakers of a proxied provider that are not closed.
	Circuits []egress.CircuitStatus
	// BoundBy is the total time of the provider's calls, divided by cause.
	BoundBy reason.Bounds
	// SetAside is when one of several keys of a provider was refused for good, and
	// SetAsideStatus how; zero while it is used.
	SetAside       time.Time
	SetAsideStatus int
	// Throttled counts the attempts refused for rate or load since the proxy was made, or in
	// the run named by Run.
	Throttled int64
	Run       string
}

// Rate is the rate of one connection, as in "headway limits --json", and the state of a live
// connection.
type Rate struct {
	Connection string `json:"connection"`
	Source     Source `json:"source"`
	// Running is set while a run or a proxy uses the connection.
	Running bool `json:"running"`
	// Pacing is the stored rate; null is unknown.
	Pacing *collect.Pacing `json:"pacing"`
	// Rate is the latest state of pacing; null is unknown.
	Rate *event.Rate `json:"rate"`
	// Limits are the known limits: the owner's, those advertised by the provider and those
	// learned; null without any.
	Limits []event.Limit `json:"limits"`
	// Live is the state of a live connection; null for a stored one.
	Live *headway.Snapshot `json:"live"`
	// Circuits are the breakers of a proxied provider that are not closed, by model and
	// path. Both are absent for the breaker of the whole provider.
	Circuits []egress.CircuitStatus `json:"circuits,omitempty"`
	// SetAside is when one of several keys of a proxied provider was refused for good, and
	// SetAsideStatus how; missing while it is used.
	SetAside       time.Time `json:"set_aside,omitzero"`
	SetAsideStatus int       `json:"set_aside_status,omitempty"`
	// BoundBy is the total time of a proxied provider's calls that ended, divided by cause.
	BoundBy reason.Bounds `json:"bound_by,omitzero"`
}

// Trace is one run and its events, as in "headway runs show --json".
type Trace struct {
	Run    collect.Run   `json:"run"`
	Events []event.Event `json:"events"`
}

// Default lengths of lists.
const (
	usualRuns = 20
	usualPage = 100
	// deepRuns bounds how many runs can be paged through.
	deepRuns = 10_000
)

// stored returns the connections that have stored state: the named one or all.
func (a *API) stored(ctx context.Context, name string) ([]collect.ConnectionStatus, error) {
	if a.o.Reader == nil {
		return nil, nil
	}
	if name == "" {
		return a.o.Reader.Connections(ctx)
	}
	c, ok, err := collect.StatusOf(ctx, a.o.Reader, name)
	if !ok {
		return nil, err
	}
	return []collect.ConnectionStatus{c}, nil
}

// noConnection returns the problem for an unknown connection.
func noConnection(name string) error {
	return &Problem{
		Status: http.StatusNotFound, Title: "No such connection", Field: "connection",
		Detail: fmt.Sprintf("there is no connection %q", clip(name)),
	}
}

func (a *API) connections(w http.ResponseWriter, r *http.Request, _ Caller) error {
	p, all, err := a.asked(r)
	if err != nil {
		return err
	}
	if p.name != "" && len(all) == 0 {
		return noConnection(p.name)
	}
	return a.send(w, pageOf(w, r, p, all, func(c collect.ConnectionStatus) string { return c.Name }))
}

func (a *API) schedule(w http.ResponseWriter, r *http.Request, _ Caller) error {
	if ask := ask(r); ask.err != nil {
		return ask.err
	}
	all := []schedule.Status{}
	if a.o.Schedule != nil {
		all = append(all, a.o.Schedule()...)
	}
	return a.send(w, all)
}

func (a *API) fleet(w http.ResponseWriter, r *http.Request, _ Caller) error {
	if ask := ask(r); ask.err != nil {
		return ask.err
	}
	all := []fleet.Credential{}
	if a.o.Fleet != nil {
		all = append(all, a.o.Fleet()...)
	}
	return a.send(w, all)
}

// paging selects connections: one by name, or a number of them after a name.
type paging struct {
	name, after string
	limit       int
}

// asked reads the selection of a request, and returns those connections that have state.
func (a *API) asked(r *http.Request) (p paging, all []collect.ConnectionStatus, err error) {
	ask := ask(r, "connection", "after", "limit")
	p = paging{ask.text("connection"), ask.text("after"), int(ask.number("limit", usualPage, 1, MaxPage))}
	if ask.err != nil {
		return p, nil, ask.err
	}
	all, err = a.stored(r.Context(), p.name)
	return p, all, err
}

// pageOf returns a page of a list sorted by name, and links to the next one.
func pageOf[T any](w http.ResponseWriter, r *http.Request, p paging, all []T, name func(T) string) []T {
	page := make([]T, 0, min(p.limit, len(all)))
	for _, one := range all {
		if p.after != "" && name(one) <= p.after {
			continue
		}
		if len(page) == p.limit {
			next(w, r, "after", name(page[p.limit-1]))
			break
		}
		page = append(page, one)
	}
	return page
}

// next adds a link to the next page (RFC 8288).
func next(w http.ResponseWriter, r *http.Request, name, value string) {
	q := r.URL.Query()
	q.Set(name, value)
	link := url.URL{Path: r.URL.Path, RawQuery: q.Encode()}
	w.Header().Set("Link", "<"+link.String()+`>; rel="next"`)
}

func (a *API) rate(w http.ResponseWriter, r *http.Request, _ Caller) error {
	p, all, err := a.asked(r)
	if err != nil {
		return err
	}
	rates := merged(all, a.live(p.name))
	if p.name != "" && len(rates) == 0 {
		return noConnection(p.name)
	}
	page := pageOf(w, r, p, rates, func(m known) string { return m.Connection })
	list := make([]Rate, len(page))
	for i, m := range page {
		if list[i], err = a.latest(r.Context(), m); err != nil {
			return err
		}
	}
	return a.send(w, list)
}

// latest adds the last rate reported by a run, where there is no live one.
func (a *API) latest(ctx context.Context, m known) (Rate, error) {
	if m.Live != nil || m.run == "" {
		return m.Rate, nil
	}
	last, ok := a.ended.of(m.run)
	if !ok || !m.over {
		events, err := a.o.Reader.Events(ctx, m.run)
		if err != nil {
			return m.Rate, err
		}
		if last = LastRate(events); m.over {
			a.ended.keep(m.run, last)
		}
	}
	m.Rate.Rate, m.Limits = last.Rate, last.Limits
	if !m.Running {
		m.Limits = Idle(last, time.Now())
	}
	return m.Rate, nil
}

// LastRate returns the last event of a run that has a rate, reduced to what rates are made of.
func LastRate(events []event.Event) (last event.Event) {
	for _, e := range events {
		if e.Rate != nil {
			last = event.Event{At: e.At, Note: e.Note, Rate: e.Rate, Limits: e.Limits}
		}
	}
	return last
}

// Idle returns the limits of a run's last rate as they are now, if nothing was sent since the
// run ended. Of a window it is at most so much that is in use. How much it is, is unknown if
// the event does not come from the run's end.
func Idle(last event.Event, now time.Time) []event.Limit {
	all := slices.Clone(last.Limits)
	passed := now.Sub(last.At)
	for i := range all {
		l := &all[i]
		used, roomAt := l.Used, l.RoomAt
		l.Used, l.RoomAt = nil, time.Time{}
		if last.Note != "end" || passed < 0 {
			continue
		}
		if roomAt.After(now) {
			l.RoomAt = roomAt
		}
		switch {
		case used == nil:
		case l.Kind == "concurrency", l.WindowS > 0 && passed >= l.Window():
			l.Used = new(0.0)
		case l.Kind == "token_bucket" && l.WindowS > 0:
			l.Used = new(max(0, math.Ceil(*used-l.Size*passed.Seconds()/l.WindowS)))
		case l.WindowS > 0 && (roomAt.IsZero() || roomAt.After(now)):
			l.Used = used // some of it has come back already, if the window slides
		}
	}
	return all
}

// maxEnded bounds the number of runs whose last rate is kept.
const maxEnded = 10_000

// traces caches the last rate of runs that have ended, since their traces no longer change.
// Without it, a page of hundreds of connections would read as many traces each time.
type traces struct {
	mu    sync.Mutex
	rates map[string]event.Event
}

func (t *traces) of(run string) (event.Event, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.rates[run]
	return e, ok
}

func (t *traces) keep(run string, last event.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rates == nil || len(t.rates) >= maxEnded {
		t.rates = map[string]event.Event{}
	}
	t.rates[run] = last
}

// live returns the live rates: the named one or all.
func (a *API) live(name string) map[string]Live {
	live := map[string]Live{}
	if a.o.Rates == nil {
		return live
	}
	for _, l := range a.o.Rates() {
		if name == "" || l.Connection == name {
			live[l.Connection] = l
		}
	}
	return live
}

func (a *API) runs(w http.ResponseWriter, r *http.Request, _ Caller) error {
	ask := ask(r, "connection", "before", "limit")
	name, before := ask.text("connection"), ask.text("before")
	limit := int(ask.number("limit", usualRuns, 1, MaxPage))
	if ask.err != nil {
		return ask.err
	}
	if a.o.Reader == nil {
		return a.send(w, []collect.Run{})
	}
	most := limit + 1
	if before != "" {
		most = deepRuns
	}
	runs, err := a.o.Reader.Runs(r.Context(), name, most)
	if err != nil {
		return err
	}
	if before != "" {
		i := index(runs, before)
		if i < 0 {
			return badField("before", "no run of this list", fmt.Sprintf("the id of one of the newest %d runs", deepRuns))
		}
		runs = runs[i+1:]
	}
	if len(runs) > limit {
		runs = runs[:limit]
		next(w, r, "before", runs[limit-1].ID)
	}
	return a.send(w, orEmpty(runs))
}

func index(runs []collect.Run, id string) int {
	return slices.IndexFunc(runs, func(run collect.Run) bool { return run.ID == id })
}

func (a *API) run(w http.ResponseWriter, r *http.Request, _ Caller) error {
	if err := ask(r).err; err != nil {
		return err
	}
	if a.o.Reader != nil {
		runs, err := a.o.Reader.Runs(r.Context(), "", deepRuns)
		if err != nil {
			return err
		}
		if i := index(runs, r.PathValue("id")); i >= 0 {
			events, err := a.o.Reader.Events(r.Context(), runs[i].ID)
			if err != nil {
				return err
			}
			return a.send(w, Trace{Run: runs[i], Events: orEmpty(events)})
		}
	}
	return &Problem{Status: http.StatusNotFound, Title: "No such run", Detail: fmt.Sprintf("there is no run %q among the newest %d", clip(r.PathValue("id")), deepRuns)}
}

func (a *API) gaps(w http.ResponseWriter, r *http.Request, _ Caller) error {
	ask := ask(r, "connection", "stream", "status", "reason", "after", "limit")
	f := collect.GapFilter{
		Connection: ask.text("connection"), Stream: ask.text("stream"), Status: collect.GapPending,
		AfterID: ask.number("after", 0, 0, 1<<62), Limit: int(ask.number("limit", usualPage, 1, MaxPage)),
	}
	switch s := collect.GapStatus(ask.text("status")); s {
	case "":
	case collect.GapPending, collect.GapLeased, collect.GapRecovered, collect.GapTerminal:
		f.Status = s
	case "all":
		f.Status = ""
	default:
		ask.fail(badField("status", strconv.Quote(clip(string(s))), "pending, leased, recovered, terminal or all"))
	}
	if why := ask.text("reason"); why != "" {
		found, ok := reason.Parse(why)
		if !ok {
			ask.fail(badField("reason", strconv.Quote(clip(why)), "a reason of a gap, such as rate_limited"))
		}
		f.Reason = found
	}
	if ask.err != nil {
		return ask.err
	}
	if a.o.Reader == nil {
		return a.send(w, []collect.Gap{})
	}
	limit := f.Limit
	f.Limit++
	gaps, err := a.o.Reader.Gaps(r.Context(), f)
	if err != nil {
		return err
	}
	if len(gaps) > limit {
		gaps = gaps[:limit]
		next(w, r, "after", strconv.FormatInt(gaps[limit-1].ID, 10))
	}
	return a.send(w, orEmpty(gaps))
}

func (a *API) gap(w http.ResponseWriter, r *http.Request, _ Caller) error {
	if err := ask(r).err; err != nil {
		return err
	}
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return badField("id", strconv.Quote(clip(r.PathValue("id"))), "a number above 0")
	}
	found, err := a.gapOf(r.Context(), id)
	if err != nil {
		return err
	}
	return a.send(w, found)
}

// gapOf returns the gap with an id.
func (a *API) gapOf(ctx context.Context, id int64) (collect.Gap, error) {
	if a.o.Reader != nil {
		found, err := a.o.Reader.Gaps(ctx, collect.GapFilter{AfterID: id - 1, Limit: 1})
		if err != nil {
			return collect.Gap{}, err
		}
		if len(found) == 1 && found[0].ID == id {
			return found[0], nil
		}
	}
	return collect.Gap{}, &Problem{Status: http.StatusNotFound, Title: "No such gap", Detail: fmt.Sprintf("there is no gap %d", id)}
}

// orEmpty replaces a nil slice with an empty one, so that it is not null in JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// known is a rate, and the run whose trace may have a later one.
type known struct {
	Rate
	run  string
	over bool // the run has ended, so its trace is final
}

// merged merges stored and live rates, sorted by name. A live rate replaces a stored one.
func merged(stored []collect.ConnectionStatus, live map[string]Live) []known {
	all := make([]known, 0, len(stored)+len(live))
	for _, c := range stored {
		m := known{Rate: Rate{Connection: c.Name, Source: Stored, Running: c.Holder != "", Pacing: c.Pacing}}
		if c.LastRun != nil {
			m.run = c.LastRun.ID
			m.over = !c.LastRun.Ended.IsZero() && c.LastRun.State != collect.RunAbandoned && c.LastRun.State != collect.RunRunning
		}
		if l, ok := live[c.Name]; ok {
			m.live(l)
			delete(live, c.Name)
		}
		all = append(all, m)
	}
	for name, l := range live {
		m := known{Rate: Rate{Connection: name}}
		m.live(l)
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b known) int { return cmp.Compare(a.Connection, b.Connection) })
	return all
}

func (m *known) live(l Live) {
	m.Source, m.Running, m.Rate.Rate, m.Limits, m.Live = l.Source, true, l.Rate, l.Limits, &l.Snapshot
	m.Circuits, m.BoundBy = l.Circuits, l.BoundBy
	m.SetAside, m.SetAsideStatus = l.SetAside, l.SetAsideStatus
}
