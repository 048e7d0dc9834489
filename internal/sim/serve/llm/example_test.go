package llm_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
)

func ExampleNew() {
	limits, err := llm.Limits{RequestsPerMinute: 1, TokensPerMinute: 1000}.Scenario()
	if err != nil {
		fmt.Println(err)
		return
	}
	models, err := llm.New(llm.Options{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	provider, err := serve.New(limits, serve.Options{APIs: []serve.API{models}})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(provider)
	defer server.Close()
	for range 2 {
		r, err := http.NewRequest(http.MethodPost, server.URL+"/v1/messages",
			strings.NewReader(`{"model":"sim-small","max_tokens":8,"messages":[{"role":"user","content":"hello"}]}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		r.Header.Set("X-Api-Key", "mine")
		res, err := server.Client().Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = res.Body.Close()
		fmt.Println(res.StatusCode, res.Header.Get("Anthropic-Ratelimit-Requests-Remaining"))
	}
	mine := provider.Stats().ByKey[serve.KeyID("mine")]
	fmt.Println(mine.Admitted, mine.Throttled, mine.Charged, mine.Input, mine.Output)
	// Output:
	// 200 0
	// 429 0
	// 1 1 17 9 8
}
