package target_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/bulk/target"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/reason"
)

// seen is what a server got.
type seen struct {
	method, uri, body string
	header            http.Header
}

// serve answers each request with the handler and keeps what it got.
func serve(t testing.TB, handle http.HandlerFunc) (url string, got func() []seen) {
	t.Helper()
	var mu sync.Mutex
	var all []seen
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		all = append(all, seen{r.Method, r.RequestURI, string(body), r.Header})
		mu.Unlock()
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []seen {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func reply(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func batch(rows ...string) bulk.Batch {
	b := bulk.Batch{Key: "k-1", Attempt: 1}
	for i, r := range rows {
		b.Rows = append(b.Rows, bulk.Row{Number: int64(i), Data: json.RawMessage(r)})
	}
	return b
}

func send(t testing.TB, file, url string, b bulk.Batch) bulk.Outcome {
	t.Helper()
	c := parse(t, strings.ReplaceAll(file, "URL", url))
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	o := c.Target(client).Send(t.Context(), 0, b)
	if o.Err != nil && strings.Contains(o.Err.Error(), canary) {
		t.Errorf("the error holds a secret: %v", o.Err)
	}
	return o
}

func TestRequestsAreAsTheFileSays(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		rows       []string
		want       seen
		header     map[string]string
	}{
		{
			"rows as an array", "target: a\nauth: {bearer: \"${TOKEN}\"}\nheaders: {X-A: b}\nhttp: {url: \"URL/rows?dry=1\"}\n",
			[]string{`{"a":1.10}`, `{"a":12345678901234567890}`},
			seen{method: "POST", uri: "/rows?dry=1", body: `[{"a":1.10},{"a":12345678901234567890}]`},
			map[string]string{"Authorization": "Bearer " + canary, "X-A": "b", "Content-Type": "application/json"},
		},
		{
			"a template and a key", "target: a\nauth: {header: {name: x-key, value: \"pre ${TOKEN}\"}}\nhttp:\n  url: URL\n  method: PUT\n  key_header: Idempotency-Key\n  body: {records: $rows, id: $key, n: [1, true, null, \"$rowsx\"]}\n",
			[]string{`{"a":"$rows"}`},
			seen{method: "PUT", uri: "/", body: `{"id":"k-1","n":[1,true,null,"$rowsx"],"records":[{"a":"$rows"}]}`},
			map[string]string{"X-Key": "pre " + canary, "Idempotency-Key": "k-1"},
		},
		{
			"one row a request", "target: a\nauth: {basic: {username: u, password: \"${TOKEN}\"}}\nhttp: {url: \"URL/c/{id}/{n}\", method: PATCH, single: true, body: {data: $row}}\n",
			[]string{`{"id":"a/b?ü","n":7}`},
			seen{method: "PATCH", uri: "/c/a%2Fb%3F%C3%BC/7", body: `{"data":{"id":"a/b?ü","n":7}}`},
			map[string]string{"Authorization": "Basic dTpzM2NyM3QtY2FuYXJ5"},
		},
		{
			"Dataverse by an alternate key", "target: a\ndataverse: {url: \"URL\", table: contacts, type: contact, operation: upsert, key: [code, n]}\n",
			[]string{`{"code":"O'Neil & co","n":3,"x":1}`, `{"code":"b","n":4}`},
			seen{
				method: "POST", uri: "/api/data/v9.2/contacts/Microsoft.Dynamics.CRM.UpsertMultiple",
				body: `{"Targets":[{"@odata.type":"Microsoft.Dynamics.CRM.contact","@odata.id":"contacts(code='O%27%27Neil%20\u0026%20co',n=3)","code":"O'Neil & co","n":3,"x":1},` +
					`{"@odata.type":"Microsoft.Dynamics.CRM.contact","@odata.id":"contacts(code='b',n=4)","code":"b","n":4}]}`,
			},
			map[string]string{"Odata-Version": "4.0", "Odata-Maxversion": "4.0", "Prefer": `odata.include-annotations="*"`},
		},
		{
			"Dataverse by the primary key", "target: a\ndataverse: {url: \"URL/\", version: \"9.1\", table: contacts, type: contact, operation: update}\n",
			[]string{`{}`, `{"contactid":"1"}`},
			seen{
				method: "POST", uri: "/api/data/v9.1/contacts/Microsoft.Dynamics.CRM.UpdateMultiple",
				body: `{"Targets":[{"@odata.type":"Microsoft.Dynamics.CRM.contact"},{"@odata.type":"Microsoft.Dynamics.CRM.contact","contactid":"1"}]}`,
			}, nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, got := serve(t, reply(204, ""))
			o := send(t, tt.file, url, batch(tt.rows...))
			all := got()
			if o.Class != reason.OK || len(all) != 1 {
				t.Fatalf("%+v after %d requests", o, len(all))
			}
			for name, want := range tt.header {
				if all[0].header.Get(name) != want {
					t.Errorf("header %s is %q, want %q", name, all[0].header.Get(name), want)
				}
			}
			all[0].header = nil
			if diff := cmp.Diff(tt.want, all[0], cmp.AllowUnexported(seen{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const plain = "target: a\nhttp: {url: \"URL/rows\"}\n"

const results = `target: a
http:
  url: URL/rows
  answer: {rows: .results, success: .ok == true, code: .error.code, message: .error.text}
`

const upsert = "target: a\ndataverse: {url: \"URL\", table: contacts, type: contact, operation: upsert}\n"

const create = "target: a\ndataverse: {url: \"URL\", table: contacts, type: contact, operation: create}\n"

const single = "target: a\nhttp: {url: \"URL/rows/{id}\", single: true}\n"

func TestWhatAnswersMean(t *testing.T) {
	fault := func(code string) string {
		return fmt.Sprintf(`{"error":{"code":%q,"message":"the text"}}`, code)
	}
	for _, tt := range []struct {
		name, file string
		handle     http.HandlerFunc
		want       dispatch.Outcome
		problem    bulk.Problem // of the first row
		says       string
	}{
		{"served", plain, reply(201, "whatever"), dispatch.Outcome{Class: reason.OK}, bulk.Problem{}, ""},
		{"a hint", plain, reply(200, "", "x-ms-dop-hint", "7"), dispatch.Outcome{Class: reason.OK, Parallelism: 7}, bulk.Problem{}, ""},
		{
			"row by row", results, reply(200, `{"results":[{"ok":false,"error":{"code":7,"text":"bad"}},{"ok":true}]}`),
			dispatch.Outcome{Class: reason.OK, Rows: []dispatch.Verdict{dispatch.Refused, dispatch.Done}}, bulk.Problem{Status: 200, Code: "7", Message: "bad"}, "",
		},
		{"garbage", results, reply(200, "<html>"), dispatch.Outcome{Class: reason.Failed, Reason: reason.InvalidResponse, Doubt: true}, bulk.Problem{}, "POST /rows: 200 invalid_response: the answer cannot be read: it is not JSON"},
		{"too few results", results, reply(200, `{"results":[]}`), dispatch.Outcome{Class: reason.Failed, Reason: reason.InvalidResponse, Doubt: true}, bulk.Problem{}, "has 0 results for 2 rows"},
		{"results of another kind", results, reply(200, `[1]`), dispatch.Outcome{Class: reason.Failed, Reason: reason.InvalidResponse, Doubt: true}, bulk.Problem{}, "the results cannot be found: expected an object but got: array"},
		{"an answer without end", results, reply(200, strings.Repeat(" ", 17<<20)), dispatch.Outcome{Class: reason.Failed, Reason: reason.InvalidResponse, Doubt: true}, bulk.Problem{}, "longer than 16777216 bytes"},
		{
			"throttled", plain, reply(429, "slow", "Retry-After", "7"),
			dispatch.Outcome{Class: reason.Throttled, Reason: reason.RateLimited.Reason(), RetryAfter: 7 * time.Second, HasRetryAfter: true}, bulk.Problem{Status: 429, Message: "slow"}, "POST /rows: 429 rate_limited",
		},
		{"overloaded", plain, reply(503, "", "Retry-After", "1"), dispatch.Outcome{Class: reason.Overloaded, Reason: reason.UpstreamPressure.Reason(), RetryAfter: time.Second, HasRetryAfter: true}, bulk.Problem{Status: 503}, ""},
		{"overloaded, by whom nobody knows", plain, reply(503, ""), dispatch.Outcome{Class: reason.Overloaded, Reason: reason.UpstreamPressure.Reason(), Doubt: true}, bulk.Problem{Status: 503}, ""},
		{"unauthorized", plain, reply(401, ""), dispatch.Outcome{Class: reason.Rejected, Reason: reason.Unauthorized}, bulk.Problem{Status: 401}, "POST /rows: 401 unauthorized"},
		{"forbidden", plain, reply(403, ""), dispatch.Outcome{Class: reason.Rejected, Reason: reason.Forbidden, Fatal: true}, bulk.Problem{Status: 403}, ""},
		{"too large", plain, reply(413, ""), dispatch.Outcome{Class: reason.Rejected, Reason: reason.ClientError, TooLarge: true}, bulk.Problem{Status: 413}, ""},
		{"a row at fault", plain, reply(422, "name is too long"), dispatch.Outcome{Class: reason.Rejected, Reason: reason.ClientError, Divisible: true}, bulk.Problem{Status: 422, Message: "name is too long"}, ""},
		{"not there", plain, reply(404, ""), dispatch.Outcome{Class: reason.Rejected, Reason: reason.NotFound, Fatal: true}, bulk.Problem{Status: 404}, "correct the target"},
		{"a row that is not there", single, reply(404, ""), dispatch.Outcome{Class: reason.Rejected, Reason: reason.NotFound}, bulk.Problem{Status: 404}, ""},
		{"a failure", plain, reply(500, ""), dispatch.Outcome{Class: reason.Failed, Reason: reason.ServerError, Doubt: true}, bulk.Problem{Status: 500}, ""},
		{"not implemented", plain, reply(501, ""), dispatch.Outcome{Class: reason.Failed, Reason: reason.ServerError, Fatal: true}, bulk.Problem{Status: 501}, ""},
		{"a redirect", plain, reply(302, "", "Location", "https://elsewhere.example/"), dispatch.Outcome{Class: reason.Rejected, Reason: reason.ClientError, Fatal: true}, bulk.Problem{Status: 302}, "a redirect, which is not followed"},
		{"Dataverse takes all", upsert, reply(204, "", "x-ms-dop-hint", "4"), dispatch.Outcome{Class: reason.OK, Parallelism: 4, Budget: 1200 * time.Second, Window: 300 * time.Second}, bulk.Problem{}, ""},
		{"Dataverse has several servers", upsert, reply(204, "", "x-ms-dop-hint", "20"), dispatch.Outcome{Class: reason.OK, Parallelism: 20, Budget: 6000 * time.Second, Window: 300 * time.Second}, bulk.Problem{}, ""},
		{"Dataverse gives ids", create, reply(200, `{"Ids":["a","b"]}`), dispatch.Outcome{Class: reason.OK}, bulk.Problem{}, ""},
		{"Dataverse gives one id too few", create, reply(200, `{"Ids":["a"]}`), dispatch.Outcome{Class: reason.Failed, Reason: reason.InvalidResponse, Doubt: true}, bulk.Problem{}, "1 ids for 2 rows"},
		{"Dataverse with garbage", upsert, reply(200, `<html>`), dispatch.Outcome{Class: reason.Failed, Reason: reason.InvalidResponse, Doubt: true}, bulk.Problem{}, "the answer is not JSON"},
		{
			"Dataverse: requests", upsert, reply(429, fault("0x80072322"), "Retry-After", "30"),
			dispatch.Outcome{Class: reason.Throttled, Reason: reason.RateLimited.Reason(), RetryAfter: 30 * time.Second, HasRetryAfter: true}, bulk.Problem{Status: 429, Message: fault("0x80072322")}, "",
		},
		{
			"Dataverse: execution time", upsert, reply(429, fault("-2147015903"), "Retry-After", "30"),
			dispatch.Outcome{
				Class: reason.Throttled, Reason: reason.RateLimited.Reason(), RetryAfter: 30 * time.Second, HasRetryAfter: true,
				Budget: 1200 * time.Second, Window: 300 * time.Second,
			}, bulk.Problem{Status: 429, Message: fault("-2147015903")}, "",
		},
		{
			"Dataverse: at once", upsert, reply(429, fault("-2147015898"), "Retry-After", "1"),
			dispatch.Outcome{Class: reason.Throttled, Reason: reason.RateLimited.Reason(), RetryAfter: time.Second, HasRetryAfter: true}, bulk.Problem{Status: 429, Message: fault("-2147015898")}, "",
		},
		{"Dataverse refuses a row", upsert, reply(400, fault("0x80040237")), dispatch.Outcome{Class: reason.Rejected, Reason: reason.ClientError, Divisible: true}, bulk.Problem{Status: 400, Code: "0x80040237", Message: "the text"}, ""},
		{"Dataverse has no such table", upsert, reply(404, fault("0x8006088a")), dispatch.Outcome{Class: reason.Rejected, Reason: reason.NotFound, Fatal: true}, bulk.Problem{Status: 404, Code: "0x8006088a", Message: "the text"}, "correct the target"},
		{"this is not Dataverse", upsert, reply(404, "<html>"), dispatch.Outcome{Class: reason.Rejected, Reason: reason.NotFound, Fatal: true}, bulk.Problem{Status: 404, Message: "<html>"}, "not Dataverse's"},
		{
			"Dataverse takes a part", upsert,
			reply(400, `{"error":{"code":"0x80060892","message":"m","@Microsoft.PowerApps.CDS.ErrorDetails.Plugin.BulkApiErrorDetails":"[{\"RequestIndex\":0,\"Id\":\"x\",\"StatusCode\":412},{\"RequestIndex\":1,\"StatusCode\":201}]"}}`),
			dispatch.Outcome{Class: reason.OK, Rows: []dispatch.Verdict{dispatch.Refused, dispatch.Done}}, bulk.Problem{Status: 412, Message: "m"}, "",
		},
		{
			"Dataverse: rows to be sent later, and one that it does not name", upsert,
			reply(400, `{"error":{"code":"c","message":"m","@x.BulkApiErrorDetails":"[{\"RequestIndex\":0,\"StatusCode\":429}]"}}`),
			dispatch.Outcome{Class: reason.OK, Rows: []dispatch.Verdict{dispatch.Later, dispatch.Unknown}}, bulk.Problem{Status: 429, Message: "m"}, "",
		},
		{
			"Dataverse: details that cannot be", upsert, reply(400, `{"error":{"code":"c","message":"m","@x.BulkApiErrorDetails":"[{\"RequestIndex\":9,\"StatusCode\":200}]"}}`),
			dispatch.Outcome{Class: reason.Failed, Reason: reason.InvalidResponse, Doubt: true}, bulk.Problem{Status: 400, Code: "c", Message: "m"}, "cannot be read",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, _ := serve(t, tt.handle)
			rows := []string{`{"id":"1"}`, `{"id":"2"}`}
			if tt.file == single {
				rows = rows[:1]
			}
			o := send(t, tt.file, url, batch(rows...))
			if diff := cmp.Diff(tt.want, o.Outcome); diff != "" {
				t.Error(diff)
			}
			var p bulk.Problem
			if len(o.Problems) > 0 {
				p = o.Problems[0]
			}
			if diff := cmp.Diff(tt.problem, p); diff != "" {
				t.Error(diff)
			}
			if (o.Err == nil) != (tt.want.Class == reason.OK) || tt.says != "" && !strings.Contains(fmt.Sprint(o.Err), tt.says) {
				t.Errorf("the error is %v, want %q", o.Err, tt.says)
			}
		})
	}
}

func TestRowsThatCannotBeSent(t *testing.T) {
	url, got := serve(t, reply(204, ""))
	file := "target: a\ndataverse: {url: \"URL\", table: contacts, type: contact, operation: upsert, key: [code]}\n"
	o := send(t, file, url, batch(`{"code":"a"}`, `{"code":null}`, `{}`, `{"code":"d"}`))
	if diff := cmp.Diff([]dispatch.Verdict{dispatch.Done, dispatch.Refused, dispatch.Refused, dispatch.Done}, o.Rows); diff != "" || !strings.Contains(o.Problems[1].Message, `its key "code"`) {
		t.Errorf("%+v %s", o, diff)
	}
	if body := got()[0].body; strings.Count(body, "@odata.type") != 2 {
		t.Errorf("sent %s", body)
	}
	if o = send(t, file, url, batch(`{}`)); len(got()) != 1 || len(o.Rows) != 1 || o.Rows[0] != dispatch.Refused {
		t.Errorf("with nothing to send %d requests, %+v", len(got()), o)
	}
	if o = send(t, single, url, batch(`{"id":{}}`)); len(got()) != 1 || o.Rows[0] != dispatch.Refused || !strings.Contains(o.Problems[0].Message, `its field "id"`) {
		t.Errorf("%+v", o)
	}
	slow, _ := serve(t, reply(429, "", "Retry-After", "1"))
	if o = send(t, file, slow, batch(`{"code":"a"}`, `{}`)); o.Class != reason.Throttled || o.Rows[0] != dispatch.Later || o.Rows[1] != dispatch.Refused {
		t.Errorf("throttled: %+v", o)
	}
}

func TestConnectionsThatFail(t *testing.T) {
	url, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	})
	if o := send(t, plain, url, batch(`{}`)); o.Class != reason.Lost || !o.Doubt || o.Reason != reason.Unreachable || !strings.Contains(o.Err.Error(), "ended before the answer") {
		t.Errorf("cut off: %+v", o)
	}
	cut, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{")
	})
	if o := send(t, plain, cut, batch(`{}`)); o.Class != reason.Lost || !o.Doubt {
		t.Errorf("cut off in the answer: %+v", o)
	}
	if o := send(t, plain, "http://127.0.0.1:1", batch(`{}`)); o.Class != reason.Lost || o.Doubt || o.Reason != reason.Unreachable || !strings.Contains(o.Err.Error(), "cannot be reached") {
		t.Errorf("nobody there: %+v", o)
	}
	hangs, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if o := send(t, "timeout: 50ms\n"+plain, hangs, batch(`{}`)); o.Class != reason.Lost || !o.Doubt || o.Reason != reason.Timeout {
		t.Errorf("no answer: %+v", o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := parse(t, strings.ReplaceAll(plain, "URL", url))
	if o := c.Target(nil).Send(ctx, 0, batch(`{}`)); o.Class != reason.Unknown || o.Doubt || o.Reason != reason.Canceled {
		t.Errorf("canceled before it was sent: %+v", o)
	}
}

func TestTokensAreGotAndRenewed(t *testing.T) {
	var mu sync.Mutex
	tokens, bad := 0, map[string]bool{}
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.URL.Path == "/token":
			tokens++
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer","expires_in":3600}`, tokens)
		case bad[r.Header.Get("Authorization")]:
			w.WriteHeader(401)
		}
	})
	file := "target: a\nauth: {oauth2: {token_url: \"URL/token\", client_id: me, client_secret: \"${TOKEN}\", scopes: [x]}}\nhttp: {url: \"URL/rows\"}\n"
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	to := parse(t, strings.ReplaceAll(file, "URL", url)).Target(client)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if o := to.Send(t.Context(), 0, batch(`{}`)); o.Class != reason.OK {
				t.Errorf("%+v", o)
			}
		})
	}
	wg.Wait()
	if tokens != 1 {
		t.Errorf("%d tokens for 8 batches", tokens)
	}
	bad["Bearer t1"] = true
	if o := to.Send(t.Context(), 0, batch(`{}`)); o.Class != reason.Failed || o.Doubt {
		t.Errorf("a token that expired early: %+v, want it sent again", o)
	}
	if o := to.Send(t.Context(), 0, batch(`{}`)); o.Class != reason.OK || tokens != 2 {
		t.Errorf("with another token: %+v", o)
	}
	bad["Bearer t2"], bad["Bearer t3"] = true, true
	to.Send(t.Context(), 0, batch(`{}`))
	if o := to.Send(t.Context(), 0, batch(`{}`)); o.Reason != reason.Unauthorized {
		t.Errorf("a new token that is refused: %+v", o)
	}
	// The very first token may be refused too: one other is asked for, and no third.
	bad["Bearer t4"], bad["Bearer t5"], tokens = true, true, 3
	first := parse(t, strings.ReplaceAll(file, "URL", url)).Target(client)
	for i, want := range []reason.Class{reason.Failed, reason.Rejected, reason.Rejected} {
		if o := first.Send(t.Context(), 0, batch(`{}`)); o.Class != want || tokens != min(4+i, 5) {
			t.Errorf("batch %d with tokens that are refused: %+v after %d tokens", i, o, tokens)
		}
	}
	none := parse(t, strings.ReplaceAll(strings.ReplaceAll(file, "URL/token", "URL/rows"), "URL", url)).Target(client)
	if o := none.Send(t.Context(), 0, batch(`{}`)); o.Class == reason.OK || o.Doubt || strings.Contains(o.Err.Error(), canary) {
		t.Errorf("no token: %+v", o)
	}
}

