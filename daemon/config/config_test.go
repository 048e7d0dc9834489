package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/quota"
)

const canary = "canary-4f1d-do-not-tell"

func env(set map[string]string) func(string) string {
	return func(key string) string { return set[key] }
}

var withKey = env(map[string]string{"KEY": canary})

func hash(of string) string { return keys.Hash(of) }

func TestLeftOutTakesTheDefaults(t *testing.T) {
	c, err := config.Read("h.yaml", []byte("providers: {openai: {api: openai, pass_through: true}}"), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	p := c.Providers[0]
	if c.Listen != "127.0.0.1:8700" || c.State != ".headway" || c.Drain != 30*time.Second || c.MaxConnections != 4096 ||
		c.TLS != nil || !c.Open() || c.Quota != nil || c.Log.Level != slog.LevelInfo || c.Log.JSON || len(c.Warnings) > 0 {
		t.Errorf("got %+v", c)
	}
	if p.Description.Upstream.String() != "https://api.openai.com" || p.MaxWait != 15*time.Second || p.MaxBody != 32<<20 ||
		p.CallTimeout != 30*time.Minute || p.Retries != 0 || p.Quota != nil || p.RefuseUnknown || p.Key.Given() ||
		*p.Pacing != (config.Pacing{Initial: time.Second, Law: "cycle"}) {
		t.Errorf("got %+v, pacing %+v", p, p.Pacing)
	}
}

const everything = `
listen: 0.0.0.0:8701
insecure: true
currency: USD
webhooks: [{url: "https://hooks.example/headway", secret: "${KEY}", types: [circuit]}]
state: /var/lib/headway
store: postgres://headway@db.example/state?search_path=headway
fleet: valkeys://headway@valkey.example:6379/1?away=wait
forward:
  {listen: "[::1]:0", hosts: [api.example.com, "*.Acme.test"], profiles: [github], all: true, resend: [POST], pass_through: true, max_wait: 1m, max_outage: 2s, ceiling: 1s, env_file: e, authority: a}
drain: 5s
max_connections: 10
console: false
clients: {body_stall: 1m, body_rate: 100B, answer_stall: 2m}
keys:
  - {id: a, hash: "%s", tenant: t, agent: g, models: ["gpt-*"], providers: [x], uploads: true, priority: 1, priority_max: 2, expires: 2030-01-31}
  - {id: screen, hash: "sha256:3333333333333333333333333333333333333333333333333333333333333333", role: viewer}
  - {id: chief, hash: "sha256:4444444444444444444444444444444444444444444444444444444444444444", role: admin}
admin_keys: [{id: ops, hash: "%s"}]
cors: {origins: ["https://app.example", "*"], max_age: 1h}
providers:
  x:
    api: openai
    upstream: https://x.example/api/
    auth: {header: X-Acme, scheme: Token}
    charge: total
    request_headers: [X-Acme-*]
    limit_headers: {X-Acme-Left: X-Ratelimit-Remaining}
    addresses: [next]
    key: {env: KEY}
    call_timeout: 2h
    max_wait: 1s
    max_body: 2MiB
    retries: 2
    response_header_timeout: 1m
    idle_timeout: 2m
    dial_timeout: 3s
    tls_timeout: 4s
    body_timeout: 5m
    max_upload: 3GiB
    inject_usage: never
    fleet: wait
    tls: {ca: %s, cert: %s, key: %s}
    circuit: {ratio: 0.25, window: 20, minimum: 4, open_for: 5s, probes: 2, max: 9}
    pacing: {ceiling: 20ms, initial: 1s, law: aimd, max_in_flight: 3}
    quota: {log_level: debug, models: {m: {calls_per_minute: 5}, n: {charge: gemini}}}
    prices: {gpt-5: {input: 1.25, cached: 0.125, output: 10}, "gpt-*": {input: 2}}
    unknown_models: allow
quota: {global: {calls_per_minute: 9}}
collections: {dir: connections, schedule: "0 3 * * *", running: 5}
metrics: {otlp: {endpoint: "http://localhost:4318", headers: {X-Key: {env: KEY}}, interval: 5s, sample: 0.5}}
log: {level: warn, format: json, access: access.log}
`

// TestTheStoreIsADatabase: its password comes from elsewhere, and no error says it.
func TestTheStoreIsADatabase(t *testing.T) {
	const secret = "hunter2canary"
	for text, wrong := range map[string]string{
		"postgres://headway@db/state": "",
		"${KEY}":                      "no URL of a PostgreSQL database",
		"/var/lib/state.db":           "no URL of a PostgreSQL database",
		"postgres://headway:" + secret + "@db/state":   "a URL with a password in it",
		"postgres://headway:" + secret + "@db:x/state": "no URL of a PostgreSQL database",
	} {
		_, err := config.Read("h.yaml", []byte("store: "+text+"\nproviders: {x: {api: openai, key: {env: KEY}}}\n"), withKey)
		switch {
		case wrong == "" && err != nil, wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%s: %v, want %q", text, err, wrong)
		case err != nil && strings.Contains(err.Error(), secret):
			t.Errorf("%s: the error says the password: %v", text, err)
		}
	}
}

// TestAnUnknownFieldIsAnsweredByAllThatThereAre: also by those that the file does not set.
func TestAnUnknownFieldIsAnsweredByAllThatThereAre(t *testing.T) {
	provider := func(more string) string {
		return "providers: {x: {api: openai, upstream: \"https://x.test\", key: {env: KEY}" + more + "}}"
	}
	for text, want := range map[string][]string{
		provider(", zzz: 1"):                {"keys", "profile", "prices", "tls"},
		provider(", tls: {zzz: 1}"):         {"ca, cert, key"},
		provider(", prices: {m: {zzz: 1}}"): {"input, cached, output"},
	} {
		_, err := config.Read("h.yaml", []byte("currency: USD\n"+text), withKey)
		for _, field := range want {
			if err == nil || !regexp.MustCompile(`zzz: is not a field here: want one of .*\b`+field+`\b`).MatchString(err.Error()) {
				t.Errorf("%s: %v, want %s", text, err, field)
			}
		}
	}
}

// TestAFleetHasAnAddress: its password comes from elsewhere, and no error says it.
func TestAFleetHasAnAddress(t *testing.T) {
	const secret = "hunter2canary"
	provider := "providers: {x: {api: openai, key: {env: KEY}}}\n"
	for text, wrong := range map[string]string{
		"fleet: unix:///var/lib/headway/headway.sock\n" + provider:                 "",
		"fleet: valkeys://headway@valkey:6379/1?away=wait\n" + provider:            "",
		"fleet: none\n" + provider:                                                 "",
		"fleet: postgres://db\n" + provider:                                        "1:8: fleet: is not the address of a fleet's server",
		"fleet: valkey://valkey?away=never\n" + provider:                           "1:8: fleet: is not the address of a fleet's server",
		"fleet: valkey://valkey/one\n" + provider:                                  "1:8: fleet: is not the address of a fleet's server",
		"fleet: [unix:///x]\n" + provider:                                          "fleet: ",
		"fleet: ${KEY}\n" + provider:                                               "1:8: fleet: is not the address of a fleet's server",
		"fleet: valkey://headway:" + secret + "@valkey\n" + provider:               "1:8: fleet: has a password in it",
		"providers: {x: {api: openai, key: {env: KEY}, fleet: maybe}}":             "share, wait, none",
		"providers: {x: {api: openai, key: {env: KEY}, fleet: none}}":              "",
		"providers: {x: {api: openai, key: {env: KEY}, pacing: off, fleet: wait}}": "given beside pacing: off",
	} {
		_, err := config.Read("h.yaml", []byte(text), withKey)
		switch {
		case wrong == "" && err != nil, wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%s: %v, want %q", text, err, wrong)
		case err != nil && strings.Contains(err.Error(), secret):
			t.Errorf("%s: the error says the password: %v", text, err)
		}
	}
}

func TestEveryFieldCanBeSet(t *testing.T) {
	cert, key := pair(t)
	c, err := config.Read("h.yaml", fmt.Appendf(nil, everything, hash("1"), hash("2"), cert, cert, key), withKey)
	if err != nil {
		t.Fatal(err)
	}
	for f := range reflect.TypeFor[config.Config]().Fields() {
		if f.Name != "TLS" && f.Name != "Hosts" && reflect.ValueOf(c).FieldByIndex(f.Index).IsZero() {
			t.Errorf("%s is not set", f.Name)
		}
	}
	p := c.Providers[0]
	for f := range reflect.TypeFor[config.Provider]().Fields() {
		if f.Name != "PassThrough" && f.Name != "Keys" && f.Name != "RefuseUnknown" && f.Name != "Profile" && reflect.ValueOf(p).FieldByIndex(f.Index).IsZero() {
			t.Errorf("the provider's %s is not set", f.Name)
		}
	}
	if price, ok := p.Prices.Of("gpt-5"); c.Currency != "USD" || !ok || *price.Input != 1.25 || *price.Cached != 0.125 || *price.Output != 10 {
		t.Errorf("prices %+v in %q", p.Prices, c.Currency)
	}
	if price, ok := p.Prices.Of("gpt-4o"); !ok || *price.Input != 2 || price.Cached != nil || price.Output != nil {
		t.Errorf("the price of a glob: %+v", price)
	}
	if len(c.Webhooks) != 1 || c.Webhooks[0].URL != "https://hooks.example/headway" || c.Webhooks[0].Secret.Reveal() == "" || len(c.Webhooks[0].Types) != 1 {
		t.Errorf("webhooks %+v", c.Webhooks)
	}
	if want := (config.Forward{
		Listen: "[::1]:0", Rules: []config.ForwardRule{{Pattern: "api.example.com", Profile: "github"}, {Pattern: "*.acme.test", Profile: "github"}},
		All: true, PassThrough: true, Resend: []string{"POST"}, MaxWait: time.Minute, MaxOutage: 2 * time.Second, Ceiling: time.Second, EnvFile: "e", Authority: "a",
	}); !reflect.DeepEqual(*c.Forward, want) {
		t.Errorf("forward %+v", c.Forward)
	}
	k := c.Keys[0]
	if k.Tenant != "t" || k.Agent != "g" || len(k.Models) != 1 || len(k.Providers) != 1 || k.Priority != 1 || k.PriorityMax != 2 || k.Expires.Year() != 2030 || k.Role != "" || len(c.Keys) != 1 {
		t.Errorf("key %+v", k)
	}
	if len(c.ViewKeys) != 1 || c.ViewKeys[0].ID != "screen" || c.ViewKeys[0].Role != config.Viewer || len(c.AdminKeys) != 2 || c.AdminKeys[0].ID != "chief" || c.AdminKeys[0].Role != config.Admin {
		t.Errorf("keys with a role: %+v, %+v", c.AdminKeys, c.ViewKeys)
	}
	if c.AdminKeys[1].Role != config.Admin || c.Drain != 5*time.Second || c.Log.Level != slog.LevelWarn || !c.Log.JSON || c.Log.Access != "access.log" {
		t.Errorf("got %+v", c)
	}
	d := p.Description
	if d.Upstream.String() != "https://x.example/api" || d.Auth.Header != "X-Acme" || d.Auth.Scheme != "Token" || d.Charge != "total" ||
		len(d.RequestHeaders) != 1 || d.LimitHeaders["X-Acme-Left"] != "X-Ratelimit-Remaining" || len(d.Addresses) != 1 {
		t.Errorf("described %+v", d)
	}
	if p.Key.Reveal() != canary || p.MaxWait != time.Second || p.MaxBody != 2<<20 || p.CallTimeout != 2*time.Hour || p.Retries != 2 ||
		*p.Pacing != (config.Pacing{Ceiling: 20 * time.Millisecond, Initial: time.Second, Law: "aimd", MaxInFlight: 3}) {
		t.Errorf("got %+v", p)
	}
	if p.Circuit != (egress.Circuit{Config: breaker.Config{Ratio: 0.25, Window: 20, Minimum: 4, OpenFor: 5 * time.Second, Probes: 2}, Max: 9}) {
		t.Errorf("circuit %+v", p.Circuit)
	}
	if p.ResponseHeaderTimeout != time.Minute || p.IdleTimeout != 2*time.Minute || p.DialTimeout != 3*time.Second || p.TLSTimeout != 4*time.Second ||
		p.BodyTimeout != 5*time.Minute || p.MaxUpload != 3<<30 || p.InjectUsage != egress.InjectNever || p.TLS.Made.RootCAs == nil || len(p.TLS.Made.Certificates) != 1 {
		t.Errorf("timeouts and more: %+v", p)
	}
	if c.Clients != (config.Clients{BodyStall: time.Minute, BodyRate: 100, AnswerStall: 2 * time.Minute}) {
		t.Errorf("clients %+v", c.Clients)
	}
	if len(c.CORS.Origins) != 2 || c.CORS.MaxAge != time.Hour || !k.Uploads {
		t.Errorf("cors %+v, key %+v", c.CORS, k)
	}
	q := p.Quota.Quota
	if q.Models["m"].Charge != "total" || q.Models["n"].Charge != "gemini" || q.Models[config.OtherModels].Charge != "total" ||
		q.PermitTTLMS != (2*time.Hour).Milliseconds() || p.Quota.LogLevel != slog.LevelDebug {
		t.Errorf("budget %+v", q)
	}
	if c.Quota.Quota.Global.CallsPerMinute != 9 {
		t.Errorf("the quota at the top: %+v", c.Quota.Quota.Global)
	}
	if len(c.Warnings) != 2 || !strings.Contains(c.Warnings[1], "h.yaml:2:9: listen: is \"0.0.0.0:8701\" without tls") ||
		!strings.Contains(c.Warnings[0], "h.yaml:10:89: forward.all decrypts every connection") {
		t.Errorf("warnings %q", c.Warnings)
	}
}

func TestSeveralKeysOfAProvider(t *testing.T) {
	get := env(map[string]string{"A": "sk-a", "B": "sk-b"})
	c, err := config.Read("h.yaml", []byte("providers:\n  x:\n    api: openai\n    keys: [\"${A}\", {name: second, key: {env: B}}]\n"), get)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Providers[0]
	if len(p.Keys) != 2 || p.Keys[0].Name != "1" || p.Keys[0].Key.Reveal() != "sk-a" || p.Keys[1].Name != "second" || p.Keys[1].Key.Reveal() != "sk-b" || p.Key.Given() {
		t.Errorf("keys %+v", p.Keys)
	}
	if len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], "h.yaml:4:11: providers.x.keys: 2 keys share the work") {
		t.Errorf("warnings %q", c.Warnings)
	}
	c, err = config.Read("h.yaml", []byte("providers: {x: {api: openai, keys: [{env: B}]}}"), get)
	if err != nil || c.Providers[0].Key.Reveal() != "sk-b" || c.Providers[0].Keys != nil || len(c.Warnings) > 0 {
		t.Errorf("one of them: %+v, %q, %v", c.Providers[0], c.Warnings, err)
	}
}

