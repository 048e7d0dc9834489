package console

import (
	"encoding/base64"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-go/headway/internal/client"
)

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
	if err := v.form(); err != nil {
		return err
	}
	if !v.operates() {
		return errOperator
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
