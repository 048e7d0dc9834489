package collect_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/store/sqlite"
)

// greetings is a connector written in Go: one stream, one page.
type greetings struct{ base string }

func (greetings) Streams() []connector.Stream { return []connector.Stream{{Name: "greetings"}} }

func (g greetings) List(ctx context.Context, call connector.Caller, _ connector.ListRequest) (connector.Page, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.base+"/greetings", nil)
	if err != nil {
		return connector.Page{}, err
	}
	res, err := call.Do(ctx, req) // paced, counted, retried
	if err != nil {
		return connector.Page{}, err
	}
	return connector.Page{Items: []connector.Item{{Key: "1", Data: res.Body}}}, nil
}

func (greetings) Detail(context.Context, connector.Caller, string, connector.Item) ([]connector.Record, error) {
	return nil, nil // never called: the stream has no details
}

func ExampleCollector_Run() {
	ctx := context.Background()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"text":"hello"}`)
	}))
	defer provider.Close()
	dir, err := os.MkdirTemp("", "headway")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "state.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()

	for range 2 {
		c, err := collect.New(collect.Options{
			Connection: "greetings", Connector: greetings{provider.URL},
			Store: store, Sink: jsonl.New(filepath.Join(dir, "out")),
			Pacing: headway.Config{JitterMax: -1},
			Base:   &http.Transport{DisableKeepAlives: true},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		summary, err := c.Run(ctx)
		fmt.Println(summary.State, summary.Records, "new,", summary.Unchanged, "unchanged,", err)
	}
	// Output:
	// drained 1 new, 0 unchanged, <nil>
	// drained 0 new, 1 unchanged, <nil>
}

func ExampleNew() {
	_, err := collect.New(collect.Options{Connection: "acme", MaxRequests: -1})
	fmt.Println(err)
	// Output:
	// collect: the connection has no connector
}

func ExampleTrail() {
	var t connector.Trail
	if slices.ContainsFunc([]string{"a", "b", "c", "b", "c", "b", "c"}, t.Step) {
		fmt.Println("the paging runs in a circle")
	}
	// Output:
	// the paging runs in a circle
}
