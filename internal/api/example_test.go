package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// A call is asked for, made, and settled with what it used.
func ExampleNew() {
	g, err := governor.New(governor.Options{Config: quota.Config{
		Models: map[string]quota.Model{"gpt": {Limits: quota.Limits{MaxDailyTokens: 1000}}},
	}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = g.Close() }()
	handler, err := api.New(api.Options{
		Authorize: api.Anybody,
		Quotas:    func() map[string]api.Quota { return map[string]api.Quota{"openai": g} },
	})
	if err != nil {
		panic(err)
	}
	post := func(path, body string) []byte {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, r)
		return bytes.TrimSpace(rec.Body.Bytes())
	}
	var a api.Approval
	if err := json.Unmarshal(post("/v1/quota/approve", `{"model":"gpt","expected_input_tokens":600}`), &a); err != nil {
		panic(err)
	}
	fmt.Println(a.Approved, a.Provider)
	fmt.Printf("%s\n", post("/v1/quota/usage", fmt.Sprintf(`{"permit":%q,"input_tokens":590,"output_tokens":300}`, a.Permit)))
	var p api.Problem
	if err := json.Unmarshal(post("/v1/quota/approve", `{"model":"gpt","expected_input_tokens":600}`), &p); err != nil {
		panic(err)
	}
	fmt.Println(p.Status, p.Code)
	// Output:
	// true openai
	// {"first":true}
	// 429 RATE_HARD_LIMIT
}
