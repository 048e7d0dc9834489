package console

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/quota"
)

// budget is one quota.
type budget struct {
	Name     string
	Snapshot quota.Snapshot
	Forecast []client.Forecast
	Ahead    map[string][]client.Forecast // by model: what is bounded for it alone
	Models   []string                     // in order
}

// refusals is the state of a budget that is normal, but has just refused calls which are too
// large for what is left of it.
const refusals = "refusing calls"

// refusing returns the end of the latest wait that a recent refusal named, of calls of a
// model, or of all calls for "". It is zero if each such wait is over, or what was refused
// may have room again.
func refusing(s *quota.Snapshot, model string, now time.Time) (until time.Time) {
	for _, e := range s.RecentEvents {
		switch {
		case e.Type == quota.EventConfig, e.Type == quota.EventResume && (e.Global || e.Model == model):
			until = time.Time{}
		case e.Type != quota.EventDenied || model != "" && e.Model != model:
		default:
			if end := e.At.Add(time.Duration(e.RetryInMS) * time.Millisecond); end.After(until) {
				until = end
			}
		}
	}
	if !until.After(now) {
		return time.Time{}
	}
	return until
}

// standing is the state of a budget, and how to look at it.
type standing struct {
	State string
	Tone  Tone
	Until time.Time // when a call that was refused may come again; zero if none waits
}

// Standing returns the state of a model, or of all calls together for "".
func (b budget) Standing(model string) standing {
	state := b.Snapshot.Global.State
	if model != "" {
		state = b.Snapshot.Models[model].State
	}
	switch until := refusing(&b.Snapshot, model, time.Now()); {
	case state == quota.Exhausted:
		return standing{State: state.String(), Tone: Bad}
	case state != quota.Normal:
		return standing{State: state.String(), Tone: Warn}
	case !until.IsZero():
		return standing{State: refusals, Tone: Warn, Until: until}
	}
	return standing{State: state.String(), Tone: Good}
}

// outlook is a forecast as it is shown.
type outlook struct {
	client.Forecast
	// Short says that calls are refused for want of this budget, though something is left of it.
	Short bool
}

// Outlook returns the forecasts of a model, or of all calls together for "".
func (b budget) Outlook(model string, all []client.Forecast) []outlook {
	now, short, daily := time.Now(), b.Standing(model).State == quota.Exhausted.String(), 0
	for _, e := range b.Snapshot.RecentEvents {
		if e.Type == quota.EventDenied && e.Code == quota.CodeHardLimit && (model == "" || e.Model == model) {
			short = short || !refusing(&b.Snapshot, model, now).IsZero() && e.At.Add(time.Duration(e.RetryInMS)*time.Millisecond).After(now)
		}
	}
	list := make([]outlook, len(all))
	for i, f := range all {
		list[i] = outlook{Forecast: f}
		if strings.HasPrefix(f.Budget, "daily") {
			daily++
		}
	}
	for i, f := range all { // of two daily budgets it is not known which one refuses
		list[i].Short = short && daily == 1 && f.Remaining > 0 && strings.HasPrefix(f.Budget, "daily")
	}
	return list
}

// budgets is the page of quotas.
type budgets struct {
	List   []budget
	Change *change // nil where nothing is being changed
}

// change is an override of limits on its way: asked for, looked at, confirmed.
type change struct {
	Provider, Model string
	Digest          string // of the configuration that it was made against
	Fields          []field
	Review          bool
	Changed         int
	Patch           string
	Done            string // the digest of what is in force now
}

// field is one limit of a change.
type field struct {
	Key, Label string
	Was, Is    string // empty is no limit
	Error      string
}

// Changed says that the field is to have another value.
func (f field) Changed() bool { return f.Was != f.Is }

// overridable are the limits that the page changes, by their key in the configuration.
var overridable = []struct {
	key, label string
	of         func(quota.Limits) int64
}{
	{"callsPerMinute", "Calls a minute", func(l quota.Limits) int64 { return l.CallsPerMinute }},
	{"tokensPerMinute", "Tokens a minute", func(l quota.Limits) int64 { return l.TokensPerMinute }},
	{"maxDailyCalls", "Calls a day", func(l quota.Limits) int64 { return l.MaxDailyCalls }},
	{"maxDailyTokens", "Tokens a day", func(l quota.Limits) int64 { return l.MaxDailyTokens }},
}

// maxForecasts is for how many models of a quota the page says when they run out.
const maxForecasts = 50

