package egress_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// Only the hash of a key is kept. A client shows the secret.
func ExampleNewKeys() {
	secret, hash := egress.GenerateKey()
	keys, err := egress.NewKeys([]egress.Key{{ID: "assistant", Hash: hash}})
	fmt.Println(keys.Len(), err, egress.HashKey(secret) == hash)
	// Output:
	// 1 <nil> true
}

// A program calls a provider through the proxy; only its base URL is another.
func ExampleNew() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`)
	}))
	defer upstream.Close()
	budget, err := governor.New(governor.Options{Config: quota.Config{
		Models: map[string]quota.Model{"gpt-4.1": {Limits: quota.Limits{MaxDailyCalls: 1}}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = budget.Close() }()
	openAI, err := provider.New(provider.Settings{API: provider.OpenAI, Upstream: upstream.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	proxy, err := egress.New(egress.Options{
		Providers: []egress.Provider{{Name: "openai", Description: openAI, Key: "the provider's key", Approver: budget}},
		OnCall: func(c egress.CallLog) {
			fmt.Printf("%s %s: %d %s, %d tokens in, %d out, code %q\n", c.Provider, c.Model, c.Status, c.Ending, c.Used.Input, c.Used.Output, c.Code)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = proxy.Drain(context.Background()) }()
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/openai/v1/chat/completions",
			strings.NewReader(`{"model":"gpt-4.1","messages":[{"role":"user","content":"hello"}]}`))
		proxy.ServeHTTP(httptest.NewRecorder(), r)
	}
	// Output:
	// openai gpt-4.1: 200 complete, 9 tokens in, 3 out, code ""
	// openai gpt-4.1: 429 refused, 0 tokens in, 0 out, code "RATE_HARD_LIMIT"
}
