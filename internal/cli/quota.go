package cli

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/quota"
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
		Args: subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newQuotaSimulate(), newQuotaSnapshot(), newQuotaSet())
	return cmd
}

// quotaConfig reads the limits of --config, with the environment over them.
func quotaConfig(path string) (quota.Config, error) {
	if path == "" {
		return quota.Config{}, usage(fmt.Errorf("--config is missing: the YAML file with the limits"))
	}
	src, err := readBounded(path, quotafile.MaxSize)
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

const scopeHeader = "SCOPE\tSTATE\tCALLS LEFT\tTOKENS LEFT\tSOFT TOKENS LEFT\tTOKENS LEFT TODAY\tCALLS LEFT TODAY"

// scopesText is a line for each scope: where it stands and what is left.
func scopesText(core *quota.Governor, scopes []quota.Scope) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, scopeHeader)
	for _, scope := range scopes {
		s, ok := core.Inspect(0, scope) // not before the latest instant seen
		if !ok {
			continue
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", scope, s.State, orUnlimited(s.CallsRemaining), orUnlimited(s.TokensRemaining),
			orUnlimited(s.SoftTokensRemaining), orUnlimited(s.DailyTokensRemaining), orUnlimited(s.DailyCallsRemaining))
	}
	_ = w.Flush() // into memory
	return b.String()
}

// orUnlimited is a number, or a dash where there is no limit.
func orUnlimited(n *int64) string {
	if n == nil {
		return "-"
	}
	return figure.Count(*n)
}
