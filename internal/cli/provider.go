package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/dataverse"
	"github.com/headway-go/headway/internal/sim/serve/llm"
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
	}
	return group(cmd, newProviderServe())
}

// provision is what the flags of "provider serve" say.
type provision struct {
	scenario string
	data     string
	models   languageModels
	tables   bulkTables
	listen   string
	log      string
	ready    readyFile
	options  serve.Options
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
		Args:              atMostOne("one scenario"),
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
	f.StringVar((*string)(&p.ready), "ready-file", "", "write the base URL into this `file` once it is served; removed at the end")
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
	return p.ready.check()
}

const dataDataverse = "dataverse"

// bulkTables is what the flags say of the simulated Dataverse.
type bulkTables struct {
	dataverse.Options
	kind          string
	hints, faults []string
	api           *dataverse.API
}

// flagsOfDataverse are those that go with no other data.
var flagsOfDataverse = []string{
	"users", "servers", "hint", "hint-at", "batch-overhead", "row-time", "knee", "max-rows", "table-kind",
	"alternate-key", "fail-every", "fault", "scale",
}

// flags adds those of the simulated Dataverse.
func (b *bulkTables) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&b.Users, "users", 0, "with --data dataverse: how many users there are, each with limits of its own; 0 is as many as come")
	f.IntVar(&b.Servers, "servers", 1, "with --data dataverse: how many web servers there are, each with limits of its own")
	f.IntVar(&b.Hint, "hint", 4, "with --data dataverse: the parallelism that it recommends")
	f.StringSliceVar(&b.hints, "hint-at", nil, "with --data dataverse: recommend another parallelism later, as `TIME=N` such as 30s=1")
	f.DurationVar(&b.Overhead, "batch-overhead", 200*time.Millisecond, "with --data dataverse: how long a batch executes, beside its rows")
	f.DurationVar(&b.RowTime, "row-time", 21*time.Millisecond, "with --data dataverse: how long each row of a batch executes")
	f.IntVar(&b.Knee, "knee", 0, "with --data dataverse: how many batches it executes side by side before each takes longer; 0 is without end")
	f.IntVar(&b.MaxRows, "max-rows", 1000, "with --data dataverse: rows of a batch; larger ones are refused with 413")
	f.StringVar(&b.kind, "table-kind", string(dataverse.Standard), "with --data dataverse: "+string(dataverse.Standard)+" tables take all rows of a batch or none, "+string(dataverse.Elastic)+" ones those they can")
	f.StringSliceVar(&b.AlternateKey, "alternate-key", nil, "with --data dataverse: `columns` by which created rows are known")
	f.IntVar(&b.FailEvery, "fail-every", 0, "with --data dataverse: refuse about each `n`-th row, the same ones always; 0 refuses none")
	f.StringSliceVar(&b.faults, "fault", nil, "with --data dataverse: what goes wrong once, as `TROUBLE@N`: unauthorized, too-large or broken at the N-th request, cut or garbage after the N-th batch was written")
	f.Float64Var(&b.Scale, "scale", 1, "with --data dataverse: how many times faster than in reality all goes")
}

// environment completes the options with a Dataverse, and gives its scenario where
// no other is named. What the flags leave open is as in the scenario.
func (p *provision) environment(cmd *cobra.Command) (s *scenario.Scenario, err error) {
	t := &p.tables
	if t.Overhead < 0 || t.RowTime < 0 {
		return nil, usage(errors.New("--batch-overhead and --row-time must be at least 0"))
	}
	opt := dataverse.Options{
		Seed: p.options.Seed, Scale: t.Scale, Users: t.Users, Servers: t.Servers,
		Tables: dataverse.Kind(t.kind), AlternateKey: t.AlternateKey, FailEvery: t.FailEvery,
	}
	changed := cmd.Flags().Changed
	for _, f := range []struct {
		name     string
		from, to *int
	}{{"hint", &t.Hint, &opt.Hint}, {"max-rows", &t.MaxRows, &opt.MaxRows}, {"knee", &t.Knee, &opt.Knee}} {
		if changed(f.name) {
			*f.to = *f.from
		}
	}
	for _, f := range []struct {
		name     string
		from, to *time.Duration
	}{{"batch-overhead", &t.Overhead, &opt.Overhead}, {"row-time", &t.RowTime, &opt.RowTime}} {
		if changed(f.name) {
			*f.to = *f.from
			if *f.from == 0 {
				*f.to = -1 // none, and not the default
			}
		}
	}
	for _, f := range []struct {
		name string
		zero bool
	}{
		{"servers", t.Servers == 0}, {"hint", t.Hint == 0}, {"max-rows", t.MaxRows == 0}, {"table-kind", t.kind == ""}, {"scale", t.Scale == 0},
	} {
		if f.zero { // which would be taken for the default
			return nil, usage(fmt.Errorf("--%s is empty or 0, leave it out for the default", f.name))
		}
	}
	for _, text := range t.hints {
		h, err := dataverse.ParseHint(text)
		if err != nil {
			return nil, usage(fmt.Errorf("--hint-at: %w", err))
		}
		opt.Hints = append(opt.Hints, h)
	}
	for _, text := range t.faults {
		f, err := dataverse.ParseFault(text)
		if err != nil {
			return nil, usage(fmt.Errorf("--fault: %w", err))
		}
		opt.Faults = append(opt.Faults, f)
	}
	if named := p.scenario != "" && p.scenario != dataDataverse; named {
		if s, err = scenarioOf(p.scenario); err != nil {
			return nil, badFile("scenario that can be run", err)
		}
		opt = opt.Like(s)
	}
	if t.api, err = dataverse.New(opt); err != nil {
		return nil, usage(fmt.Errorf("--data dataverse: %w", err))
	}
	p.options.APIs = []serve.API{t.api}
	if s == nil {
		s = t.api.Scenario()
	}
	return s, nil
}

