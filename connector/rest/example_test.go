package rest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/connector/rest"
)

const notes = `
connection: notes
provider:
  base_url: ${NOTES_URL}
  auth: {bearer: ${NOTES_TOKEN}}
  ceiling: 100ms
streams:
  - name: notes
    list: {path: /notes, query: {limit: "2"}}
    records: .items
    key: .id
    paginate: {cursor: .next, param: after}
`

// once is a connector.Caller that sends each request once, without pacing. A
// real one is the collection runtime's.
type once struct{}

func (once) Do(_ context.Context, req *http.Request) (*connector.Response, error) {
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, rest.DefaultMaxBody))
	return &connector.Response{Status: res.StatusCode, Header: res.Header, Body: body}, err
}

func Example() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("after") == "" {
			fmt.Fprint(w, `{"items": [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}], "next": "2"}`)
			return
		}
		fmt.Fprint(w, `{"items": [{"id": 3, "text": "c"}], "next": null}`)
	}))
	defer provider.Close()

	env := map[string]string{"NOTES_URL": provider.URL, "NOTES_TOKEN": "secret"}
	cfg, err := rest.Parse("notes.yaml", []byte(notes), func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	conn, err := rest.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	for cursor := ""; ; {
		page, err := conn.List(context.Background(), once{}, connector.ListRequest{Stream: "notes", Cursor: cursor})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, item := range page.Items {
			fmt.Println(item.Key, string(item.Data))
		}
		if cursor = page.Next; cursor == "" {
			return
		}
	}
	// Output:
	// 1 {"id":1,"text":"a"}
	// 2 {"id":2,"text":"b"}
	// 3 {"id":3,"text":"c"}
}

func ExampleParse_problems() {
	_, err := rest.Parse("bad.yaml", []byte(`
connection: bad
provider:
  base_url: https://api.example.com
  auth: {bearer: sk-12345}
  celing: 1s
streams:
  - {name: notes, list: {path: /notes}, records: ".items[", key: .id}
`), nil)
	fmt.Println(err)
	// Output:
	// bad.yaml:5:18: provider.auth.bearer: is written out; want a reference such as ${NAME} or ${file:PATH}: a secret does not stand in the file
	// bad.yaml:6:3: provider.celing: is not a field here: did you mean ceiling?
	// bad.yaml:8:50: streams[0].records: is not a jq expression: unexpected EOF at character 8 of ".items["
}

func ExampleDescribe() {
	cfg, err := rest.Load("../../examples/chat-archive.yaml", func(name string) (string, bool) {
		return map[string]string{"CHAT_URL": "https://chat.example.com", "CHAT_TOKEN": "secret"}[name], true
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := rest.Describe(cfg).Write(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// connection   chat-archive
	// provider     https://chat.example.com
	// auth         bearer from ${CHAT_TOKEN}
	// ceiling      20 ms between requests, 3,000 a minute
	// start        200 ms between requests, law cycle
	// retries      up to 5 attempts a request; in a run 8 retries at first, 0.2 more for each success, at most 100 at a time
	// circuit      opens when 50% of the last 10 outcomes failed, of at least 5; then nothing is sent for 1m, then one probe at a time
	// run          at most 15m
	// sink         jsonl in ./out
	//
	// stream       conversations
	//   list       GET /conversations?limit=100
	//   paging     cursor
	//   records    .items, key .id
	//   changes    .updated_at sent as updated_after
	//   detail     GET /conversations/{key} into stream messages
	//
	// warning      stream conversations: a detail is one request: where the provider pages it, only its first page is collected
}

func ExampleConfig_Classify() {
	cfg, err := rest.Parse("slack.yaml", []byte(`
connection: slack
provider: {base_url: https://slack.com/api, ceiling: 1s}
streams:
  - {name: users, list: {path: /users.list}, records: .members, key: .id}
errors:
  - {status: 200, body: '.error == "ratelimited"', as: throttle}
`), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	class, why, ok := cfg.Classify(200, []byte(`{"ok": false, "error": "ratelimited"}`))
	fmt.Println(class, why, ok)
	// Output: throttled rate_limited true
}