// Whatever a server answers, each row has a verdict, or the class holds for all.
func FuzzAnswer(f *testing.F) {
	golden.Seeds(f)
	f.Add(200, []byte(`{"results":[{"ok":true},{"ok":false}]}`))
	f.Add(400, []byte(`{"error":{"code":"c","message":"m","@x.BulkApiErrorDetails":"[{\"RequestIndex\":0,\"StatusCode\":429}]"}}`))
	f.Add(503, []byte(`{`))
	var status int
	var body []byte
	fake := roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(body))), Request: r}, nil
	})
	var targets []*target.Target
	for _, file := range []string{plain, results, upsert, create} {
		targets = append(targets, parse(f, strings.ReplaceAll(file, "URL", "http://x.y")).Target(&http.Client{Transport: fake}))
	}
	f.Fuzz(func(t *testing.T, s int, b []byte) {
		status, body = 100+(s%500+500)%500, b
		for _, to := range targets {
			o := to.Send(t.Context(), 0, batch(`{}`, `{}`))
			if o.Rows != nil && len(o.Rows) != 2 {
				t.Fatalf("%d verdicts for 2 rows", len(o.Rows))
			}
			if o.Class == reason.OK && status/100 != 2 && o.Rows == nil {
				t.Fatalf("status %d is served", status)
			}
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// net/http sends a request again by itself when a connection that it had kept
// breaks under it and the request looks safe to repeat, as one with an
// Idempotency-Key does. Where the file says that nothing may be sent twice, it
// does not.
func TestNothingIsSentTwiceBehindTheLoadsBack(t *testing.T) {
	for resend, want := range map[string]int64{"never": 2, "with_key": 3} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		var got atomic.Int64
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				in := bufio.NewReader(conn)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						break
					}
					_, _ = io.Copy(io.Discard, r.Body)
					if got.Add(1) == 2 {
						break // the batch may be written, and there is no answer
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
				_ = conn.Close()
			}
		}()
		c := parse(t, "target: a\nhttp: {url: \"http://"+l.Addr().String()+"\", key_header: Idempotency-Key, resend: "+resend+"}\n")
		client := &http.Client{Transport: &http.Transport{}}
		t.Cleanup(client.CloseIdleConnections)
		to := c.Target(client)
		if o := to.Send(t.Context(), 0, batch(`{}`)); o.Class != reason.OK {
			t.Fatalf("the first batch: %+v", o)
		}
		o := to.Send(t.Context(), 0, batch(`{}`))
		if lost := o.Class == reason.Lost && o.Doubt; got.Load() != want || lost != (resend == "never") {
			t.Errorf("%s: %d requests for two batches, want %d; the second is %+v", resend, got.Load(), want, o)
		}
	}
}

