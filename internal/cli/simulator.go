package cli

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/population"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/scenarios"
)

// Bounds of a simulation for the console: attempts, and clients, whose state takes memory.
const (
	consoleAttempts = 2_000_000
	consoleClients  = 1_000
	consoleScenario = 64 << 10
)

// simulator tries laws for the API and the console.
type simulator struct{}

// Menu lists the embedded scenarios that laws of pacing play.
func (simulator) Menu() (m api.SimulatorMenu, err error) {
	all, err := scenarios.All()
	if err != nil {
		return m, err
	}
	for _, s := range all {
		one := api.SimulatorScenario{Name: s.Name, Description: s.Description, Limits: []string{}}
		if one.Description == "" {
			text, _ := scenarios.Source(s.Name)
			one.Description = source(text)
		}
		for _, l := range s.Provider.EachLimit {
			one.Limits = append(one.Limits, l.String())
		}
		m.Scenarios = append(m.Scenarios, one)
	}
	for _, f := range population.Families() {
		m.Families = append(m.Families, string(f))
	}
	m.Laws = control.Names()
	return m, nil
}

// Draft is the text of a scenario.
func (simulator) Draft(p api.SimulatorPick) (string, error) {
	wrong := func(field, detail string) error {
		return &api.Problem{Status: http.StatusNotFound, Title: "No such scenario", Field: field, Detail: detail}
	}
	if p.Scenario != "" {
		text, ok := scenarios.Source(p.Scenario)
		if !ok {
			return "", wrong("scenario", "no scenario of that name comes with headway")
		}
		return text, nil
	}
	if p.Member < 0 || p.Member >= population.MaxMembers {
		return "", wrong("member", "a population has no member of that number")
	}
	m, err := population.Draw(p.Seed, p.Member, population.Family(p.Family))
	if err != nil {
		return "", wrong("family", "no family has that name")
	}
	return string(m.File()), nil
}

// Simulate runs a scenario.
func (simulator) Simulate(ctx context.Context, ask api.Simulation) (api.Simulated, error) {
	invalid := func(field, detail string) error {
		return &api.Problem{Status: http.StatusUnprocessableEntity, Title: "Invalid scenario", Field: field, Detail: detail}
	}
	if len(ask.Source) > consoleScenario {
		return api.Simulated{}, invalid("source", "the scenario is larger than 64 KiB")
	}
	s, err := scenario.Parse("scenario", []byte(ask.Source))
	switch {
	case err != nil:
		return api.Simulated{}, invalid("source", err.Error())
	case sim.Bulk(s):
		return api.Simulated{}, invalid("source", "the workload is bulk, which headway sim run plays")
	case s.Clients > consoleClients:
		return api.Simulated{}, invalid("source", "more than 1000 clients; headway sim run has no bound")
	}
	var out api.Simulated
	for _, law := range ask.Laws {
		if !slices.Contains(control.Names(), law) {
			return out, invalid("laws", "there is no such law; want one of "+strings.Join(control.Names(), ", "))
		}
		r, err := sim.Run(s, sim.Options{Law: law, Seed: uint64(ask.Seed), Trace: true, MaxAttempts: consoleAttempts, Stop: ctx.Err})
		switch {
		case ctx.Err() != nil:
			return out, ctx.Err()
		case err != nil:
			return out, invalid("source", err.Error())
		}
		var svg bytes.Buffer
		if err := sim.WriteSVG(&svg, r.Trace); err != nil {
			return out, errors.New("the picture cannot be drawn")
		}
		one := api.SimulatedLaw{Law: law, SVG: svg.String()}
		for _, row := range resultRows(&r) {
			one.Figures = append(one.Figures, api.SimulatedFigure{Name: row[0], Value: row[1], Note: row[2]})
		}
		out.Results = append(out.Results, one)
	}
	return out, nil
}
