package cli

import (
	"fmt"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/keys"
)

func newKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "key",
		Short:   "Make keys for the clients of \"headway serve\"",
		Long:    `Keys are what clients of "headway serve" present. The configuration holds their hashes only.`,
		Example: `  headway key new --id team-a --tenant a --model 'gpt-*'`,
		Args:    subcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	serverFlag(cmd)
	cmd.AddCommand(newKeyNew(), newKeyList(), newKeyRevoke())
	return cmd
}

// maxDays is a hundred years, so that the end is a date that the file can hold.
const maxDays = 36_500

// newKeyLine is a key's entry in the file, in its order.
type newKeyLine struct {
	ID        string   `yaml:"id" json:"id"`
	Hash      string   `yaml:"hash" json:"hash"`
	Tenant    string   `yaml:"tenant,omitempty" json:"tenant,omitempty"`
	Agent     string   `yaml:"agent,omitempty" json:"agent,omitempty"`
	Models    []string `yaml:"models,omitempty,flow" json:"models,omitempty"`
	Providers []string `yaml:"providers,omitempty,flow" json:"providers,omitempty"`
	Uploads   bool     `yaml:"uploads,omitempty" json:"uploads,omitempty"`
	Expires   string   `yaml:"expires,omitempty" json:"expires,omitempty"`
}

func newKeyNew() *cobra.Command {
	var (
		line   newKeyLine
		admin  bool
		asJSON bool
		days   int
	)
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make a key: its secret, once, and the lines for the configuration",
		Long: `Makes a key of 256 random bits. The secret is printed this once and kept nowhere;
the lines for the configuration hold its hash.

With --server the key is issued by a running daemon instead: it is good at once and
survives a restart, and nothing has to go into the configuration.

A client sends the secret where it would send the provider's key, or, for a
provider with pass_through, in the header X-Headway-Key.`,
		Example: `  headway key new --id team-a --tenant a --model 'gpt-*' --provider openai
  headway key new --id ops --admin
  headway key new --id team-b --server http://127.0.0.1:8700`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
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
				return issueKey(cmd, far, line, admin, asJSON)
			}
			if asJSON {
				return writeJSON(cmd, struct {
					Secret string `json:"secret"`
					newKeyLine
				}{secret, line})
			}
			list := "keys"
			if admin {
				list = "admin_keys"
			}
			text, err := yaml.Marshal(map[string][]newKeyLine{list: {line}})
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
	f.BoolVar(&admin, "admin", false, "make a key for changes at run time")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
