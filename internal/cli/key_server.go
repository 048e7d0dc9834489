package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/daemon/client"
	"github.com/headway-go/headway/internal/api"
)

// issueKey has a running daemon make a key.
func issueKey(cmd *cobra.Command, c *client.Client, line newKeyLine, admin, asJSON bool) error {
	if admin {
		return usage(errors.New("--admin does not go with a daemon: admin keys stand in its configuration"))
	}
	asked := api.KeyRequest{ID: line.ID, Tenant: line.Tenant, Agent: line.Agent, Models: line.Models, Providers: line.Providers, Uploads: line.Uploads}
	if line.Expires != "" {
		var err error
		if asked.Expires, err = time.Parse(time.RFC3339, line.Expires); err != nil {
			return err
		}
	}
	key, err := c.IssueKey(cmd.Context(), asked)
	if err != nil {
		return answered(cmd, err)
	}
	if asJSON {
		return writeJSON(cmd, key)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "The secret, shown only now:\n\n%s\n", key.Secret)
	return err
}

// runningDaemon is the daemon that a command cannot do without.
func runningDaemon(cmd *cobra.Command) (*client.Client, error) {
	c, err := remote(cmd)
	if err == nil && c == nil {
		err = usage(errors.New("only a running daemon knows its keys: name it by --server or $" + serverVariable))
	}
	return c, err
}

func newKeyList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Show the keys of a running daemon, without their secrets",
		Example: `  headway key list --server http://127.0.0.1:8700`,
		Args:    exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := runningDaemon(cmd)
			if err != nil {
				return err
			}
			all, err := c.Keys(cmd.Context())
			if err != nil {
				return answered(cmd, err)
			}
			if asJSON {
				return writeJSON(cmd, orEmpty(all))
			}
			for _, k := range all {
				_, _ = fmt.Fprintln(cmd.OutOrStdout(), keyText(k))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// keyText is a key in one line.
func keyText(k api.IssuedKey) string {
	parts := []string{k.ID + ":"}
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+value)
		}
	}
	add("tenant", k.Tenant)
	add("agent", k.Agent)
	add("models", strings.Join(k.Models, ","))
	add("providers", strings.Join(k.Providers, ","))
	if k.Uploads {
		parts = append(parts, "uploads")
	}
	if !k.Expires.IsZero() {
		add("until", k.Expires.UTC().Format(time.RFC3339))
	}
	if k.Configured {
		return strings.Join(append(parts, "(configured)"), " ")
	}
	return strings.Join(append(parts, "(issued)"), " ")
}

func newKeyRevoke() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Short:   "Take a key away that a running daemon issued",
		Example: `  headway key revoke team-b --server http://127.0.0.1:8700`,
		Args:    exactly(1, "the key's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := runningDaemon(cmd)
			if err != nil {
				return err
			}
			if err := c.RevokeKey(cmd.Context(), args[0]); err != nil {
				return answered(cmd, err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s lets nobody in any more\n", args[0])
			return err
		},
	}
}