func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	const head = "providers:\n  x:\n    api: openai\n    pass_through: true\n"
	public := "listen: 0.0.0.0:80\n" + head
	two := func(list string) string {
		return head + "admin_keys: [{id: ops, hash: \"" + hash("1") + "\"}]\n" + list
	}
	for name, c := range map[string]struct{ file, want string }{
		"empty":               {"", `h.yaml: is empty: it needs keys such as listen and providers`},
		"not YAML":            {"providers: {\n", `h.yaml:1:12: is not valid YAML here: could not find flow mapping end token '}'`},
		"a list":              {"- a\n", `h.yaml:1:1: is a list; want a mapping with keys such as listen and providers`},
		"nothing to do":       {"listen: 127.0.0.1:1\n", `providers: is missing; want a mapping with at least one provider`},
		"unknown key":         {head + "    max_wiat: 5s\n", `h.yaml:5:5: providers.x.max_wiat: is not a field here: did you mean max_wait?`},
		"unknown and far":     {head + "    zzz: 5s\n", `providers.x.zzz: is not a field here: want one of api,`},
		"given twice":         {head + "listen: a\nlisten: b\n", `h.yaml:6:1: listen: is set twice, first at line 5: remove one`},
		"no api":              {"providers: {x: {pass_through: true}}", `providers.x.api: is missing; want one of openai, azure-openai, anthropic, gemini, http`},
		"unknown api":         {"providers: {x: {api: opneai, pass_through: true}}", `providers.x.api: is "opneai"; want one of openai,`},
		"no upstream":         {"providers: {x: {api: http, pass_through: true}}", `providers.x.upstream: is missing; want the http or https URL`},
		"upstream relative":   {head + "    upstream: api.example\n", `h.yaml:5:15: providers.x.upstream: is a URL that cannot be used; want an absolute one, with scheme http or https, such a`},
		"upstream ftp":        {head + "    upstream: ftp://h\n", `h.yaml:5:15: providers.x.upstream: is a URL that cannot be used; want an absolute one, with scheme http or https, such a`},
		"upstream with user":  {head + "    upstream: https://u:" + canary + "@h/\n", `h.yaml:5:15: providers.x.upstream: is a URL that cannot be used; want one without user and password: a credential does n`},
		"upstream with query": {head + "    upstream: https://h/?key=" + canary + "\n", `h.yaml:5:15: providers.x.upstream: is a URL that cannot be used; want one without query and fragment`},
		"upstream without":    {head + "    upstream: https:///v1\n", `want one with a host`},
		"name with capitals":  {"providers: {X: {}}", `providers.X: is not a name for a path; want 1 to 64 of a-z`},
		"reserved name":       {"providers: {v1: {}}", `providers.v1: is taken by the daemon itself`},
		"reserved budget":     {"providers: {default: {}}", `providers.default: is taken by the daemon itself`},
		"no key":              {"providers: {x: {api: openai}}", `h.yaml:1:16: providers.x.key: is missing; want ${NAME} or ${file:PATH}; pass_through: true passes on what clients presen`},
		"key twice":           {head + "    key: {env: KEY}\n", `providers.x.key: is given beside pass_through`},
		"keys and key":        {strings.Replace(head, "pass_through: true", "key: {env: KEY}\n    keys: [{env: KEY}]", 1), `h.yaml:5:11: providers.x.keys: is given beside key; want one of both`},
		"keys passed through": {head + "    keys: [{env: KEY}]\n", `providers.x.keys: is given beside pass_through; want one of both`},
		"no keys":             {"providers: {x: {api: openai, keys: []}}", `h.yaml:1:36: providers.x.keys: is empty; want at least one of ${NAME}, ${file:PATH} or {name: NAME, key: ${NAME}}`},
		"keys not in a list":  {"providers: {x: {api: openai, keys: yes}}", `h.yaml:1:36: providers.x.keys: is "yes"; want a list`},
		"key of keys inline":  {"providers: {x: {api: openai, keys: [{env: KEY}, " + canary + "]}}", `h.yaml:1:49: providers.x.keys[1]: is written out; want a reference`},
		"name of a key":       {"providers: {x: {api: openai, keys: [{name: A b, key: {env: KEY}}]}}", `h.yaml:1:44: providers.x.keys[0].name: is "A b"; want 1 to 64 of a-z, 0-9 and -`},
		"key of keys missing": {"providers: {x: {api: openai, keys: [{name: a}]}}", `providers.x.keys[0].key: is missing; want ${NAME} or ${file:PATH}`},
		"keys of one secret":  {"providers: {x: {api: openai, keys: [{env: KEY}, {file: /nope}, {env: KEY}]}}", `providers.x.keys[2]: has the secret of keys[0]; want another key`},
		"keys of one name":    {"providers: {x: {api: openai, keys: [{name: '2', key: {env: NOPE}}, {env: KEY}]}}", `providers.x.keys[1]: is named 2, as keys[0] is; want a name of its own`},
		"too many keys":       {"providers: {x: {api: openai, keys: [" + strings.Repeat("{env: KEY},", 101) + "]}}", `providers.x.keys: has 101 keys; want at most 100`},
		"unknown of a key":    {"providers: {x: {api: openai, keys: [{name: a, kee: b}]}}", `providers.x.keys[0].kee: is not a field here`},
		"key inline":          {"providers: {x: {api: openai, key: " + canary + "}}", `h.yaml:1:35: providers.x.key: is written out; want a reference such as ${NAME} or ${file:PATH}: a secret does not stand `},
		"key inline by value": {"providers: {x: {api: openai, key: {value: " + canary + "}}}", `h.yaml:1:36: providers.x.key.value: is not a field here: want one of env, file`},
		"key by both":         {"providers: {x: {api: openai, key: {env: KEY, file: b}}}", `h.yaml:1:35: providers.x.key: has env and file; want one of them`},
		"variable not set":    {"providers: {x: {api: openai, key: {env: NOPE}}}", `h.yaml:1:35: providers.x.key: needs the environment variable NOPE, which is not set`},
		"file not there":      {"providers: {x: {api: openai, key: {file: /nope}}}", `h.yaml:1:35: providers.x.key: is file "/nope", which cannot be used: no such file or directory; want a file that holds t`},
		"no unit":             {head + "    max_wait: 5\n", `h.yaml:5:15: providers.x.max_wait: is 5; want a duration with a unit, such as 250ms, 20s or 15m`},
		"too long":            {head + "    max_wait: 25h\n", `h.yaml:5:15: providers.x.max_wait: is "25h"; want from 1ms to 1h`},
		"size without unit":   {head + "    max_body: 5000\n", `providers.x.max_body: is 5000; want a size from 1KiB to 1GiB, with its unit`},
		"size too large":      {head + "    max_body: 99999999999GiB\n", `want a size from 1KiB to 1GiB`},
		"retries":             {head + "    retries: 11\n", `providers.x.retries: is 11; want a whole number from 0 to 10`},
		"pacing":              {head + "    pacing: slow\n", `providers.x.pacing: is "slow"; want off, or a mapping`},
		"law":                 {head + "    pacing: {law: newton}\n", `h.yaml:5:19: providers.x.pacing.law: is "newton"; want one of aimd, cycle`},
		"law that is gone":    {head + "    pacing: {law: envelope}\n", `h.yaml:5:19: providers.x.pacing.law: is "envelope"; want one of aimd, cycle (cycle has replaced envelope)`},
		"auth of two kinds":   {head + "    auth: {header: A, query: b}\n", `h.yaml:3:5: providers.x: is not described well: auth has both a query parameter "b" and a header, must have one`},
		"charge":              {head + "    charge: free\n    quota: {}\n", `providers.x.charge: is "free"; want the name of a charge rule`},
		"quota":               {head + "    quota: {global: {brust: 1}}\n", `h.yaml:5:22: providers.x.quota.global.brust: is not a field here: did you mean burst?`},
		"quota's bound":       {head + "    quota:\n      models:\n        m: {calls_per_minute: 2000000000}\n", `h.yaml:7:31: providers.x.quota.models.m.calls_per_minute: is 2000000000; want from 0 to 1000000000`},
		"timeout":             {head + "    idle_timeout: 0s\n", `h.yaml:5:19: providers.x.idle_timeout: is "0s"; want from 1ms to 24h`},
		"inject":              {head + "    inject_usage: yes\n", `providers.x.inject_usage: is "yes"; want one of auto, always, never`},
		"upstream tls":        {head + "    tls: {}\n", `providers.x.tls: is empty; want {ca: FILE}`},
		"upstream ca":         {head + "    tls: {ca: nowhere.pem}\n", `providers.x.tls.ca: is "nowhere.pem", which cannot be read`},
		"upstream cert alone": {head + "    tls: {cert: config.go}\n", `providers.x.tls.key: is missing`},
		"upstream ca none":    {head + "    tls: {ca: config.go}\n", `providers.x.tls.ca: is "config.go", in which there is no certificate`},
		"uploads of any key":  {head + "keys: [{id: a, hash: \"" + hash("1") + "\", uploads: true}]\n", `h.yaml:5:106: keys[0].uploads: is true; want it left out where the key has no models: any other key may upload without i`},
		"origins":             {head + "cors: {origins: [app.example]}\n", `cors.origins[0]: is "app.example"; want scheme and host`},
		"no origins":          {head + "cors: {}\n", `cors.origins: is empty`},
		"all origins":         {head + "cors: {origins: [\"*\"]}\n", `cors.origins[0]: is "*" without keys`},
		"circuit":             {head + "    circuit: on\n", `providers.x.circuit: is "on"; want off, or a mapping`},
		"circuit shape":       {head + "    circuit: {window: 4, minimum: 5}\n", `h.yaml:5:14: providers.x.circuit: is a shape that does not fit together; want minimum is 5, must be from 1 to the window`},
		"unknown models":      {head + "    unknown_models: allow\n", `h.yaml:5:21: providers.x.unknown_models: is "allow"; want it left out where there is no quota: then every model is serve`},
		"unknown models how":  {head + "    quota: {}\n    unknown_models: ask\n", `providers.x.unknown_models: is "ask"; want one of allow, refuse`},
		"address":             {"listen: 8700\n" + head, `h.yaml:1:9: listen: is 8700; want a text`},
		"no port":             {"listen: localhost\n" + head, `listen: is "localhost"; want HOST:PORT`},
		"public without keys": {public, `h.yaml:1:9: listen: is "0.0.0.0:80", which other machines can reach, without keys and without tls; want a loopback addre`},
		"public without tls":  {public, `h.yaml:1:9: listen: is "0.0.0.0:80", which other machines can reach, without keys and without tls; want a loopback addre`},
		"public by name":      {"listen: host.example:80\n" + head, `which other machines can reach, without keys`},
		"public, no admin":    {public + "keys: [{id: a, hash: \"" + hash("1") + "\"}]\n", `without admin_keys`},
		"hash":                {head + "keys: [{id: a, hash: md5}]\n", `h.yaml:5:8: keys[0]: is not a key; want one whose every field is good: hash begins with no known scheme`},
		"secret for a hash":   {head + "keys: [{id: a, hash: hw_" + canary + "}]\n", `keys[0]: is not a key; want one whose every field is good: hash is a key itself`},
		"no id":               {head + "keys: [{hash: \"" + hash("1") + "\"}]\n", `id is missing`},
		"id twice":            {head + "keys: [{id: a, hash: \"" + hash("1") + "\"}, {id: a, hash: \"" + hash("2") + "\"}]\n", `keys[1].id: is "a", which another key has too`},
		"admin and data key":  {two("keys: [{id: a, hash: \"" + strings.ToUpper(hash("1")[7:]) + "\"}]\n"), `keys[0]: is not a key`},
		"same secret":         {two("keys: [{id: a, hash: \"" + hash("1") + "\"}]\n"), `keys: is the hash of admin_keys "ops" again, for keys "a"; want a key of its own`},
		"expiry":              {head + "keys: [{id: a, hash: \"" + hash("1") + "\", expires: soon}]\n", `keys[0].expires: is "soon"; want a date`},
		"scope of an admin":   {head + "admin_keys: [{id: a, hash: \"" + hash("1") + "\", tenant: t}]\n", `h.yaml:5:103: admin_keys[0].tenant: is not a field here: want one of id, hash, expires`},
		"scope of a viewer":   {head + "keys: [{id: a, hash: \"" + hash("1") + "\", role: viewer, tenant: t}]\n", `keys[0].tenant: is not a field here: want one of role, id, hash, expires`},
		"role":                {head + "keys: [{id: a, hash: \"" + hash("1") + "\", role: root}]\n", `keys[0].role: is "root"; want one of viewer, operator, admin`},
		"two with a role":     {two("keys: [{id: ops, hash: \"" + hash("2") + "\", role: viewer}]\n"), `keys: is the id "ops" of two keys with a role; want an id of its own for each`},
		"public, viewer only": {public + "keys: [{id: a, hash: \"" + hash("1") + "\"}, {id: b, hash: \"" + hash("2") + "\", role: viewer}]\n", `without admin_keys`},
		"price":               {"currency: USD\n" + head + "    prices: {m: {input: -1}}\n", `providers.x.prices.m.input: is -1; want a number from 0 to 1e+06`},
		"price of what":       {"currency: USD\n" + head + "    prices: {m: {tokens: 1}}\n", `providers.x.prices.m.tokens: is not a field here`},
		"no price":            {"currency: USD\n" + head + "    prices: {m: {}}\n", `prices.m.input: is missing, as are cached and output`},
		"prices of a glob":    {"currency: USD\n" + head + "    prices: {\"[\": {input: 1}}\n", `is not the name of a model or a glob`},
		"no currency":         {head + "    prices: {m: {input: 1}}\n", `currency: is missing; want that of the prices, such as USD`},
		"currency":            {"currency: dollars\n" + head, `currency: is "dollars"; want three capital letters such as USD`},
		"forward nothing":     {"forward: {}\n", `h.yaml:1:10: forward.hosts: is missing; want the hosts to govern, such as [api.example.com], or profiles: [github]`},
		"forward a URL":       {"forward: {hosts: [a.test, 'https://b.test/']}\n", `h.yaml:1:10: forward.hosts[1]: is "https://b.test/"; want a name such as api.example.com`},
		"forward for all":     {"forward: {listen: '0.0.0.0:1', hosts: [a.test]}\n", `forward.listen: is "0.0.0.0:1"; want an address of this machine alone, such as 127.0.0.1:8701`},
		"forward anywhere":    {"forward: {listen: ':1', hosts: [a.test]}\n", `forward.listen: is ":1"; want an address of this machine alone`},
		"forward no profile":  {"forward: {profiles: [githbu]}\n", `forward.profiles[0]: is "githbu": `},
		"forward of whom":     {"forward: {hosts: [a.test], profiles: [github, slack]}\n", `forward.profiles: has 2 entries beside hosts; want at most one`},
		"forward a method":    {"forward: {hosts: [a.test], resend: [post]}\n", `forward.resend[0]: is "post"; want a method such as POST`},
		"forward no time":     {"forward: {hosts: [a.test], max_wait: 1ms}\n", `h.yaml:1:38: forward.max_wait: is "1ms"; want from 1s to 24h`},
		"forward unknown":     {"forward: {hosts: [a.test], host: b.test}\n", `forward.host: is not a field here: did you mean hosts?`},
		"webhook":             {head + "webhooks: [{url: 'ftp://h', secret: '${KEY}'}]\n", `webhooks[0].url: is a URL that cannot be used`},
		"webhook's types":     {head + "webhooks: [{url: 'http://h', secret: '${KEY}', types: [weather]}]\n", `webhooks[0].types[0]: is "weather"; want one of collection_rate, circuit,`},
		"webhook's secret":    {head + "webhooks: [{url: 'http://h', secret: " + canary + "}]\n", `webhooks[0].secret: is written out`},
		"half a certificate":  {head + "tls: {cert: /nope.pem}\n", `tls.key: is missing; want the name of a PEM file`},
		"no certificate":      {head + "tls: {cert: /nope.pem, key: /nope.key}\n", `tls.cert: is "/nope.pem", which cannot be read: no such file`},
		"hosts with keys":     {head + "hosts: [a]\nkeys: [{id: a, hash: \"" + hash("1") + "\"}]\n", `h.yaml:5:8: hosts: is a list; want it left out where there are keys: then any name will do`},
		"no collector":        {head + "metrics: {otlp: {}}\n", `metrics.otlp.endpoint: is missing`},
		"collector":           {head + "metrics: {otlp: {endpoint: 'http://u:" + canary + "@h'}}\n", `h.yaml:5:28: metrics.otlp.endpoint: is a URL that cannot be used; want one without user and password: a credential does `},
		"header inline":       {head + "metrics: {otlp: {endpoint: 'http://h', headers: {X: " + canary + "}}}\n", `metrics.otlp.headers.X: is written out`},
		"sample":              {head + "metrics: {otlp: {endpoint: 'http://h', sample: 2}}\n", `metrics.otlp.sample: is 2; want a number from 0 to 1`},
		"level":               {head + "log: {level: loud}\n", `log.level: is "loud"; want one of debug, info, warn, error`},
		"anchor":              {"providers: &a {x: 1}\n", `h.yaml:1:12: providers: is an anchor or alias, which configuration files do not have: write the value out`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := config.Read("h.yaml", []byte(c.file), withKey)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v\nwant %s", err, c.want)
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("a secret is in the error: %v", err)
			}
			if !reflect.ValueOf(got).IsZero() {
				t.Errorf("a configuration in spite of an error: %+v", got)
			}
			if _, ok := errors.AsType[config.Problem](err); !ok {
				t.Errorf("%v carries no Problem", err)
			}
		})
	}
}

