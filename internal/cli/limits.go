package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	root "github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/story"
)

// newLimits is also "rate", as it was called at first.
func newLimits() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "limits [CONNECTION]",
		Aliases: []string{"rate"},
		Short:   "Show the limits of each connection, its rate and its last back-off",
		Long: `Shows each connection's rate and what is known of its limits: as of the last
committed page of the run under way, else as the last run left them; with --server
also those of what is proxied now. A limit is the owner's (configured), advertised (by
the provider's responses) or learned (by the control law, with a confidence from 0 to
1). How much of a limit is in use, and when there is room, is what the daemon or the last
run knows of: of a bucket, what it has not regained yet, and of a window, after a run, at
most so much. What is not known is shown as unknown.`,
		Example: `  headway limits
  headway limits chat-archive --json`,
		Args: atMostOne("the connection"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c, err := remote(cmd); err != nil || c != nil {
				if err != nil {
					return err
				}
				return farRates(cmd, c, args)
			}
			return withConnections(cmd, args, func(r collect.Reader, all []collect.ConnectionStatus) error {
				rates := make([]rateStatus, 0, len(all))
				for _, c := range all {
					s, err := readRate(cmd, r, c)
					if err != nil {
						return err
					}
					rates = append(rates, s)
				}
				if asJSON(cmd) {
					return writeJSON(cmd, rates)
				}
				for _, s := range rates {
					_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", s.Connection, s.text())
					writeLimits(cmd.OutOrStdout(), "  ", s.Limits)
					writeParts(cmd.OutOrStdout(), "  ", s.Pacing)
				}
				return nil
			})
		},
	}
	stateFlag(cmd)
	serverFlag(cmd)
	return jsonFlag(cmd)
}

// rateStatus is a connection's rate as far as the store knows it.
type rateStatus struct {
	Connection string          `json:"connection"`
	Running    bool            `json:"running"`
	Pacing     *collect.Pacing `json:"pacing"`
	// Rate is the last collection_rate event of the last run; nil is unknown.
	Rate *event.Rate `json:"rate"`
	// Limits are those of that event; nil is unknown.
	Limits []event.Limit `json:"limits"`
}

func readRate(cmd *cobra.Command, r collect.Reader, c collect.ConnectionStatus) (rateStatus, error) {
	s := rateStatus{Connection: c.Name, Running: c.Holder != "", Pacing: c.Pacing}
	if c.LastRun == nil {
		return s, nil
	}
	events, err := r.Events(cmd.Context(), c.LastRun.ID)
	last := api.LastRate(events)
	if s.Rate, s.Limits = last.Rate, last.Limits; !s.Running {
		s.Limits = api.Idle(last, time.Now())
	}
	return s, err
}

func (s rateStatus) text() string {
	if s.Pacing == nil {
		return "unknown"
	}
	text := storedRate(s.Pacing)
	if s.Rate != nil {
		if s.Rate.CeilingRatePerMin > 0 {
			text += fmt.Sprintf(", ceiling %s", figure.Rate(s.Rate.CeilingRatePerMin))
		}
		if b := s.Rate.LastBackoff; b != nil {
			text += fmt.Sprintf(", last back-off %s ago at %s (%s)", ago(b.At), story.BackoffRate(b), b.Reason)
		}
	}
	if s.Rate != nil {
		text += believes(s.Rate)
	}
	if s.Running {
		text += ", running"
	}
	return text
}

// writeLimits lists limits, one a line, in columns. What the provider allows is unknown
// while none of them is its own.
func writeLimits(w io.Writer, indent string, all []event.Limit) {
	var table sheet
	provider := false
	for _, l := range all {
		row := fmt.Sprintf("%s%s\t%s\t%s", indent, l.Provenance, l.Kind, story.Limit(l))
		if l.Provenance != event.Owner {
			provider = true
			row += fmt.Sprintf("\tconfidence %.2f", l.Confidence)
		}
		if use := story.Use(l, time.Now()); use != "" {
			row += "\t" + use
		}
		table.line("%s", row)
	}
	_, _ = io.WriteString(w, table.String())
	if !provider {
		_, _ = fmt.Fprintln(w, indent+"provider's limits unknown")
	}
}

// writeParts lists the stored rates of a connection's pools, and of its credentials after the
// first.
func writeParts(w io.Writer, indent string, p *collect.Pacing) {
	if p == nil {
		return
	}
	for name := range sortedKeys(p.Pools) {
		_, _ = fmt.Fprintf(w, "%spool %s: %s\n", indent, name, storedRate(new(p.Pools[name])))
	}
	for name := range sortedKeys(p.Keys) {
		of := p.Keys[name]
		_, _ = fmt.Fprintf(w, "%skey %s: %s\n", indent, name, storedRate(&of))
		writeParts(w, indent+"  ", &of)
	}
}

// writePools lists the parts of a connection that have limits of their own, of which
// something is known.
func writePools(w io.Writer, all []root.PoolSnapshot) {
	for _, p := range all {
		if p.Rate == nil && p.RetryAt.IsZero() {
			continue
		}
		text := rateText(p.Rate)
		if !p.RetryAt.IsZero() {
			text += fmt.Sprintf(", again in %s", clock(max(0, time.Until(p.RetryAt))))
		}
		_, _ = fmt.Fprintf(w, "  %s: %s\n", p.Name, text)
		writeLimits(w, "    ", p.Limits)
	}
}
