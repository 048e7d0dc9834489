package target_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/headway-go/headway/bulk/target"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
)

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