func TestAllMistakesAreNamedInTheOrderOfTheFile(t *testing.T) {
	_, err := config.Read("h.yaml", []byte("drain: 1\nproviders:\n  x:\n    api: openai\n    key: {env: NOPE}\n    quota: {scale_max: 900}\nlog: 5\n"), env(nil))
	want := []string{"h.yaml:1:8: drain", "h.yaml:5:10: providers.x.key", "h.yaml:6:24: providers.x.quota.scale_max", "h.yaml:7:6: log: is a number"}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("got\n%v", err)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, want[i]) {
			t.Errorf("line %d is %q, want %q", i, line, want[i])
		}
	}
}

func TestWhatMachinesCanReachNeedsKeysAndTLS(t *testing.T) {
	dir := t.TempDir()
	pem := filepath.Join(dir, "a.pem")
	if err := os.WriteFile(pem, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const head = "providers: {x: {api: openai, pass_through: true}}\n"
	both := "keys: [{id: a, hash: \"" + hash("1") + "\"}]\nadmin_keys: [{id: b, hash: \"" + hash("2") + "\"}]\n"
	for _, c := range []struct {
		file string
		ok   bool
	}{
		{"listen: '[::1]:80'\n", true}, {"listen: localhost:80\n", true}, {"listen: ':80'\n", true}, {"listen: 127.9.9.9:80\n", true},
		{"listen: 10.0.0.1:80\n", false}, {"listen: '[::]:80'\n", false}, {"listen: '0.0.0.0:80'\n" + both, false},
		{"listen: 0.0.0.0:80\ninsecure: true\n", false},
		{"listen: 0.0.0.0:80\ninsecure: true\n" + both, true},
		{"listen: 0.0.0.0:80\ntls: {cert: " + pem + ", key: " + pem + "}\n" + both, true},
	} {
		got, err := config.Read("h.yaml", []byte(c.file+head), env(nil))
		if (err == nil) != c.ok {
			t.Errorf("%s: error %v", c.file, err)
		}
		if err == nil && !strings.Contains(c.file, "keys") {
			if err := got.ListenOn("0.0.0.0:1"); err == nil || !strings.Contains(err.Error(), "command line: listen: is \"0.0.0.0:1\", which other machines can reach") {
				t.Errorf("the command line opened it: %v", err)
			}
		}
	}
}

func TestSecretsOfFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ path, want, warning string }{
		{write("good", canary+"\r\n", 0o600), "", ""},
		{write("open", canary, 0o644), "", "every user of this machine can read file"},
		{write("empty", "\n", 0o600), "it is empty", ""},
		{write("long", strings.Repeat("x", 70_000), 0o600), "it has 70000 bytes, at most 65536 are read", ""},
		{write("lines", canary+"\nmore", 0o600), "a line break or another control character", ""},
		{os.DevNull, "it is not a regular file", ""},
		{dir, "it is not a regular file", ""},
	} {
		got, err := config.Read("h.yaml", []byte("providers: {x: {api: openai, key: {file: "+c.path+"}}}"), env(nil))
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), canary) {
				t.Errorf("%s: error %v, want %s", filepath.Base(c.path), err, c.want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		p := got.Providers[0]
		if p.Key.Reveal() != canary || !strings.Contains(strings.Join(got.Warnings, ""), c.warning) || len(got.Warnings) != min(1, len(c.warning)) {
			t.Errorf("%s: warnings %q", filepath.Base(c.path), got.Warnings)
		}
		text, _ := p.Key.MarshalText()
		for _, said := range []string{fmt.Sprint(p), fmt.Sprintf("%+v", got), fmt.Sprintf("%#v", p.Key), string(text), p.Key.String()} {
			if strings.Contains(said, canary) {
				t.Errorf("it prints the secret: %s", said)
			}
		}
	}
}

