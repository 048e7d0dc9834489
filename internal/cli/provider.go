package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/sim/serve"
)

// tokenVariable holds the token, so that it need not stand on a command line
// that other users of the machine can read.
const tokenVariable = "HEADWAY_PROVIDER_TOKEN"

func newProvider() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "provider",
		Short: "Be a provider: a rate-limited API to try things on",
		Long: `Serves a model of a provider over real HTTP, in real time, with data to collect:
an upstream for quick starts and tests, where no account is at risk.`,
		Example: `  headway provider serve demo
  headway provider serve github-primary --listen 127.0.0.1:0`,
		Args: subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newProviderServe())
	return cmd
}

// provision is what the flags of "provider serve" say.
type provision struct {
	scenario  string
	data      string
	models    languageModels
	tables    bulkTables
	listen    string
	log       string
	readyFile string
	options   serve.Options
}

func newProviderServe() *cobra.Command {
	var p provision
	cmd := &cobra.Command{
		Use:   "serve [FILE|demo|NAME]",
		Short: "Serve a scenario's provider over HTTP until it is stopped",
		Long: `Serves the provider of a scenario: the same model that "headway sim" plays in
virtual time, here in real time, with conversations and their messages to
collect. Which scenario is a YAML file, "demo" (the default), or a name from
"headway sim list".

  GET /conversations?limit=&cursor=&updated_after=   a page, oldest change first
  GET /conversations/{id}                            one, with its messages
  GET /-/healthz                                     204; never limited
  GET /-/stats                                       counts as JSON; never limited

With --data llm there are language models too, in the shapes of OpenAI, Azure
OpenAI, Anthropic and Gemini, plain and streamed. A base URL that ends in /v1, or
is the bare address, is what their clients need; any key will do. The scenario is
then one with --rpm, --tpm and --rpd, unless another is named. A model whose name
ends in -cut-after-3, -error-in-stream, -overloaded, -quota-exhausted or
-throttled fails that way.

With --data dataverse there is a Dataverse environment to load rows into, by
CreateMultiple, UpdateMultiple and UpsertMultiple, at /api/data/v9.2/. Any bearer
token is a user; each user has the documented limits on each web server, or those
of the scenario that is named. /-/dataverse tells what it holds, and who was
refused with what code. With --scale 60 an hour passes in a minute.

The data come from the seed: the same seed serves the same data. --updated makes
the oldest conversations the newest, with one more message, so that a second
start shows what an incremental collection picks up.

It is a test double, without TLS or bounds on clients. So it listens on this
machine only (a missing host is 127.0.0.1) unless a token is set, by
$` + tokenVariable + ` or --token. Port 0 takes a free one; the address
goes to standard error, and with --ready-file into a file, once it is served.

Ctrl-C or SIGTERM stops it: requests under way have 5 seconds to end. A second
one stops it at once.`,
		Example: `  headway provider serve demo
  headway provider serve github-primary --listen :0 --ready-file provider.url
  headway provider serve ./mine.yaml --log admissions.jsonl
  headway provider serve --data llm --rpm 60 --tpm 20000
  headway provider serve --data dataverse --scale 60 --fail-every 1000
  headway provider serve demo --updated 10       # ten conversations went on
  ` + tokenVariable + `=secret headway provider serve demo --listen 0.0.0.0:8080`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return nil
			}
			return exactly(1, "one scenario at most")(cmd, args)
		},
		ValidArgsFunction: completeScenario,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				p.scenario = args[0]
			}
			if err := p.check(cmd); err != nil {
				return err
			}
			return p.serve(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.listen, "listen", "127.0.0.1:8080", "`address` to listen on")
	f.StringVar(&p.data, "data", dataConversations, "what to serve: "+dataConversations+", or "+dataLLM+" or "+dataDataverse+" beside them")
	p.models.flags(cmd)
	p.tables.flags(cmd)
	f.Uint64Var(&p.options.Seed, "seed", defaultSeed, "decides data, latencies and strangers")
	f.IntVar(&p.options.Conversations, "conversations", 1000, "how many conversations there are")
	f.IntVar(&p.options.Messages, "messages", 8, "how many messages a conversation has, on average")
	f.IntVar(&p.options.Updated, "updated", 0, "how many of the oldest conversations have changed since")
	f.StringVar(&p.options.Token, "token", "", "bearer token that requests must carry (default $"+tokenVariable+", which others cannot read)")
	f.StringVar(&p.log, "log", "", "append each decision to this `file` as a JSON line; - is standard output")
	f.StringVar(&p.readyFile, "ready-file", "", "write the base URL into this `file` once it is served; removed at the end")
	return cmd
}

// check completes what the flags say, and refuses what cannot be.
func (p *provision) check(cmd *cobra.Command) error {
	for _, f := range []struct {
		name  string
		value int
	}{{"conversations", p.options.Conversations}, {"messages", p.options.Messages}} {
		if f.value == 0 { // which the server would take for its default
			return usage(fmt.Errorf("--%s is 0, must be at least 1", f.name))
		}
	}
	from := "--token"
	if !cmd.Flags().Changed("token") {
		from, p.options.Token = tokenVariable, os.Getenv(tokenVariable)
	} else if p.options.Token == "" {
		return usage(fmt.Errorf("--token is empty; leave it out to ask for none"))
	}
	if strings.ContainsFunc(p.options.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return usage(fmt.Errorf("%s has a space or a character that is not printable ASCII, which no client could send", from))
	}
	for _, name := range []string{"log", "ready-file"} {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return usage(fmt.Errorf("--%s is empty, must name a file", name))
		}
	}
	if p.readyFile != "" {
		return replaceable("--ready-file", p.readyFile)
	}
	return nil
}
