package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/dataverse"
)

const dataDataverse = "dataverse"

// bulkTables is what the flags say of the simulated Dataverse.
type bulkTables struct {
	dataverse.Options
	kind          string
	hints, faults []string
	api           *dataverse.API
}

// flagsOfDataverse are those that go with no other data.
var flagsOfDataverse = []string{
	"users", "servers", "hint", "hint-at", "batch-overhead", "row-time", "knee", "max-rows", "table-kind",
	"alternate-key", "fail-every", "fault", "scale",
}

// flags adds those of the simulated Dataverse.
func (b *bulkTables) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&b.Users, "users", 0, "with --data dataverse: how many users there are, each with limits of its own; 0 is as many as come")
	f.IntVar(&b.Servers, "servers", 1, "with --data dataverse: how many web servers there are, each with limits of its own")
	f.IntVar(&b.Hint, "hint", 4, "with --data dataverse: the parallelism that it recommends")
	f.StringSliceVar(&b.hints, "hint-at", nil, "with --data dataverse: recommend another parallelism later, as `TIME=N` such as 30s=1")
	f.DurationVar(&b.Overhead, "batch-overhead", 200*time.Millisecond, "with --data dataverse: how long a batch executes, beside its rows")
	f.DurationVar(&b.RowTime, "row-time", 21*time.Millisecond, "with --data dataverse: how long each row of a batch executes")
	f.IntVar(&b.Knee, "knee", 0, "with --data dataverse: how many batches it executes side by side before each takes longer; 0 is without end")
	f.IntVar(&b.MaxRows, "max-rows", 1000, "with --data dataverse: rows of a batch; larger ones are refused with 413")
	f.StringVar(&b.kind, "table-kind", string(dataverse.Standard), "with --data dataverse: "+string(dataverse.Standard)+" tables take all rows of a batch or none, "+string(dataverse.Elastic)+" ones those they can")
	f.StringSliceVar(&b.AlternateKey, "alternate-key", nil, "with --data dataverse: `columns` by which created rows are known")
	f.IntVar(&b.FailEvery, "fail-every", 0, "with --data dataverse: refuse about each `n`-th row, the same ones always; 0 refuses none")
	f.StringSliceVar(&b.faults, "fault", nil, "with --data dataverse: what goes wrong once, as `TROUBLE@N`: unauthorized, too-large or broken at the N-th request, cut or garbage after the N-th batch was written")
	f.Float64Var(&b.Scale, "scale", 1, "with --data dataverse: how many times faster than in reality all goes")
}

// environment completes the options with a Dataverse, and gives its scenario where
// no other is named. What the flags leave open is as in the scenario.
func (p *provision) environment(cmd *cobra.Command) (s *scenario.Scenario, err error) {
	t := &p.tables
	if t.Overhead < 0 || t.RowTime < 0 {
		return nil, usage(errors.New("--batch-overhead and --row-time must be at least 0"))
	}
	opt := dataverse.Options{
		Seed: p.options.Seed, Scale: t.Scale, Users: t.Users, Servers: t.Servers,
		Tables: dataverse.Kind(t.kind), AlternateKey: t.AlternateKey, FailEvery: t.FailEvery,
	}
	changed := cmd.Flags().Changed
	for _, f := range []struct {
		name     string
		from, to *int
	}{{"hint", &t.Hint, &opt.Hint}, {"max-rows", &t.MaxRows, &opt.MaxRows}, {"knee", &t.Knee, &opt.Knee}} {
		if changed(f.name) {
			*f.to = *f.from
		}
	}
	for _, f := range []struct {
		name     string
		from, to *time.Duration
	}{{"batch-overhead", &t.Overhead, &opt.Overhead}, {"row-time", &t.RowTime, &opt.RowTime}} {
		if changed(f.name) {
			*f.to = *f.from
			if *f.from == 0 {
				*f.to = -1 // none, and not the default
			}
		}
	}
	for _, f := range []struct {
		name string
		zero bool
	}{
		{"servers", t.Servers == 0}, {"hint", t.Hint == 0}, {"max-rows", t.MaxRows == 0}, {"table-kind", t.kind == ""}, {"scale", t.Scale == 0},
	} {
		if f.zero { // which would be taken for the default
			return nil, usage(fmt.Errorf("--%s is empty or 0, leave it out for the default", f.name))
		}
	}
	for _, text := range t.hints {
		h, err := dataverse.ParseHint(text)
		if err != nil {
			return nil, usage(fmt.Errorf("--hint-at: %w", err))
		}
		opt.Hints = append(opt.Hints, h)
	}
	for _, text := range t.faults {
		f, err := dataverse.ParseFault(text)
		if err != nil {
			return nil, usage(fmt.Errorf("--fault: %w", err))
		}
		opt.Faults = append(opt.Faults, f)
	}
	if named := p.scenario != "" && p.scenario != dataDataverse; named {
		if s, err = scenarioOf(p.scenario); err != nil {
			return nil, badScenario(err)
		}
		opt = opt.Like(s)
	}
	if t.api, err = dataverse.New(opt); err != nil {
		return nil, usage(fmt.Errorf("--data dataverse: %w", err))
	}
	p.options.APIs = []serve.API{t.api}
	if s == nil {
		s = t.api.Scenario()
	}
	return s, nil
}

// text says what the environment is like.
func (b *bulkTables) text() string {
	text := fmt.Sprintf("%s tables, hint %d", b.kind, b.api.Standing().Hint)
	if b.Servers > 1 {
		text += fmt.Sprintf(", %d web servers", b.Servers)
	}
	if b.Scale > 1 {
		text += fmt.Sprintf(", %g times faster", b.Scale)
	}
	return text
}
