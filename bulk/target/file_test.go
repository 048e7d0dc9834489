package target_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/bulk/target"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/reason"
)

const canary = "s3cr3t-canary"

func env(name string) (string, bool) {
	v, ok := map[string]string{"TOKEN": canary, "OTHER": canary + "2", "BAD": "a\nb", "EMPTY": ""}[name]
	return v, ok
}

func parse(t testing.TB, text string) *target.Config {
	t.Helper()
	c, err := target.Parse("target.yaml", []byte(text), env)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAWholeFile(t *testing.T) {
	c := parse(t, `
target: crm
timeout: 90s
headers: {X-Tenant: "t-1"}
identities:
  - name: ann
    auth: {bearer: "${TOKEN}"}
  - name: bob
    auth: {header: {name: x-api-key, value: "${OTHER}"}}
dataverse:
  url: https://contoso.crm.dynamics.com
  table: contacts
  type: contact
  operation: upsert
  key: [external_id]
load:
  batch_rows: 500
  target_time: 20s
  stall_timeout: 30m
  max_rejects: 10
  attempts: 3
  parallelism:
    max: 10
    min: 2
    initial_factor: 1
    busy_budget: 1200s
    busy_window: 300s
`)
	if c.Name != "crm" || c.Timeout != 90*time.Second || c.Headers.Get("X-Tenant") != "t-1" || len(c.Identities) != 2 ||
		c.Identities[0].Auth.Value.Reveal() != canary || c.Identities[1].Auth.Header != "X-Api-Key" {
		t.Errorf("%+v", c)
	}
	p := c.Params
	if p.BatchRows != 500 || p.TargetTime != 20*time.Second || p.StallTimeout != 30*time.Minute || p.MaxRejects != 10 || p.Backoff.Attempts != 3 ||
		p.Law.Max != 10 || p.Law.Min != 2 || p.Law.InitialFactor != 1 || p.Law.BusyBudget != 1200*time.Second || p.Law.BusyWindow != 300*time.Second {
		t.Errorf("%+v", p)
	}
	traits := c.Target(nil).Traits()
	if diff := cmp.Diff([]string{"ann", "bob"}, traits.Identities); diff != "" || traits.Name != "upsert contacts in contoso.crm.dynamics.com by external_id" ||
		traits.MaxRows != 1000 || traits.Resend != dispatch.ResendAny {
		t.Errorf("%+v %s", traits, diff)
	}
	if text := fmt.Sprintf("%v %+v %#v", c, c.Identities, c); strings.Contains(text, canary) {
		t.Error("a secret is printed")
	}
}

func TestProblemsHaveLines(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"syntax", "target: [", "t.yaml:1:9: "},
		{"an unknown field", "target: a\nhttp:\n  url: https://x.y\n  verb: POST\n", "t.yaml:4:3: http.verb: is not a field here: want one of single, max_rows,"},
		{"neither kind", "target: a\n", "t.yaml:1:1: describes neither http nor dataverse; want one of them"},
		{"no name", "target: a b\nhttp: {url: \"https://x.y\"}\n", `t.yaml:1:9: target: is "a b"; want a name`},
		{"a secret that is written out", "target: a\nauth:\n  bearer: " + canary + "\nhttp: {url: \"https://x.y\"}\n", "t.yaml:3:11: auth.bearer: is written out; want a reference such as"},
		{"a variable that is not set", "target: a\nauth:\n  bearer: ${NOPE}\nhttp: {url: \"https://x.y\"}\n", "t.yaml:3:11: auth.bearer: needs the environment variable NOPE, which is not set"},
		{"one that is empty", "target: a\nauth:\n  bearer: ${EMPTY}\nhttp: {url: \"https://x.y\"}\n", `is "${EMPTY}", which is set but empty`},
		{"one that no header can hold", "target: a\nauth:\n  bearer: ${BAD}\nhttp: {url: \"https://x.y\"}\n", `auth.bearer: is "${BAD}", whose value has a line break`},
		{"a file that is not there", "target: a\nauth:\n  bearer: {file: /nowhere}\nhttp: {url: \"https://x.y\"}\n", `auth.bearer: is file "/nowhere", which cannot be used: no such file`},
		{"two credentials", "target: a\nauth: {bearer: \"${TOKEN}\", basic: {username: u, password: \"${TOKEN}\"}}\nhttp: {url: \"https://x.y\"}\n", "auth: has 2 kinds of credential"},
		{"a header without a name", "target: a\nauth: {header: {value: \"${TOKEN}\"}}\nhttp: {url: \"https://x.y\"}\n", "auth.header.name: is missing"},
		{"a password without a user", "target: a\nauth: {basic: {password: \"${TOKEN}\"}}\nhttp: {url: \"https://x.y\"}\n", "auth.basic.username: is missing"},
		{"an unknown client", "target: a\nauth: {oauth2: {client_secret: \"${TOKEN}\"}}\nhttp: {url: \"https://x.y\"}\n", "auth.oauth2.client_id: is missing"},
		{"a credential as a header", "target: a\nheaders:\n  authorization: x\nhttp: {url: \"https://x.y\"}\n", "t.yaml:3:18: headers.authorization: is a credential: put it under auth"},
		{"identities beside auth", "target: a\nauth: {bearer: \"${TOKEN}\"}\nidentities: [{name: x}]\nhttp: {url: \"https://x.y\"}\n", "auth: stands beside identities"},
		{"a name twice", "target: a\nidentities: [{name: x}, {name: x}]\nhttp: {url: \"https://x.y\"}\n", `identities[1].name: is "x", which another identity has`},
		{"no URL", "target: a\nhttp: {url: ftp://x}\n", "http.url: is not a URL"},
		{"a login in it", "target: a\nhttp: {url: \"https://u:p@x.y\"}\n", "http.url: holds a login"},
		{"a field as the host", "target: a\nhttp: {url: \"https://{tenant}.y/z\", single: true}\n", "http.url: has a field of the row as its host"},
		{"a field in the URL of many rows", "target: a\nhttp: {url: \"https://x.y/{id}\"}\n", "http.url: has a field of the row"},
		{"GET", "target: a\nhttp: {url: \"https://x.y\", method: GET}\n", `http.method: is "GET"; want one of POST, PUT, PATCH`},
		{"a body without rows", "target: a\nhttp:\n  url: https://x.y\n  body: {a: 1}\n", "t.yaml:4:9: http.body: has 0 places for rows"},
		{"one for a row", "target: a\nhttp:\n  url: https://x.y\n  body: {a: $row}\n", "http.body: has $row, and each request carries many"},
		{"no jq", "target: a\nhttp:\n  url: https://x.y\n  answer:\n    success: \".a ==\"\n", "t.yaml:5:14: http.answer.success: is not a jq expression"},
		{"a key without a header", "target: a\nhttp: {url: \"https://x.y\", resend: with_key}\n", "http.key_header: is missing"},
		{"another resend", "target: a\nhttp: {url: \"https://x.y\", resend: twice}\n", `http.resend: is "twice"; want one of never`},
		{"a status to divide on", "target: a\nhttp: {url: \"https://x.y\", answer: {divide: [500]}}\n", "http.answer.divide[0]: is 500; want a status from 400 to 499"},
		{"a duration", "target: a\ntimeout: 3\nhttp: {url: \"https://x.y\"}\n", "timeout: is 3; want a duration with a unit"},
		{"a stall timeout by both names", "target: a\nload: {stall_timeout: 1m, patience: 1m}\nhttp: {url: \"https://x.y\"}\n", "load.patience: is the former name of stall_timeout"},
		{"a number of the load", "target: a\nload: {batch_rows: -1}\nhttp: {url: \"https://x.y\"}\n", "load.batch_rows: is -1; want a whole number from 0 to 1073741824"},
		{"an operation", "target: a\ndataverse: {url: \"https://x.y\", table: c, type: c, operation: delete}\n", `dataverse.operation: is "delete"`},
		{"a table", "target: a\ndataverse: {url: \"https://x.y\", table: \"c(1)\", type: c, operation: create}\n", `dataverse.table: is "c(1)"`},
		{"a path", "target: a\ndataverse: {url: \"https://x.y/api\", table: c, type: c, operation: create}\n", `dataverse.url: has the path "/api"`},
		{"a key to create", "target: a\ndataverse: {url: \"https://x.y\", table: c, type: c, operation: create, key: [x]}\n", "dataverse.key: is for update and upsert"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := target.Parse("t.yaml", []byte(tt.text), env)
			if _, ok := errors.AsType[*target.FileError](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("the error holds a secret: %v", err)
			}
		})
	}
}

