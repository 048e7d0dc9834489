package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/internal/sim/replay"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

func newQuota() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Plan and look after budgets of calls and tokens",
		Long: `Budgets of calls and tokens, for language models and anything else that costs:
try a configuration against a timeline of calls in virtual time, look at what is
left of the day, and correct it.`,
		Example: `  headway quota simulate day.yaml --config quota.yaml
  headway quota snapshot --config quota.yaml --state quota.json
  headway quota set --config quota.yaml --state quota.json --model small --tokens 120000`,
	}
	return group(cmd, newQuotaSimulate(), newQuotaSnapshot(), newQuotaSet())
}

// quotaConfig reads the limits of --config, with the environment over them.
func quotaConfig(path string) (quota.Config, error) {
	if path == "" {
		return quota.Config{}, usage(fmt.Errorf("--config is missing: the YAML file with the limits"))
	}
	src, err := atomicfile.Read(path, quotafile.MaxSize)
	if err != nil {
		return quota.Config{}, usage(fmt.Errorf("--config: %w", err))
	}
	c, err := quotafile.Parse(path, src)
	if err == nil {
		c, err = quotafile.FromEnv(c, os.Getenv)
	}
	if err != nil {
		return quota.Config{}, usage(fmt.Errorf("not limits that can be kept:\n%w", err))
	}
	return c, nil
}

func configFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "config", "", "YAML `file` with the limits (required); LLM_GLOBAL_* and RATE_GOVERNOR_* in the environment go over it")
}

func newQuotaSimulate() *cobra.Command {
	var (
		limits, start string
		tail          time.Duration
	)
	cmd := &cobra.Command{
		Use:   "simulate FILE",
		Short: "Replay a timeline of calls against limits, in virtual time",
		Long: `Replays a timeline of calls against limits in virtual time, and prints each
event, each change of state, what is left in the end, and the hash of the
transition log: the same files give the same hash on every machine.

FILE is a YAML list of steps, or JSON lines with the same fields:

  - {at: 0s, id: a, model: small, input: 200, output: 400}    # approve
  - {at: 2s, do: drain, id: a, output: 100}                   # tokens that flow
  - {at: 3s, do: record, id: a, input: 210, output: 390}      # settle
  - {at: 4s, model: small, tenant: t, agent: b, input: 50, times: 100, every: 50ms}
  - {at: 9s, do: wait, id: c, model: small, within: 30s, priority: 1}
  - {at: 9s, do: cancel, id: a}
  - {at: 1h, do: config, patch: {models: {small: {burst: 5}}}}

do is approve (the default), wait, record, drain, cancel or config. approve and
wait take model, tenant, agent, priority, input, output, cached and max (its
max_tokens); wait queues for at most "within" (15s). An id names a call for what
is done with it later; to a call that was refused or still waits it does nothing. A
patch is a JSON merge patch with the fields of the JSON configuration.`,
		Example: `  headway quota simulate day.yaml --config quota.yaml
  headway quota simulate calls.jsonl --config quota.yaml --start 2026-03-08T07:59:00Z --tail 24h
  headway quota simulate day.yaml --config quota.yaml --json | jq -r .transitionHash`,
		Args: exactly(1, "a file with a timeline"),
		RunE: func(cmd *cobra.Command, args []string) error {
			origin, err := time.Parse(time.RFC3339, start)
			if err != nil {
				return usage(fmt.Errorf("--start is %.40q, must be an instant such as 2026-01-01T00:00:00Z", start))
			}
			if tail < 0 || tail > replay.MaxInstant {
				return usage(fmt.Errorf("--tail is %v, must be from 0s to %v", tail, replay.MaxInstant))
			}
			c, err := quotaConfig(limits)
			if err != nil {
				return err
			}
			src, err := atomicfile.Read(args[0], replay.MaxSize)
			var timeline replay.Timeline
			if err == nil {
				timeline, err = replay.Parse(args[0], src)
			}
			if err != nil {
				return usage(fmt.Errorf("not a timeline that can be replayed:\n%w", err))
			}
			core, err := quota.New(c, origin)
			if err != nil {
				return usage(err)
			}
			var out io.Writer
			if !asJSON(cmd) {
				out = cmd.OutOrStdout()
			}
			result, err := replay.Run(core, timeline, tail, out)
			if err != nil {
				return usage(fmt.Errorf("%s:%w", args[0], err))
			}
			if asJSON(cmd) {
				return writeJSON(cmd, result)
			}
			_, err = io.WriteString(out, timelineText(core, result))
			return err
		},
	}
	configFlag(cmd, &limits)
	cmd.Flags().StringVar(&start, "start", "2026-01-01T00:00:00Z", "`instant` on the wall clock at which the timeline begins")
	cmd.Flags().DurationVar(&tail, "tail", time.Minute, "go on for this long after the last step")
	return jsonFlag(cmd)
}

