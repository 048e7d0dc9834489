package cli

import (
	"encoding/csv"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/story"
)

func newUsage() *cobra.Command {
	var by []string
	var from, to string
	var asCSV bool
	is := map[string]*string{}
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Sum up what proxied calls used, by key, tenant, agent, model, provider and day",
		Long: `Sums up calls that "headway serve" proxied: how many, how they ended, and the tokens
that they were charged for. It reads the totals beside the state file, or with --server
asks a running daemon. Days are those in UTC on which calls began, and the last 400 of them
are kept. ESTIMATED counts the calls whose tokens the provider did not report. COST is by the
prices of the daemon's configuration when the tokens were used: unknown without them.

A daemon that is killed loses the calls of its last seconds here; budgets lose nothing.`,
		Example: `  headway usage
  headway usage --by day,model --from 2026-11-01
  headway usage --by key --tenant acme --csv > usage.csv
  headway usage --server http://127.0.0.1:8700 --json`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asCSV && asJSON(cmd) {
				return usage(errors.New("--csv does not go with --json"))
			}
			ask := calls.Ask{From: from, To: to, By: by, Is: map[string]string{}}
			if err := ask.Check(); err != nil {
				return usage(err)
			}
			for name, value := range is {
				if cmd.Flags().Changed(name) {
					ask.Is[name] = *value
				}
			}
			list, err := usageOf(cmd, ask)
			if err != nil {
				return err
			}
			switch {
			case asJSON(cmd):
				return writeJSON(cmd, orEmpty(list))
			case asCSV:
				w := csv.NewWriter(cmd.OutOrStdout())
				_ = w.Write(append(slices.Clone(by), "calls", "refused", "failed", "attempts", "throttled", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "estimated", "unpriced_tokens", "cost"))
				for _, u := range list {
					_ = w.Write(append(usageCells(by, u, func(n int64) string { return strconv.FormatInt(n, 10) }), strconv.FormatInt(u.UnpricedTokens, 10), u.CostText()))
				}
				w.Flush()
				return w.Error()
			case len(list) == 0:
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "No call was counted.")
				return err
			}
			var table sheet
			table.line("%s", strings.ToUpper(strings.Join(append(slices.Clone(by), "calls", "refused", "failed", "attempts", "throttled", "input", "cached", "output", "reasoning", "estimated", "cost"), "\t")))
			for _, u := range list {
				table.line("%s", strings.Join(append(usageCells(by, u, figure.Count), u.CostText()), "\t"))
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), table.String())
			return err
		},
	}
	serverFlag(cmd)
	f := cmd.Flags()
	f.String("state", "", "`file` of the state, beside which the totals are (default $HEADWAY_STATE, else "+defaultState+")")
	f.StringSliceVar(&by, "by", []string{"provider", "model"}, "what to sum up by, with commas between: "+strings.Join(calls.By, ", ")+`; "" is one total`)
	f.StringVar(&from, "from", "", "first `day`, such as 2026-11-01")
	f.StringVar(&to, "to", "", "last `day`")
	for _, name := range calls.By[1:] {
		is[name] = f.String(name, "", "only calls of this `"+name+"`; \"\" is those without one")
	}
	f.BoolVar(&asCSV, "csv", false, "print CSV")
	return jsonFlag(cmd)
}

// usageOf asks the daemon, or the ledger beside the state file.
func usageOf(cmd *cobra.Command, ask calls.Ask) ([]client.Usage, error) {
	c, err := remote(cmd)
	if err != nil {
		return nil, err
	}
	if c != nil {
		list, err := c.Usage(cmd.Context(), ask.From, ask.To, ask.By, ask.Is, 0)
		return list, answered(cmd, err)
	}
	ledger := calls.NewLedger(filepath.Join(filepath.Dir(statePath(cmd)), calls.FileName))
	list, err := ledger.Sum(cmd.Context(), ask)
	return list, errors.Join(err, ledger.Close(cmd.Context()))
}

// usageCells are a line: what it is about, then its sums. A name that is empty is shown
// as "-", and none turns into a formula of a spreadsheet.
func usageCells(by []string, u client.Usage, count func(int64) string) []string {
	at := map[string]*string{"day": u.Day, "provider": u.Provider, "key": u.Key, "tenant": u.Tenant, "agent": u.Agent, "model": u.Model}
	var cells []string
	for _, name := range by {
		cell := "-"
		if p := at[name]; p != nil && *p != "" {
			cell = story.Visible(*p)
			if strings.ContainsAny(cell[:1], "=+-@") {
				cell = "'" + cell
			}
		}
		cells = append(cells, cell)
	}
	for _, n := range []int64{u.Calls, u.Refused, u.Failed, u.Attempts, u.Throttled, u.InputTokens, u.CachedTokens, u.OutputTokens, u.ReasoningTokens, u.Estimated} {
		cells = append(cells, count(n))
	}
	return cells
}