func TestEveryProblemIsReported(t *testing.T) {
	_, err := target.Parse("t.yaml", []byte("target: a b\ntimeout: x\nhttp: {url: nope, method: GET}\n"), env)
	e, ok := errors.AsType[*target.FileError](err)
	if !ok || len(e.Problems) != 4 || e.Problems[0].Line != 1 || e.Problems[3].Line != 3 {
		t.Errorf("%v", err)
	}
}

func TestASecretFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := parse(t, fmt.Sprintf("target: a\nauth: {bearer: {file: %q}}\nhttp: {url: \"https://x.y\"}\n", path))
	if c.Identities[0].Auth.Value.Reveal() != canary {
		t.Errorf("the secret is %q", c.Identities[0].Auth.Value.Reveal())
	}
	if _, err := target.Load(filepath.Join(t.TempDir(), "none.yaml"), env); err == nil || !strings.Contains(err.Error(), "none.yaml: cannot be read") {
		t.Errorf("%v", err)
	}
}

func FuzzParse(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte("target: a\nhttp: {url: \"https://x.y/{id}\", single: true, body: {a: [$row, 1]}}\n"))
	f.Add([]byte("target: a\nauth: {oauth2: {token_url: \"https://x\", client_id: i, client_secret: \"${TOKEN}\"}}\ndataverse: {url: \"https://x.y\", table: c, type: c, operation: create}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := target.Parse("t.yaml", text, env)
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
		if err != nil && strings.Contains(err.Error(), canary) && !strings.Contains(string(text), canary) {
			t.Errorf("the error holds a secret: %v", err)
		}
	})
}