// timelineText is the end of a replay for a person.
func timelineText(core *quota.Governor, r replay.Result) string {
	s := core.Statistics()
	lost := ""
	if r.Lost > 0 {
		lost = fmt.Sprintf("lost         %s entries that did not fit into the event buffer\n", figure.Count(int64(r.Lost)))
	}
	return fmt.Sprintf("\n%s\napproved     %s\ndenied       %s\n%stransitions  %s\nhash         %s\n",
		scopesText(core, r.Scopes), figure.Count(s.Approved), figure.Count(s.Denied), lost, figure.Count(int64(s.Moves)), r.TransitionHash)
}

const scopeHeader = "SCOPE\tSTATE\tCALLS LEFT\tTOKENS LEFT\tSOFT TOKENS LEFT\tTOKENS LEFT TODAY\tCALLS LEFT TODAY"

// scopesText is a line for each scope: where it stands and what is left.
func scopesText(core *quota.Governor, scopes []quota.Scope) string {
	var table sheet
	table.line(scopeHeader)
	for _, scope := range scopes {
		s, ok := core.Inspect(0, scope) // not before the latest instant seen
		if !ok {
			continue
		}
		table.line("%s\t%s\t%s\t%s\t%s\t%s\t%s", scope, s.State, orUnlimited(s.CallsRemaining), orUnlimited(s.TokensRemaining),
			orUnlimited(s.SoftTokensRemaining), orUnlimited(s.DailyTokensRemaining), orUnlimited(s.DailyCallsRemaining))
	}
	return table.String()
}

// orUnlimited is a number, or a dash where there is no limit.
func orUnlimited(n *int64) string {
	if n == nil {
		return "-"
	}
	return figure.Count(*n)
}

// defaultQuotaState is beside the state of collections.
var defaultQuotaState = filepath.Join(".headway", "quota.json")

// quotaStateFlag is over the program's own --state, which is another kind of file.
func quotaStateFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "state", defaultQuotaState, "`file` that holds the daily use")
}

// quotaSnapshot is the snapshot's JSON with the stored use beside it.
type quotaSnapshot struct {
	quota.Snapshot
	DailyUse []quota.DayUse `json:"dailyUse"`
}

func newQuotaSnapshot() *cobra.Command {
	var limits, state, provider string
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Show what is left of the day's budgets",
		Long: `Shows what a store says of today's use, against the limits: what a governor
that starts now would begin with. Buckets of calls and tokens are not stored and
so are full. While a process uses the store, it may hold up to a 64th of a cap
more than was used: what that process may use before it stores again.

With --server it asks a running daemon, which knows all that is left; --provider
says of which of its budgets.`,
		Example: `  headway quota snapshot --config quota.yaml --state quota.json
  headway quota snapshot --config quota.yaml --json | jq .models.small.dailyTokensRemaining`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c, err := remote(cmd); err != nil || c != nil && limits == "" {
				if err != nil {
					return err
				}
				return farSnapshot(cmd, c, provider)
			}
			c, err := quotaConfig(limits)
			if err != nil {
				return err
			}
			kept, err := governor.ReadFile(state)
			if errors.Is(err, fs.ErrNotExist) {
				return usage(fmt.Errorf("there is no daily use in %s; name the file with --state", state))
			}
			if err != nil {
				return err
			}
			core, err := restored(c, kept)
			if err != nil {
				return fmt.Errorf("%s: %w", state, err)
			}
			use := core.Use(0, nil)
			return present(cmd, quotaSnapshot{core.Snapshot(0), orEmpty(use)}, useText(use)+"\n"+scopesText(core, scopesOf(core, use)))
		},
	}
	configFlag(cmd, &limits)
	quotaStateFlag(cmd, &state)
	serverFlag(cmd)
	cmd.Flags().StringVar(&provider, "provider", "", "with --server: whose budget (default the one at the top, or the only one)")
	return jsonFlag(cmd)
}

// restored is a governor as one that starts now would be.
func restored(c quota.Config, kept []quota.DayUse) (*quota.Governor, error) {
	core, err := quota.New(c, time.Now().Round(0))
	if err != nil {
		return nil, err
	}
	return core, core.Restore(0, kept)
}