// A row that names its own type or record would contradict the target.
func TestARowDoesNotSayWhereItGoes(t *testing.T) {
	const byKey = "target: a\ndataverse: {url: \"URL\", table: contacts, type: contact, operation: upsert, key: [code]}\n"
	url, got := serve(t, reply(204, ""))
	o := send(t, byKey, url, batch(`{"code":"a","@odata.id":"accounts(1)"}`, `{"code":"b","x":"\"@odata.id\":"}`, `{"code":"c","@odata.type":"Microsoft.Dynamics.CRM.account"}`, `{"code":"d","@odata.etag":"W/1"}`))
	if want := []int{0, 2}; len(o.Problems) != 4 || o.Problems[0].Code != "unsendable" || o.Problems[2].Code != "unsendable" || o.Problems[1].Code+o.Problems[3].Code != "" {
		t.Errorf("problems %+v, want rows %v refused unsent", o.Problems, want)
	}
	if body := got()[0].body; strings.Contains(body, "account") || !strings.Contains(body, `code='b'`) || !strings.Contains(body, `code='d'`) {
		t.Errorf("sent %s", body)
	}
	o = send(t, upsert, url, batch(`{"@odata.id":"contacts(1)"}`))
	if o.Class != reason.OK || o.Rows != nil {
		t.Errorf("without a key, the row names its record: %+v", o)
	}
}