func TestAStallTimeoutByItsFormerName(t *testing.T) {
	c, err := target.Parse("t.yaml", []byte("target: a\nload: {patience: 30m}\nhttp: {url: \"https://x.y\"}\n"), env)
	if err != nil || c.Params.StallTimeout != 30*time.Minute {
		t.Errorf("got %+v, %v", c, err)
	}
}

// A server that repeats the request in its error, as debug pages do, does not
// bring a credential into the reject file.
func TestAnEchoedCredentialIsNotKept(t *testing.T) {
	basic := base64.StdEncoding.EncodeToString([]byte("u:" + canary))
	echo := func(format string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprintf(w, format, fmt.Sprint(r.Header))
		}
	}
	for _, tt := range []struct{ name, auth string }{
		{"bearer", "auth: {bearer: \"${TOKEN}\"}"},
		{"basic", "auth: {basic: {username: u, password: \"${TOKEN}\"}}"},
		{"a header", "auth: {header: {name: x-key, value: \"pre ${TOKEN}\"}}"},
		{"a header beside", "headers: {x-tenant: \"${TOKEN}\"}"},
	} {
		for format, answer := range map[string]string{"you sent %s": "", `{"error":{"message":%q}}`: "  answer: {message: .error.message}\n"} {
			t.Run(tt.name+answer, func(t *testing.T) {
				url, got := serve(t, echo(format))
				o := send(t, "target: a\n"+tt.auth+"\nhttp:\n  url: URL\n"+answer, url, batch(`{"a":1}`))
				if sent := fmt.Sprint(got()[0].header); !strings.Contains(sent, canary) && !strings.Contains(sent, basic) {
					t.Fatalf("no credential was sent: %s", sent)
				}
				kept := fmt.Sprint(o.Problems)
				if strings.Contains(kept, canary) || strings.Contains(kept, basic) || !strings.Contains(kept, "(credential)") {
					t.Errorf("kept %s", kept)
				}
			})
		}
	}
}

// A few letters are not a secret, and in many a word.
func TestAShortCredentialLeavesWordsAsTheyAre(t *testing.T) {
	url, _ := serve(t, reply(http.StatusUnprocessableEntity, "a banana"))
	c, err := target.Parse("target.yaml", []byte("target: a\nauth: {bearer: \"${TOKEN}\"}\nhttp: {url: \""+url+"\"}\n"), func(string) (string, bool) { return "ana", true })
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	if o := c.Target(client).Send(t.Context(), 0, batch(`{}`)); o.Problems[0].Message != "a banana" {
		t.Errorf("kept %q", o.Problems[0].Message)
	}
}

// What stands beside a row in the reject file has an end, so that the file can be
// read again.
func TestAServersWordsAreBounded(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	url, _ := serve(t, reply(200, fmt.Sprintf(`{"results":[{"ok":false,"error":{"code":%q,"text":%q}}]}`, long, long)))
	o := send(t, results, url, batch(`{}`))
	if len(o.Rows) != 1 || o.Rows[0] != dispatch.Refused || len(o.Problems[0].Message) > 4<<10 || len(o.Problems[0].Code) > 1<<10 {
		t.Errorf("%d verdicts, a code of %d bytes, a message of %d", len(o.Rows), len(o.Problems[0].Code), len(o.Problems[0].Message))
	}
	if !strings.HasPrefix(o.Problems[0].Message, "éé") || !strings.HasSuffix(o.Problems[0].Message, "é…") {
		t.Errorf("the message ends in %q", o.Problems[0].Message[len(o.Problems[0].Message)-8:])
	}
}

