package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/population"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/scenarios"
	"github.com/headway-go/headway/internal/sim/serve"
)

// demoName is the scenario of the served provider; the others are in package
// scenarios.
const demoName = "demo"

// scenarioOf is the embedded scenario of that name, or the one in the file.
// Errors in its content are a [*configfile.Error].
func scenarioOf(arg string) (*scenario.Scenario, error) {
	if arg == demoName {
		return serve.Demo(), nil
	}
	if !strings.ContainsAny(arg, `/\`) { // a path is never looked for among the names
		if src, ok := scenarios.Source(arg); ok {
			return scenario.Parse(arg, []byte(src))
		}
	}
	s, err := scenario.Load(arg)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is neither a file nor an embedded scenario %q (see %q)", arg, "headway sim list")
	}
	return s, err
}

// scenariosOf reads all the named scenarios; the error has the problems of all of them.
func scenariosOf(args []string) ([]*scenario.Scenario, error) {
	all := make([]*scenario.Scenario, len(args))
	errs := make([]error, len(args))
	for i, arg := range args {
		all[i], errs[i] = scenarioOf(arg)
	}
	return all, errors.Join(errs...)
}

// embedded is a scenario that comes with headway.
type embedded struct {
	Name string `json:"name"`
	// Description is the scenario's own, or where its numbers are from.
	Description string  `json:"description"`
	HorizonS    float64 `json:"horizon_s"`
	// Clients are the users of a bulk workload.
	Clients int `json:"clients"`
	// Rows is how many a bulk workload loads; absent for the others.
	Rows   int64    `json:"rows,omitzero"`
	Limits []string `json:"limits"`
}

// allEmbedded lists them by name.
func allEmbedded() ([]embedded, error) {
	all, err := scenarios.All()
	if err != nil {
		return nil, err
	}
	loads, err := scenarios.Bulk()
	if err != nil {
		return nil, err
	}
	all = append(append(all, loads...), serve.Demo())
	list := make([]embedded, len(all))
	for i, s := range all {
		e := embedded{
			Name: s.Name, Description: s.Description,
			HorizonS: s.Horizon.Seconds(), Clients: s.Clients, Limits: []string{},
		}
		if sim.Bulk(s) {
			e.Clients, e.Rows = s.Workload.Users, int64(s.Workload.Rows)
		}
		if e.Description == "" {
			src, _ := scenarios.Source(s.Name)
			e.Description = source(src)
		}
		for _, l := range s.Provider.EachLimit {
			e.Limits = append(e.Limits, l.String())
		}
		list[i] = e
	}
	slices.SortFunc(list, func(a, b embedded) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// source is the comment that an embedded scenario begins with, as one line.
func source(src string) string {
	var words []string
	for line := range strings.Lines(src) {
		comment, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		words = append(words, strings.Fields(comment)...)
	}
	return strings.TrimPrefix(strings.Join(words, " "), "Source: ")
}

// completeScenarios offers the embedded scenarios, and files when none begins so.
func completeScenarios(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	all, err := allEmbedded()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	for _, e := range all {
		if strings.HasPrefix(e.Name, begun) && !slices.Contains(args, e.Name) {
			names = append(names, cobra.CompletionWithDesc(e.Name, strings.Join(e.Limits, "; ")))
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}

// completeScenario is the same for a command that takes one.
func completeScenario(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeScenarios(cmd, args, begun)
}

// completeLaws offers the laws that a list does not have yet.
func completeLaws(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	head, last := "", begun
	if i := strings.LastIndexByte(begun, ','); i >= 0 {
		head, last = begun[:i+1], begun[i+1:]
	}
	var lists []string
	for _, law := range allLaws() {
		if strings.HasPrefix(law, last) && !slices.Contains(strings.Split(head, ","), law) {
			lists = append(lists, head+law)
		}
	}
	return lists, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeFlag adds the completion of a flag's value.
func completeFlag(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // there is no such flag
	}
}

// plottable checks, before anything is computed, that a plot can be written to a path.
func plottable(cmd *cobra.Command, path string) error {
	if !cmd.Flags().Changed("plot") {
		return nil
	}
	if e := filepath.Ext(path); e != "" && !strings.EqualFold(e, ".svg") {
		return usage(fmt.Errorf("--plot: %s: only SVG can be drawn, must end in .svg", path))
	}
	return replaceable("--plot", path)
}

// replaceable checks that writeWhole may write a file there. It may not replace a device, a
// pipe or a link, which the rename would remove.
func replaceable(flag, path string) error {
	if path == "" {
		return usage(fmt.Errorf("%s is empty, must name a file", flag))
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return usage(fmt.Errorf("%s: there is no directory %s", flag, filepath.Dir(path)))
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return usage(fmt.Errorf("%s: %w", flag, err))
	case !info.Mode().IsRegular():
		return usage(fmt.Errorf("%s: %s exists and is not a regular file", flag, path))
	}
	return nil
}

// writeWhole writes a file under a temporary name and renames it, so that a reader finds
// the old file or the whole new one. The error names the flag.
func writeWhole(flag, path string, write func(io.Writer) error) (err error) {
	// Not os.CreateTemp, whose files are for the owner alone: the umask decides.
	temp := fmt.Sprintf("%s.%016x.tmp", path, rand.Uint64())
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp)
			err = fmt.Errorf("%s: %w", flag, err)
		}
	}()
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// content writes bytes that are complete already.
func content(b []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(b); return err }
}

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