func (v *visit) budgets() (all budgets, err error) {
	index, err := v.api.Index(v.r.Context())
	if err != nil {
		return all, err
	}
	for _, name := range index.Quotas {
		b := budget{Name: name}
		if b.Snapshot, err = v.api.Snapshot(v.r.Context(), name); err != nil {
			return all, err
		}
		if b.Forecast, err = v.api.Forecast(v.r.Context(), name, quota.Scope{}); err != nil {
			return all, err
		}
		b.Models = slices.Sorted(maps.Keys(b.Snapshot.Models))
		b.Ahead = map[string][]client.Forecast{}
		for _, model := range b.Models[:min(maxForecasts, len(b.Models))] {
			all, err := v.api.Forecast(v.r.Context(), name, quota.Scope{Model: model})
			if err != nil {
				return budgets{}, err
			}
			b.Ahead[model] = slices.DeleteFunc(all, func(f client.Forecast) bool { return f.Scope.Model != model })
		}
		all.List = append(all.List, b)
	}
	return all, nil
}

func (c *Console) quotas(v *visit) error {
	all, err := v.budgets()
	if err != nil {
		return err
	}
	if q := v.r.URL.Query(); q.Has("change") && v.operates() {
		if all.Change, err = v.begin(q.Get("change"), q.Get("model")); err != nil {
			return err
		}
	}
	v.show(http.StatusOK, "quotas", "Quotas", all)
	return nil
}

// begin is a change of a quota's limits, or of a model's in it, with what they are now.
func (v *visit) begin(provider, model string) (*change, error) {
	config, err := v.api.Config(v.r.Context(), provider)
	if err != nil {
		return nil, err
	}
	digest, err := config.Digest()
	if err != nil {
		return nil, err
	}
	limits := config.Global
	if model != "" {
		m, ok := config.Models[model]
		if !ok {
			return nil, &client.Problem{Status: http.StatusNotFound, Title: "This model has no limits of its own"}
		}
		limits = m.Limits
	}
	ch := &change{Provider: provider, Model: model, Digest: digest}
	for _, o := range overridable {
		f := field{Key: o.key, Label: o.label}
		if n := o.of(limits); n > 0 {
			f.Was = strconv.FormatInt(n, 10)
		}
		f.Is = f.Was
		ch.Fields = append(ch.Fields, f)
	}
	return ch, nil
}

// read takes what the form asks for.
func (ch *change) read(form url.Values) (patch []byte, wrong bool) {
	limits := map[string]any{}
	for i := range ch.Fields {
		f := &ch.Fields[i]
		f.Is = strings.ReplaceAll(strings.TrimSpace(form.Get(f.Key)), ",", "")
		n, err := strconv.ParseInt(f.Is, 10, 64)
		switch {
		case f.Is == "":
		case err != nil || n < 1:
			f.Error, wrong = "must be a whole number above 0, or empty for no limit", true
			continue
		default:
			f.Is = strconv.FormatInt(n, 10)
		}
		if !f.Changed() {
			continue
		}
		ch.Changed++
		limits[f.Key] = nil
		if f.Is != "" {
			limits[f.Key] = n
		}
	}
	of := map[string]any{"global": limits}
	if ch.Model != "" {
		of = map[string]any{"models": map[string]any{ch.Model: limits}}
	}
	patch, _ = json.MarshalIndent(of, "", "  ") // numbers and strings always can be
	return patch, wrong
}

// override shows what would change, and changes it when that is confirmed. The API
// logs who changed what.
func (c *Console) override(v *visit) error {
	if err := v.operatorForm(); err != nil {
		return err
	}
	form := v.r.PostForm
	ch, err := v.begin(form.Get("provider"), form.Get("model"))
	if err != nil {
		return err
	}
	patch, wrong := ch.read(form)
	ch.Patch = string(patch)
	status := http.StatusOK
	switch confirmed := form.Get("step") == "apply"; {
	case wrong:
		status = http.StatusUnprocessableEntity
	case confirmed && form.Get("digest") != ch.Digest:
		return &client.Problem{Status: http.StatusConflict, Title: "The limits were changed meanwhile", Detail: "look at what they are now, and begin again"}
	case confirmed && ch.Changed > 0:
		done, err := v.api.PatchConfig(v.r.Context(), ch.Provider, patch)
		if err != nil {
			return err
		}
		ch.Done = done.ConfigDigest
	default:
		ch.Review = ch.Changed > 0
	}
	all, err := v.budgets()
	if err != nil {
		return err
	}
	all.Change = ch
	v.show(status, "quotas", "Quotas", all)
	return nil
}
