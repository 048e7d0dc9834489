package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
)

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
	changed := func(names ...string) error {
		for _, name := range names {
			if cmd.Flags().Changed(name) {
				return usage(fmt.Errorf("--%s does not go with --data %s and scenario %q", name, p.data, p.scenario))
			}
		}
		return nil
	}
	name := p.scenario
	switch p.data {
	case dataConversations:
		if name == "" {
			p.scenario, name = demoName, demoName
		}
		if err := changed(slices.Concat(limitsOfModels, flagsOfModels, flagsOfDataverse)...); err != nil {
			return nil, err
		}
	case dataLLM:
		if err := changed(flagsOfDataverse...); err != nil {
			return nil, err
		}
		if name != "" && name != dataLLM {
			if err := changed(limitsOfModels...); err != nil {
				return nil, err
			}
		}
		return p.languages(name)
	case dataDataverse:
		if err := changed(slices.Concat(limitsOfModels, flagsOfModels)...); err != nil {
			return nil, err
		}
		if name != "" && name != dataDataverse {
			if err := changed("scale"); err != nil {
				return nil, err
			}
		}
		return p.environment(cmd)
	default:
		return nil, usage(fmt.Errorf("--data is %q, must be %s, %s or %s", p.data, dataConversations, dataLLM, dataDataverse))
	}
	s, err := scenarioOf(name)
	if err != nil {
		return nil, badScenario(err)
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
		return nil, badScenario(err)
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
	if token == "" {
		token = `-H "Authorization: Bearer any" `
	}
	if p.data == dataDataverse {
		return fmt.Sprintf(`curl -i %s-d '{"Targets":[{"@odata.type":"Microsoft.Dynamics.CRM.contact","name":"Ann"}]}' '%s/api/data/v9.2/contacts/Microsoft.Dynamics.CRM.CreateMultiple'`, token, url)
	}
	return fmt.Sprintf(`curl -i %s-d '{"model":"sim-small","messages":[{"role":"user","content":"hello"}]}' '%s/v1/chat/completions'`, token, url)
}