// text says what the environment is like.
func (b *bulkTables) text() string {
	text := fmt.Sprintf("%s tables, hint %d", b.kind, b.api.Standing().Hint)
	if b.Servers > 1 {
		text += fmt.Sprintf(", %d web servers", b.Servers)
	}
	if b.Scale > 1 {
		text += fmt.Sprintf(", %g times faster", b.Scale)
	}
	return text
}

// What a provider can serve, beside what it always does.
const (
	dataConversations = "conversations"
	dataLLM           = "llm"
)

// languageModels is what the flags say of the simulated language models.
type languageModels struct {
	limits llm.Limits
	llm.Options
}

// The flags that go with language models only; the limits not with a scenario.
var (
	limitsOfModels = []string{"rpm", "tpm", "rpd"}
	flagsOfModels  = []string{"pace", "output-tokens"}
)

// flags adds those of the language models.
func (m *languageModels) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&m.limits.RequestsPerMinute, "rpm", 60, "with --data llm: requests a minute; 0 means no limit")
	f.IntVar(&m.limits.TokensPerMinute, "tpm", 20_000, "with --data llm: tokens a minute; 0 means no limit")
	f.IntVar(&m.limits.RequestsPerDay, "rpd", 10_000, "with --data llm: requests a day; 0 means no limit")
	f.Float64Var(&m.TokensPerSecond, "pace", 100, "with --data llm: `tokens` a second that a call generates; 0 is without delay")
	f.IntVar(&m.OutputTokens, "output-tokens", 64, "with --data llm: how long answers are, on average")
}

// provided is the scenario that is asked for, and completes the options with
// what the data need. Which scenario is empty without an argument.
func (p *provision) provided(cmd *cobra.Command) (*scenario.Scenario, error) {
	refuse := func(names ...string) error {
		return refuseFlags(cmd, fmt.Sprintf("--data %s and scenario %q", p.data, p.scenario), names...)
	}
	name := p.scenario
	switch p.data {
	case dataConversations:
		if name == "" {
			p.scenario, name = demoName, demoName
		}
		if err := refuse(slices.Concat(limitsOfModels, flagsOfModels, flagsOfDataverse)...); err != nil {
			return nil, err
		}
	case dataLLM:
		if err := refuse(flagsOfDataverse...); err != nil {
			return nil, err
		}
		if name != "" && name != dataLLM {
			if err := refuse(limitsOfModels...); err != nil {
				return nil, err
			}
		}
		return p.languages(name)
	case dataDataverse:
		if err := refuse(slices.Concat(limitsOfModels, flagsOfModels)...); err != nil {
			return nil, err
		}
		if name != "" && name != dataDataverse {
			if err := refuse("scale"); err != nil {
				return nil, err
			}
		}
		return p.environment(cmd)
	default:
		return nil, usage(fmt.Errorf("--data is %q, must be %s, %s or %s", p.data, dataConversations, dataLLM, dataDataverse))
	}
	s, err := scenarioOf(name)
	if err != nil {
		return nil, badFile("scenario that can be run", err)
	}
	return s, nil
}

// languages completes the options with language models, and gives their scenario
// where no other is named.
func (p *provision) languages(name string) (*scenario.Scenario, error) {
	if p.models.OutputTokens == 0 { // which would be taken for the default
		return nil, usage(fmt.Errorf("--output-tokens is 0, must be at least 1"))
	}
	p.models.Seed = p.options.Seed
	api, err := llm.New(p.models.Options)
	if err != nil {
		return nil, usage(fmt.Errorf("--pace or --output-tokens: %w", err))
	}
	p.options.APIs = []serve.API{api}
	if name == "" || name == dataLLM {
		s, err := p.models.limits.Scenario()
		if err != nil {
			return nil, usage(fmt.Errorf("--rpm, --tpm or --rpd: %w", err))
		}
		return s, nil
	}
	s, err := scenarioOf(name)
	if err != nil {
		return nil, badFile("scenario that can be run", err)
	}
	return s, nil
}

// trial is what to try on a provider that is served at a URL.
func (p *provision) trial(url string) string {
	token := ""
	if p.options.Token != "" {
		token = `-H "Authorization: Bearer $` + tokenVariable + `" `
	}
	if p.data == dataConversations {
		return fmt.Sprintf("curl -i %s'%s/conversations?limit=2'", token, url)
	}
	token = cmp.Or(token, `-H "Authorization: Bearer any" `)
	if p.data == dataDataverse {
		return fmt.Sprintf(`curl -i %s-d '{"Targets":[{"@odata.type":"Microsoft.Dynamics.CRM.contact","name":"Ann"}]}' '%s/api/data/v9.2/contacts/Microsoft.Dynamics.CRM.CreateMultiple'`, token, url)
	}
	return fmt.Sprintf(`curl -i %s-d '{"model":"sim-small","messages":[{"role":"user","content":"hello"}]}' '%s/v1/chat/completions'`, token, url)
}