func TestTheEnvironmentGoesOverTheBudgets(t *testing.T) {
	set := env(map[string]string{"LLM_GLOBAL_MAX_CALLS_PER_MINUTE": "120", "LLM_GLOBAL_BURST": "7"})
	want := quota.Limits{CallsPerMinute: 120, Burst: 7}
	spread := want // a provider's own
	spread.Spread = true
	read := func(file string) config.Config {
		c, err := config.Read("h.yaml", []byte(file), set)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	one := read("providers: {x: {api: openai, pass_through: true}}")
	if q := one.Providers[0].Quota; q == nil || q.Quota.Global != spread || q.Quota.Models[config.OtherModels].Charge != "openai" || one.Quota != nil {
		t.Errorf("the only provider: %+v", q)
	}
	both := read("providers: {x: {api: openai, pass_through: true, quota: {global: {calls_per_minute: 5}}}}\nquota: {}")
	if both.Providers[0].Quota.Quota.Global != spread || both.Quota.Quota.Global != want {
		t.Errorf("both: %+v, %+v", both.Providers[0].Quota.Quota.Global, both.Quota.Quota.Global)
	}
	two := read("providers: {x: {api: openai, pass_through: true}, y: {api: gemini, pass_through: true}}")
	if two.Providers[0].Quota != nil || two.Providers[1].Quota != nil || len(two.Warnings) != 1 || !strings.Contains(two.Warnings[0], "LLM_GLOBAL_BURST: not used") {
		t.Errorf("two: %q", two.Warnings)
	}
	_, err := config.Read("h.yaml", []byte("providers: {x: {api: openai, pass_through: true}}"), env(map[string]string{"LLM_GLOBAL_BURST": "many"}))
	if err == nil || !strings.Contains(err.Error(), `environment: LLM_GLOBAL_BURST: is "many"; want a whole number above 0`) {
		t.Errorf("error %v", err)
	}
}

func TestAProviderHasTheProfileOfItsHost(t *testing.T) {
	for text, want := range map[string]string{
		"api: http, upstream: https://api.github.com":                      "github",
		"api: http, upstream: https://api.github.com, profile: none":       "",
		"api: http, upstream: https://api.github.com, pacing: off":         "",
		"api: http, upstream: https://acme.atlassian.net/rest":             "atlassian",
		"api: http, upstream: https://ghe.example/api/v3, profile: github": "github",
		"api: http, upstream: https://api.example":                         "",
		"api: openai": "",
		"api: http, upstream: https://api.example, profile: gihtub":             "ERROR h.yaml:1:88: providers.x.profile: is \"gihtub\": no profile is called \"gihtub\": did you mean github?",
		"api: openai, profile: openai":                                          "ERROR providers.x.profile: is given for api openai; want api http",
		"api: http, upstream: https://api.example, profile: slack, pacing: off": "ERROR providers.x.profile: is given beside pacing: off; want one of both",
	} {
		c, err := config.Read("h.yaml", []byte("providers: {x: {pass_through: true, "+text+"}}"), env(nil))
		got := ""
		switch {
		case err != nil:
			got = "ERROR " + err.Error()
		case c.Providers[0].Profile != nil:
			got = c.Providers[0].Profile.Name()
		}
		if message, failing := strings.CutPrefix(want, "ERROR "); failing && err != nil && strings.Contains(got, message) {
			continue
		}
		if got != want {
			t.Errorf("%s: profile %q, want %q", text, got, want)
		}
	}
}

func TestModelsThatAreNotListed(t *testing.T) {
	for quotaText, refuse := range map[string]bool{
		"{}": false, "{models: {m: }}": true, "{models: {m: , other: {calls_per_minute: 1}}}": false, "{models: {other: }}": false,
	} {
		c, err := config.Read("h.yaml", []byte("providers: {x: {api: gemini, pass_through: true, quota: "+quotaText+"}}"), env(nil))
		if err != nil {
			t.Fatal(err)
		}
		p := c.Providers[0]
		other, listed := p.Quota.Quota.Models[config.OtherModels]
		if p.RefuseUnknown != refuse || listed == refuse || listed && other.Charge != "gemini" {
			t.Errorf("%s: refused %v, entry %v %+v", quotaText, p.RefuseUnknown, listed, other)
		}
	}
}

func TestTheExampleIsServed(t *testing.T) {
	path := filepath.Join("..", "..", "examples", "serve", "headway.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := env(map[string]string{"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b", "GROQ_API_KEY": "c", "CRM_TOKEN": "d"})
	c, err := config.Read(path, data, all)
	if err != nil || len(c.Providers) != 5 || len(c.Warnings) != 0 {
		t.Fatalf("%d providers, %q, %v", len(c.Providers), c.Warnings, err)
	}
}

func FuzzRead(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte(fmt.Sprintf(everything, hash("1"), hash("2"), "cert.pem", "cert.pem", "key.pem")))
	f.Add([]byte("providers: {x: {api: openai, key: {file: /dev/zero}}}\n"))
	f.Add([]byte("keys: [{id: \"a\\nb\", hash: x}]\nproviders: {}\n"))
	f.Add([]byte("tls: {cert: [], key: {a: b}}\nlog: off\nlisten: ''\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Read("h.yaml", data, withKey)
		if err == nil {
			if err := c.ListenOn("127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(fmt.Sprintf("%+v", c), canary) {
				t.Fatal("it prints a secret")
			}
			return
		}
		p, ok := errors.AsType[config.Problem](err)
		if !ok {
			t.Fatalf("%v names no place", err)
		}
		if n := strings.Count(p.Error(), "\n"); n > 0 {
			t.Fatalf("one problem on %d lines: %q", n+1, p.Error())
		}
		if strings.Contains(err.Error(), canary) {
			t.Fatalf("a secret is in the error: %v", err)
		}
	})
}

// TestSpreadIsTheOwnersToChoose: limits by the minute are spread unless the file
// says otherwise.
func TestSpreadIsTheOwnersToChoose(t *testing.T) {
	read := func(quota string) map[string]bool {
		t.Helper()
		c, err := config.Read("h.yaml", []byte("providers: {x: {api: openai, pass_through: true, quota: "+quota+"}}"), env(nil))
		if err != nil {
			t.Fatal(err)
		}
		q := c.Providers[0].Quota.Quota
		got := map[string]bool{"": q.Global.Spread}
		for name, m := range q.Models {
			got[name] = m.Spread
		}
		return got
	}
	for quota, want := range map[string]map[string]bool{
		"{}": {"": true, config.OtherModels: false},
		"{global: {calls_per_minute: 60}, models: {m: {calls_per_minute: 6}}}":                                                                      {"": true, "m": true},
		"{global: {calls_per_minute: 60, spread: false}, models: {m: {calls_per_minute: 6, spread: false}}}":                                        {"": false, "m": false},
		"{global: {calls_per_minute: 60, spread: false}, models: {m: {calls_per_minute: 6}}}":                                                       {"": false, "m": true},
		"{global: {calls_per_minute: 60, spread: true}, models: {m: {calls_per_minute: 6, spread: true}, n: {calls_per_minute: 6, spread: false}}}": {"": true, "m": true, "n": false},
	} {
		if got := read(quota); !maps.Equal(want, got) {
			t.Errorf("%s: %v, want %v", quota, got, want)
		}
	}
}

// pair makes a certificate that signs itself, and gives the names of its files.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		name = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
}

