package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/quota"
)

func newQuotaSimulate() *cobra.Command {
	var (
		limits, start string
		tail          time.Duration
		asJSON        bool
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
			if tail < 0 || tail > maxInstant {
				return usage(fmt.Errorf("--tail is %v, must be from 0s to %v", tail, maxInstant))
			}
			c, err := quotaConfig(limits)
			if err != nil {
				return err
			}
			actions, err := readTimeline(args[0])
			if err != nil {
				return usage(fmt.Errorf("not a timeline that can be replayed:\n%w", err))
			}
			core, err := quota.New(c, origin)
			if err != nil {
				return usage(err)
			}
			r := newReplay(core)
			if !asJSON {
				r.out = cmd.OutOrStdout()
			}
			if err := r.run(actions, tail); err != nil {
				return usage(fmt.Errorf("%s:%w", args[0], err))
			}
			if asJSON {
				return writeJSON(cmd, r.result())
			}
			_, err = io.WriteString(r.out, r.text())
			return err
		},
	}
	configFlag(cmd, &limits)
	cmd.Flags().StringVar(&start, "start", "2026-01-01T00:00:00Z", "`instant` on the wall clock at which the timeline begins")
	cmd.Flags().DurationVar(&tail, "tail", time.Minute, "go on for this long after the last step")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