// scopesOf are the global scope, all models, and all others that used something.
func scopesOf(core *quota.Governor, use []quota.DayUse) []quota.Scope {
	scopes := []quota.Scope{{}}
	for model := range sortedKeys(core.Config().Models) {
		scopes = append(scopes, quota.Scope{Model: model})
	}
	for _, u := range use {
		if !slices.Contains(scopes, u.Scope) {
			scopes = append(scopes, u.Scope)
		}
	}
	return scopes
}

func useText(use []quota.DayUse) string {
	if len(use) == 0 {
		return "nothing was used today\n"
	}
	var table sheet
	table.line("SCOPE\tDAY\tZONE\tTOKENS\tCALLS")
	for _, u := range use {
		table.line("%s\t%s\t%s\t%s\t%s", u.Scope, u.Day, u.Zone, figure.Count(u.Tokens), figure.Count(u.Calls))
	}
	return table.String()
}

func newQuotaSet() *cobra.Command {
	var (
		limits, state string
		scope         quota.Scope
		tokens, calls int64
	)
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Correct what the store says of today's use",
		Long: `Sets what one scope has used today, as when a provider's own page says more, or
less. Without --tenant, --agent and --model it is the global scope. What is not
given stays as it is. Scopes above and below are not changed.

The store must not be in use: a process that runs has its own count.`,
		Example: `  headway quota set --config quota.yaml --state quota.json --model small --tokens 120000
  headway quota set --config quota.yaml --state quota.json --tenant research --calls 0`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := cmd.Flags()
			if !flags.Changed("tokens") && !flags.Changed("calls") {
				return usage(errors.New("nothing to set: give --tokens, --calls or both"))
			}
			if tokens < 0 || calls < 0 {
				return usage(fmt.Errorf("--tokens is %d and --calls is %d, neither may be negative", tokens, calls))
			}
			c, err := quotaConfig(limits)
			if err != nil {
				return err
			}
			var entry quota.DayUse
			err = withQuotaFile(state, func(f *governor.File) error {
				kept, err := f.Load()
				if err != nil {
					return err
				}
				if entry, err = today(c, kept, scope); err != nil {
					return err
				}
				if flags.Changed("tokens") {
					entry.Tokens = tokens
				}
				if flags.Changed("calls") {
					entry.Calls = calls
				}
				kept = slices.DeleteFunc(kept, func(u quota.DayUse) bool { return u.Scope == scope })
				kept = append(kept, entry)
				if _, err := restored(c, kept); err != nil {
					return usage(err)
				}
				return f.Save(kept)
			})
			if err != nil {
				return err
			}
			return present(cmd, entry, useText([]quota.DayUse{entry}))
		},
	}
	configFlag(cmd, &limits)
	quotaStateFlag(cmd, &state)
	cmd.Flags().StringVar(&scope.Tenant, "tenant", "", "whose use")
	cmd.Flags().StringVar(&scope.Agent, "agent", "", "which agent's of the tenant")
	cmd.Flags().StringVar(&scope.Model, "model", "", "of which model")
	cmd.Flags().Int64Var(&tokens, "tokens", 0, "tokens used today")
	cmd.Flags().Int64Var(&calls, "calls", 0, "calls made today")
	return jsonFlag(cmd)
}

// today is what a scope has used of the day that its calendar shows now.
func today(c quota.Config, kept []quota.DayUse, scope quota.Scope) (quota.DayUse, error) {
	// A call on a day that has not come counts as today's, and shows both that
	// the scope exists and which day it is there.
	core, err := restored(c, append(slices.Clip(kept), quota.DayUse{Scope: scope, Day: "9999-12-31", Calls: 1}))
	if err != nil {
		return quota.DayUse{}, err
	}
	use := core.Use(0, nil)
	at := slices.IndexFunc(use, func(u quota.DayUse) bool { return u.Scope == scope })
	// A model that is not configured only keeps its day for its return.
	if _, limited := core.Inspect(0, scope); at < 0 || !limited {
		return quota.DayUse{}, usage(fmt.Errorf("%s has no limits of its own in the configuration", scope))
	}
	use[at].Calls--
	return use[at], nil
}

// withQuotaFile opens the file for one change.
func withQuotaFile(path string, do func(*governor.File) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := governor.OpenFile(path)
	if errors.Is(err, governor.ErrInUse) {
		return &exitError{code: exitDeferred, err: err}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return do(f)
}

// sortedKeys visits a map's keys in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) iter.Seq[K] {
	return slices.Values(slices.Sorted(maps.Keys(m)))
}
