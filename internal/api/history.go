package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/samples"
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
