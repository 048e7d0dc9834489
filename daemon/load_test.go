package daemon

import (
	"fmt"
	"testing"

	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress/provider"
)

// TestTokenizersAreLoadedBeforeTheFirstCall: for providers whose calls are
// estimated, those that their models may need.
func TestTokenizersAreLoadedBeforeTheFirstCall(t *testing.T) {
	var got []string
	before := loadTokenizers
	defer func() { loadTokenizers = before }()
	loadTokenizers = func(models ...string) { got = append(got, fmt.Sprint(models)) }
	for api, want := range map[provider.API]string{
		provider.OpenAI: "[[gpt-5 gpt-4]]", provider.AzureOpenAI: "[[gpt-5 gpt-4]]", provider.Anthropic: "[[]]", provider.Gemini: "[[]]", provider.HTTP: "[]",
	} {
		for _, estimated := range []bool{true, false} {
			c, err := config.Read("h.yaml", fmt.Appendf(nil, "providers: {x: {api: %s, upstream: http://127.0.0.1:1, pass_through: true, pacing: %v}}",
				api, map[bool]string{true: "{}", false: "off"}[estimated]), func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			c.State = t.TempDir()
			d, err := New(c, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			p, err := d.plan(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.abandon(); err != nil {
				t.Error(err)
			}
			if !estimated {
				want = "[]"
			}
			if fmt.Sprint(got) != want {
				t.Errorf("%s, estimated %v: loaded %v, want %s", api, estimated, got, want)
			}
		}
	}
}
