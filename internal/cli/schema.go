package cli

import (
	"bytes"
	_ "embed" // schemas.json
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/configfile"
)

// schemas has the JSON Schema of each kind of file; cmd/headway/reference writes it.
//
//go:embed schemas.json
var schemas []byte

func newSchema() *cobra.Command {
	kinds := []string{"connection", "daemon", "profile", "quota", "scenario", "target", "timeline"}
	return &cobra.Command{
		Use:   "schema KIND",
		Short: "Print the JSON Schema of a kind of file",
		Long: fmt.Sprintf(`Prints the JSON Schema (draft 2020-12) of a kind of file, for editors and other
checkers: %s. An editor with a YAML language server uses it when the
file begins with a line such as

  # yaml-language-server: $schema=daemon.schema.json`, strings.Join(kinds, ", ")),
		Example: `  headway schema daemon >daemon.schema.json
  headway schema connection | jq .properties`,
		Args:      exactly(1, "a kind of file: "+strings.Join(kinds, ", ")),
		ValidArgs: kinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			var all map[string]json.RawMessage
			if err := json.Unmarshal(schemas, &all); err != nil {
				return err
			}
			schema, ok := all[args[0]]
			if !ok {
				return usage(fmt.Errorf("no kind of file is called %s: %s", configfile.Quote(args[0]), configfile.Suggest(args[0], kinds)))
			}
			var b bytes.Buffer
			if err := json.Indent(&b, schema, "", "  "); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), b.String())
			return err
		},
	}
}
