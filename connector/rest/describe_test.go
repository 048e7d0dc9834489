package rest

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPlansAreReadableAndHoldNoSecret(t *testing.T) {
	archive := plans(t)
	for name, src := range map[string]string{
		"everything": everything,
		"least":      least,
		"worrying": `
connection: worrying
provider:
  base_url: http://api.example.com
  auth: {query: {name: key, value: "${TOKEN}"}}
  ceiling: 90s
  pacing: {initial: 10s, jitter: 100s}
streams:
  - {name: a, list: {path: /a, query: {team: "t-${SECRET}"}}, records: .items, key: .id, paginate: {page: {param: page}}}
run: {max_requests: 10}
`,
		"oauth": `
connection: oauth
provider:
  base_url: http://127.0.0.1:8080
  auth: {oauth2: {token_url: "http://login.example.com/token", client_id: "${SECRET}", refresh_token: "${TOKEN}"}}
  ceiling: 7ms
streams:
  - {name: a, list: {path: /a}, records: .items, key: .id, paginate: {link: true}, incremental: {cursor: .at, param: since}}
run: {max_wall_clock: 1h30m}
`,
	} {
		plan := Describe(parse(t, src))
		var text strings.Builder
		if err := plan.Write(&text); err != nil {
			t.Fatal(err)
		}
		marshaled, err := json.MarshalIndent(plan, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String()+string(marshaled), canary) {
			t.Errorf("%s shows the secret:\n%s\n%s", name, text.String(), marshaled)
		}
		archive.Check(t, name+".txt", text.String())
		archive.Check(t, name+".json", string(marshaled)+"\n")
	}
}
