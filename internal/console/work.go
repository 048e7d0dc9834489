package console

import (
	"encoding/base64"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/profile"
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
	Count                      int64  // how many gaps Review is about; -1 if unknown
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
	if err := v.operatorForm(); err != nil {
		return err
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
			n, err := v.affected(change)
			if err != nil {
				return err
			}
			v.show(http.StatusOK, "gaps", "Gaps", gapList{Connection: change.Connection, Status: form.Get("status"), Reason: change.Reason, Review: &change, Count: n})
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

// affected counts the gaps that a change is about, as far as the counts of connections say; -1
// is unknown.
func (v *visit) affected(change client.GapChange) (n int64, err error) {
	all, err := v.api.Connections(v.r.Context(), change.Connection)
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		switch {
		case change.Action != collect.GapRelease && change.Reason == "":
			n += Row{Status: &s}.Owed()
		case change.Action != collect.GapRelease:
			n += s.Owed[change.Reason]
		case change.Reason == "":
			n += s.Quarantined
		default:
			return -1, nil
		}
	}
	return n, nil
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

// lab is the page of the simulator.
type lab struct {
	client.SimulatorMenu
	Picked  string // the name of the scenario that was picked
	Family  string
	Member  string
	Drawn   string // the seed of the population
	Source  string
	Seed    string
	Chosen  []string // laws
	Results []labResult
	Wrong   string
}

// labResult is the run of one law.
type labResult struct {
	client.SimulatedLaw
	// Picture is what the browser shows as an image: nothing in it runs or asks for more.
	Picture template.URL
}

// Chooses says whether a law is chosen.
func (l lab) Chooses(law string) bool { return slices.Contains(l.Chosen, law) }

// usualScenario is what the page begins with.
const usualScenario = "github-primary"

func (c *Console) simulator(v *visit) error {
	l := lab{Picked: v.text("scenario"), Family: v.text("family"), Member: v.text("member"), Drawn: v.text("drawn"), Seed: "1", Chosen: v.r.URL.Query()["law"]}
	pick := client.SimulatorPick{Scenario: l.Picked, Member: -1}
	if l.Member != "" {
		number, err := strconv.Atoi(l.Member)
		seed, errSeed := strconv.ParseUint(l.Drawn, 10, 62)
		if err != nil || errSeed != nil || number < 0 {
			return &client.Problem{Status: http.StatusBadRequest, Title: "No such member", Detail: "member and seed are whole numbers from 0"}
		}
		pick = client.SimulatorPick{Family: l.Family, Seed: seed, Member: number}
		l.Picked = ""
	} else if l.Picked == "" {
		l.Picked = usualScenario
		pick.Scenario = usualScenario
	}
	menu, err := v.api.Simulator(v.r.Context(), pick)
	if err != nil {
		return err
	}
	l.SimulatorMenu, l.Source = menu, menu.Draft
	if len(l.Chosen) == 0 {
		l.Chosen = menu.Laws
	}
	v.show(http.StatusOK, "simulator", "Simulator", l)
	return nil
}

// simulate runs what the form holds. It ends when the browser goes away.
func (c *Console) simulate(v *visit) error {
	if err := v.operatorForm(); err != nil {
		return err
	}
	form := v.r.PostForm
	l := lab{Source: strings.ReplaceAll(form.Get("source"), "\r\n", "\n"), Seed: form.Get("seed"), Chosen: form["law"], Picked: form.Get("scenario"), Family: form.Get("family"), Member: form.Get("member"), Drawn: form.Get("drawn")}
	var err error
	if l.SimulatorMenu, err = v.api.Simulator(v.r.Context(), client.SimulatorPick{Member: -1}); err != nil {
		return err
	}
	status := http.StatusOK
	seed, err := strconv.ParseInt(l.Seed, 10, 64)
	var done client.Simulated
	switch {
	case err != nil || seed < 0:
		status, l.Wrong = http.StatusUnprocessableEntity, "The seed must be a whole number from 0."
	case len(l.Chosen) == 0:
		status, l.Wrong = http.StatusUnprocessableEntity, "No law is chosen."
	default:
		done, err = v.api.Simulate(v.r.Context(), client.Simulation{Source: l.Source, Laws: l.Chosen, Seed: seed})
		if p, ok := errors.AsType[*client.Problem](err); ok && p.Status != http.StatusUnauthorized && p.Status != http.StatusForbidden {
			status, l.Wrong = p.Status, p.Title+": "+p.Detail
		} else if err != nil {
			return err
		}
	}
	for _, r := range done.Results {
		l.Results = append(l.Results, labResult{r, template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString([]byte(r.SVG)))}) //nolint:gosec // an image of base64 holds nothing that runs
	}
	v.show(status, "simulator", "Simulator", l)
	return nil
}
