package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/keys"
)

func newKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "key",
		Short:   "Make keys for the clients of \"headway serve\"",
		Long:    `Keys are what clients of "headway serve" present. The configuration holds their hashes only.`,
		Example: `  headway key new --id team-a --tenant a --model 'gpt-*'`,
	}
	serverFlag(cmd)
	return group(cmd, newKeyNew(), newKeyList(), newKeyRevoke())
}

// maxDays is a hundred years, so that the end is a date that the file can hold.
const maxDays = 36_500

// newKeyLine is a key's entry in the file, in its order.
type newKeyLine struct {
	ID        string   `yaml:"id" json:"id"`
	Hash      string   `yaml:"hash" json:"hash"`
	Role      string   `yaml:"role,omitempty" json:"role,omitempty"`
	Tenant    string   `yaml:"tenant,omitempty" json:"tenant,omitempty"`
	Agent     string   `yaml:"agent,omitempty" json:"agent,omitempty"`
	Models    []string `yaml:"models,omitempty,flow" json:"models,omitempty"`
	Providers []string `yaml:"providers,omitempty,flow" json:"providers,omitempty"`
	Uploads   bool     `yaml:"uploads,omitempty" json:"uploads,omitempty"`
	Expires   string   `yaml:"expires,omitempty" json:"expires,omitempty"`
}

func newKeyNew() *cobra.Command {
	var (
		line  newKeyLine
		admin bool
		days  int
	)
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make a key: its secret, once, and the lines for the configuration",
		Long: `Makes a key of 256 random bits. The secret is printed this once and kept nowhere;
the lines for the configuration hold its hash.

With --server the key is issued by a running daemon instead: it is good at once and
survives a restart, and nothing has to go into the configuration.

A client sends the secret where it would send the provider's key, or, for a
provider with pass_through, in the header X-Headway-Key.

With --role the key makes no calls, but opens the API and the console: a viewer looks, an
operator also acts on gaps and overrides limits, an admin may do everything.`,
		Example: `  headway key new --id team-a --tenant a --model 'gpt-*' --provider openai
  headway key new --id ops --admin
  headway key new --id grafana --role viewer
  headway key new --id team-b --server http://127.0.0.1:8700`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if line.Role != "" {
				if admin {
					return usage(errors.New("--admin does not go with --role: it is the role admin"))
				}
				if !slices.Contains(keys.Roles(), keys.Role(line.Role)) {
					return usage(fmt.Errorf("--role is %q, must be viewer, operator or admin", line.Role))
				}
				if line.Tenant != "" || line.Agent != "" || len(line.Models)+len(line.Providers) > 0 || line.Uploads {
					return usage(errors.New("--role does not go with --tenant, --agent, --model, --provider or --uploads: a key with a role makes no calls"))
				}
			}
			if admin && (line.Tenant != "" || line.Agent != "" || len(line.Models)+len(line.Providers) > 0 || line.Uploads) {
				return usage(fmt.Errorf("--admin does not go with --tenant, --agent, --model, --provider or --uploads: an admin key may change everything"))
			}
			if line.ID == "" {
				return usage(fmt.Errorf("--id is missing: give the key a name for logs"))
			}
			if line.Uploads && len(line.Models) == 0 {
				return usage(fmt.Errorf("--uploads is for a key with --model: any other may upload without it"))
			}
			if days < 0 || days > maxDays {
				return usage(fmt.Errorf("--days is %d, must be from 1 to %d, or left out for a key without an end", days, maxDays))
			}
			if days > 0 {
				line.Expires = time.Now().UTC().AddDate(0, 0, days).Format(time.RFC3339)
			}
			var secret string
			secret, line.Hash = keys.Generate()
			k := keys.Key{ID: line.ID, Hash: line.Hash, Tenant: line.Tenant, Agent: line.Agent, Models: line.Models, Providers: line.Providers}
			if _, err := keys.New([]keys.Key{k}); err != nil {
				return usage(err)
			}
			far, err := remote(cmd)
			if err != nil {
				return err
			}
			if far != nil {
				if line.Role != "" {
					return usage(errors.New("--role does not go with a daemon: keys with a role stand in its configuration"))
				}
				return issueKey(cmd, far, line, admin)
			}
			if asJSON(cmd) {
				return writeJSON(cmd, struct {
					Secret string `json:"secret"`
					newKeyLine
				}{secret, line})
			}
			list := "keys"
			if admin {
				list = "admin_keys"
			}
			text, err := configfile.Write(map[string][]newKeyLine{list: {line}})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "The secret, shown only now:\n\n%s\n\nFor the configuration:\n\n%s", secret, text)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&line.ID, "id", "", "`name` of the key in logs (required)")
	f.StringVar(&line.Tenant, "tenant", "", "the tenant that its calls are for")
	f.StringVar(&line.Agent, "agent", "", "the agent that its calls are for")
	f.StringArrayVar(&line.Models, "model", nil, "`glob` of models that it may use; may be repeated (default all)")
	f.StringArrayVar(&line.Providers, "provider", nil, "`glob` of providers that it may use; may be repeated (default all)")
	f.BoolVar(&line.Uploads, "uploads", false, "with --model: it may also upload and keep files, which name no model")
	f.IntVar(&days, "days", 0, "how many days it lasts (default without an end)")
	f.BoolVar(&admin, "admin", false, "make a key for the whole API, the same as --role admin")
	f.StringVar(&line.Role, "role", "", "what a key for the API and the console may do: viewer, operator or admin (default a key for calls)")
	completeFlag(cmd, "role", cobra.FixedCompletions([]string{"viewer", "operator", "admin"}, cobra.ShellCompDirectiveNoFileComp))
	return jsonFlag(cmd)
}

// issueKey has a running daemon make a key.
func issueKey(cmd *cobra.Command, c *client.Client, line newKeyLine, admin bool) error {
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
	return present(cmd, key, fmt.Sprintf("The secret, shown only now:\n\n%s\n", key.Secret))
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
	return jsonFlag(&cobra.Command{
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
			if asJSON(cmd) {
				return writeJSON(cmd, orEmpty(all))
			}
			for _, k := range all {
				_, _ = fmt.Fprintln(cmd.OutOrStdout(), keyText(k))
			}
			return nil
		},
	})
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