// The query of a URL is neither in the load's name, which is on record, nor in an
// error; another one is another target all the same.
func TestAQueryIsNotOnRecord(t *testing.T) {
	url, got := serve(t, reply(http.StatusForbidden, ""))
	name := func(query string) string {
		return parse(t, "target: a\nhttp: {single: true, url: \""+url+"/c/{id}"+query+"\"}\n").Target(nil).Traits().Name
	}
	a, b, none := name("?sig="+canary), name("?sig=other"), name("")
	if strings.Contains(a+b, "sig") || a == b || a == none || none != "POST "+url+"/c/{id}" {
		t.Errorf("names %q, %q and %q", a, b, none)
	}
	o := send(t, "target: a\nhttp: {single: true, url: \"URL/c/{id}?sig="+canary+"\"}\n", url, batch(`{"id":7}`))
	if uri := got()[0].uri; uri != "/c/7?sig="+canary || o.Err == nil {
		t.Errorf("%s was asked for, and then %v", uri, o.Err)
	}
}

func TestAnAnswerWithMoreAfterItIsGarbage(t *testing.T) {
	for _, more := range []string{"]", "}", "x", "{}"} {
		url, _ := serve(t, reply(200, `{"results":[{"ok":true}]}`+more))
		if o := send(t, results, url, batch(`{}`)); o.Reason != reason.InvalidResponse || !o.Doubt {
			t.Errorf("%q after it: %+v", more, o)
		}
	}
}

func TestAHostThatIsNotKnownIsNamedAsThat(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nowhere.invalid", IsNotFound: true}}
	}}}
	o := parse(t, strings.ReplaceAll(plain, "URL", "http://nowhere.invalid")).Target(client).Send(t.Context(), 0, batch(`{}`))
	if o.Err == nil || o.Err.Error() != "POST /rows: the host's name cannot be resolved" || o.Doubt {
		t.Errorf("got %v, in doubt %v", o.Err, o.Doubt)
	}
}

// TestPreviewShowsTheRequestAndNoSecret looks at requests that are not sent.
func TestPreviewShowsTheRequestAndNoSecret(t *testing.T) {
	for _, tt := range []struct{ name, auth, want string }{
		{"bearer", `{bearer: "${TOKEN}"}`, "Authorization:[Bearer ${TOKEN}]"},
		{"header", `{header: {name: x-key, value: "pre ${TOKEN}"}}`, "X-Key:[pre ${TOKEN}]"},
		{"basic", `{basic: {username: u, password: "${TOKEN}"}}`, "Authorization:[Basic (with ${TOKEN})]"},
		{"oauth2", `{oauth2: {token_url: "https://login.example.com/token", client_id: c, client_secret: "${TOKEN}"}}`, "Authorization:[Bearer (from https://login.example.com/token with ${TOKEN})]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := parse(t, "target: a\nauth: "+tt.auth+"\nheaders: {X-Also: \"v ${TOKEN}\"}\nhttp: {url: \"https://api.example.com/rows\"}\n")
			p, err := c.Target(nil).Preview(t.Context(), 0, batch(`{"a":1}`, `{"a":2}`))
			if err != nil {
				t.Fatal(err)
			}
			if p.Method != "POST" || p.URL != "https://api.example.com/rows" || p.Body != `[{"a":1},{"a":2}]` || p.Identity != "default" {
				t.Errorf("%+v", p)
			}
			all := fmt.Sprintf("%+v", p)
			if strings.Contains(all, canary) || !strings.Contains(all, tt.want) || !strings.Contains(all, "X-Also:[v ${TOKEN}]") {
				t.Errorf("%s, want %s and no secret", all, tt.want)
			}
		})
	}
}

// TestPreviewOfARowThatCannotBeSent has no request, but the reason.
func TestPreviewOfARowThatCannotBeSent(t *testing.T) {
	c := parse(t, "target: a\nhttp: {url: \"https://api.example.com/c/{id}\", single: true}\n")
	p, err := c.Target(nil).Preview(t.Context(), 0, batch(`{"a":1}`))
	if err != nil || p.URL != "" || p.Refused[0].Message == "" {
		t.Errorf("%+v, %v", p, err)
	}
}