func TestMaxBodyBindsUploadsToo(t *testing.T) {
	for more, want := range map[string][2]int64{
		"": {32 << 20, 512 << 20}, "max_body: 1MiB": {1 << 20, 1 << 20}, "max_body: 1MiB, max_upload: 2MiB": {1 << 20, 2 << 20}, "max_upload: 1GiB": {32 << 20, 1 << 30},
	} {
		c, err := config.Read("h.yaml", fmt.Appendf(nil, "providers: {x: {api: openai, pass_through: true, %s}}", more), env(nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int64{c.Providers[0].MaxBody, c.Providers[0].MaxUpload}; got != want {
			t.Errorf("%s: %v, want %v", more, got, want)
		}
	}
}

func TestHeadersOfACollectorMayHaveSpaces(t *testing.T) {
	for value, want := range map[string]string{
		"Bearer abc": "Bearer abc", "Bearer%20abc": "Bearer abc", "abc": "abc", "100%": "100%", "a%20b%zz": "a%20b%zz", "Basic dXNlcjpwYXNz==": "Basic dXNlcjpwYXNz==",
		" Bearer abc": "", "Bearer abc ": "", "Bearer\tabc": "", "Bearer abc\r\nX: y": "", "Bearer%20abc%0D%0AX:y": "",
	} {
		c, err := config.Read("h.yaml", []byte("quota: {}\nmetrics: {otlp: {endpoint: \"http://localhost:4318\", headers: {Authorization: {env: KEY}}}}"), env(map[string]string{"KEY": value}))
		if (want == "") != (err != nil) {
			t.Errorf("%q: %v", value, err)
		}
		if err != nil {
			if strings.Contains(err.Error(), "abc") {
				t.Errorf("the secret is in %v", err)
			}
			continue
		}
		if got := c.Telemetry.Headers["Authorization"].Reveal(); got != want {
			t.Errorf("%q is read as %q, want %q", value, got, want)
		}
	}
	if _, err := config.Read("h.yaml", []byte("providers: {x: {api: openai, key: {env: KEY}}}"), env(map[string]string{"KEY": "a b"})); err == nil {
		t.Error("a provider's key has a space")
	}
}

func TestCheckFindsWhatIsOfNoUse(t *testing.T) {
	text := fmt.Sprintf(`
providers: {x: {api: openai, pass_through: true}}
keys:
  - {id: old, hash: "%s", expires: 2020-01-31}
  - {id: lost, hash: "%s", providers: [x, nowhere, "y*"]}
  - {id: good, hash: "%s", providers: ["*"], expires: 2030-01-31}
`, hash("1"), hash("2"), hash("3"))
	c, err := config.Read("h.yaml", []byte(text), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Check("h.yaml", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	want := `h.yaml: keys[0].expires: is 2020-01-31T00:00:00Z, which is past: the key "old" lets nobody in; want later, or the key deleted
h.yaml: keys[1].providers[1]: is "nowhere", which is not a provider here; want the name of a provider of this file, or a pattern of one
h.yaml: keys[1].providers[2]: is "y*", which is not a provider here; want the name of a provider of this file, or a pattern of one`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	c.Keys = c.Keys[2:]
	if err := c.Check("h.yaml", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Error(err)
	}
}

func ExampleRead() {
	file := `
providers:
  openai:
    api: openai
    key: sk-123
    max_wiat: 15s
`
	_, err := config.Read("headway.yaml", []byte(file), os.Getenv)
	fmt.Println(err)
	// Output:
	// headway.yaml:5:10: providers.openai.key: is written out; want a reference such as ${NAME} or ${file:PATH}: a secret does not stand in the file
	// headway.yaml:6:5: providers.openai.max_wiat: is not a field here: did you mean max_wait?
}
