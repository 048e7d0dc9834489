package llm_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
)

func TestEachAPIChargesInItsOwnWay(t *testing.T) {
	var log bytes.Buffer
	s := provider(t, instant(""), llm.Options{Seed: 1, OutputTokens: 6}, serve.Options{Log: &log})
	// The prompt "Where is the train?" is estimated as 5 + 4 + 3 tokens. The answer has 8
	// tokens, or the 6 that max_tokens allows.
	tests := []struct {
		name, path, body string
		header           string
		want             float64
	}{
		{"OpenAI, the prompt", chatPath, chatBody, openAIKey, 12},
		{"OpenAI, what is allowed", chatPath, strings.Replace(chatBody, `"max_tokens":6`, `"max_tokens":500`, 1), openAIKey, 500},
		{"OpenAI, the newer name", chatPath, with(chatBody, `"max_completion_tokens":300`), openAIKey, 300},
		{"OpenAI's other call", responsesPath, strings.Replace(responseBody, `"max_output_tokens":6`, `"max_output_tokens":90`, 1), openAIKey, 90},
		{"Azure", azurePath, chatBody, azureKey, 12},
		{"Anthropic, both", messagesPath, messageBody, anthropicKey, 18},
		{"Anthropic, not what is allowed", messagesPath, strings.Replace(messageBody, `"max_tokens":6`, `"max_tokens":500`, 1), anthropicKey, 20},
		{"Anthropic, without what is in the cache", messagesPath, `{"model":"sim-small","messages":[{"role":"user","content":"` + long + `"}],"max_tokens":3}`, anthropicKey, 867 + 3},
		{"Gemini, the prompt", geminiPath, strings.Replace(geminiBody, `:6`, `:500`, 1), geminiKey, 12},
	}
	for _, tt := range tests {
		if w := ask(t, s, http.MethodPost, tt.path, tt.body, tt.header); w.Code != 200 {
			t.Fatalf("%s: %d %s", tt.name, w.Code, w.Body)
		}
	}
	total := make(map[string]float64)
	for i, e := range entries(t, &log) {
		if e.Cost != tests[i].want || !e.Admitted || e.Key != serve.KeyID(secret(tests[i].header)) || e.Model == "" {
			t.Errorf("%s: logged as %+v, want cost %g", tests[i].name, e, tests[i].want)
		}
		total[e.Key] += e.Cost
	}
	for key, k := range s.Stats().ByKey {
		if k.Charged != total[key] {
			t.Errorf("key %s was charged %g, the log says %g", key, k.Charged, total[key])
		}
	}
	if strings.Contains(log.String(), "sk-") {
		t.Error("the log holds a key")
	}
}

// secret is the key in a header field.
func secret(field string) string {
	_, value, _ := strings.Cut(field, ": ")
	return strings.TrimPrefix(value, "Bearer ")
}

func TestLimitsHoldForManyAtOnce(t *testing.T) {
	const clients, each = 16, 40
	for _, tt := range []struct {
		name, limit string
		want        int64
	}{
		{"requests", "{kind: sliding_window, limit: 100, window: 1h}", 100},
		{"tokens", "{kind: cost_window, limit: 2520, window: 1h}", 210}, // of 12 each
		{"a day's requests", "{kind: fixed_window, limit: 70, window: 24h, align: first}", 70},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			s := provider(t, instant("  limits: ["+tt.limit+"]\n"), llm.Options{Seed: 1, OutputTokens: 6}, serve.Options{Log: &log})
			hs := httptest.NewServer(s)
			defer hs.Close()
			var mu sync.Mutex
			seen := make(map[int]int64)
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for i := range each {
						body := chatBody
						if i%2 == 1 {
							body = with(chatBody, `"stream":true`)
						}
						res := post(t.Context(), t, hs.Client(), hs.URL+chatPath, body)
						if _, err := finish(t, res); err != nil {
							t.Error(err)
						}
						mu.Lock()
						seen[res.StatusCode]++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if seen[200] != tt.want || seen[200]+seen[429] != clients*each {
				t.Errorf("clients saw %v, want %d admitted", seen, tt.want)
			}
			k := s.Stats().ByKey[serve.KeyID("key")]
			if k.Admitted != tt.want || k.Throttled != seen[429] || k.Charged != float64(12*tt.want) || k.Input != 12*tt.want || k.Output != 6*tt.want {
				t.Errorf("the key's counts are %+v, want %d admitted, of 12 tokens each", k, tt.want)
			}
			logged := make(map[int]int64)
			for _, e := range entries(t, &log) {
				logged[e.Status]++
			}
			if logged[200] != seen[200] || logged[429] != seen[429] {
				t.Errorf("the log has %v, clients saw %v", logged, seen)
			}
		})
	}
}

func TestARefusalsWaitIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := llm.Limits{RequestsPerMinute: 5, TokensPerMinute: 50, RequestsPerDay: 100}.Scenario()
		if err != nil {
			t.Fatal(err)
		}
		api, err := llm.New(llm.Options{OutputTokens: 6})
		if err != nil {
			t.Fatal(err)
		}
		s, err := serve.New(cfg, serve.Options{APIs: []serve.API{api}})
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		for range 40 {
			w := ask(t, s, http.MethodPost, chatPath, chatBody, openAIKey)
			if w.Code == 200 {
				continue
			}
			refused++
			wait, err := time.ParseDuration(w.Header().Get("Retry-After-Ms") + "ms")
			if w.Code != 429 || err != nil {
				t.Fatalf("%d, Retry-After-Ms: %v", w.Code, err)
			}
			time.Sleep(wait)
			if w := ask(t, s, http.MethodPost, chatPath, chatBody, openAIKey); w.Code != 200 {
				t.Errorf("still %d after %s: %s", w.Code, wait, w.Body)
			}
		}
		if refused == 0 {
			t.Error("nothing was refused")
		}
	})
}

func TestAClientThatGoesAwayFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := provider(t, instant("  limits: [{kind: concurrency, limit: 1}]\n"), llm.Options{Seed: 1, OutputTokens: 50, TokensPerSecond: 1}, serve.Options{Log: &log})
		c := client(t, s)
		for _, body := range []string{
			`{"model":"sim-cancel","messages":[{"role":"user","content":"hello"}],"stream":true}`,
			`{"model":"sim-cancel","messages":[{"role":"user","content":"hello"}]}`,
		} {
			ctx, cancel := context.WithCancel(t.Context())
			var first sync.WaitGroup
			first.Go(func() {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider"+chatPath, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Authorization", "Bearer key")
				if res, err := c.Do(r); err == nil {
					_, err = finish(t, res)
					if err == nil {
						t.Error("an answer of many seconds came at once")
					}
				}
			})
			time.Sleep(9 * time.Second)
			if st := s.Stats(); st.InFlight != 1 {
				t.Fatalf("%d in flight, want the first", st.InFlight)
			}
			res := post(t.Context(), t, c, "http://provider"+chatPath, chatBody)
			if _, err := finish(t, res); err != nil || res.StatusCode != 429 {
				t.Errorf("%d, %v beside the first, want 429", res.StatusCode, err)
			}
			cancel()
			first.Wait()
			synctest.Wait()
			if st := s.Stats(); st.InFlight != 0 {
				t.Errorf("%d in flight after the client went away", st.InFlight)
			}
			res = post(t.Context(), t, c, "http://provider"+chatPath, chatBody)
			if _, err := finish(t, res); err != nil || res.StatusCode != 200 {
				t.Errorf("%d, %v after the first went away, want 200", res.StatusCode, err)
			}
		}
		var statuses []int
		for _, e := range entries(t, &log) {
			statuses = append(statuses, e.Status)
		}
		if want := []int{200, 429, 200, 429, 499, 200}; !slices.Equal(statuses, want) {
			t.Errorf("log has %v, want %v", statuses, want)
		}
		// Of the calls that ended early, the stream sent eight tokens and the plain answer
		// none.
		want := serve.Usage{Input: 2*9 + 2*12, Output: 8 + 2*6}
		k := s.Stats().ByKey[serve.KeyID("key")]
		if k.Usage != want || k.Admitted != 4 || k.Throttled != 2 || s.Stats().ByLimit["concurrency 1"] != 2 {
			t.Errorf("counts %+v, %v, want %+v used", k, s.Stats().ByLimit, want)
		}
	})
}

func TestConcurrencyFollowsChangesAndCountsOtherData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := strings.Replace(instant("  limits: [{kind: concurrency, limit: 4}]\n  changes: [{at: 1m, scale: 0.5}]\n"), "p50: 0s", "p50: 10s", 1)
		s := provider(t, src, llm.Options{Seed: 1}, serve.Options{})
		for _, want := range []int64{4, 2} {
			before := s.Stats()
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					if i%2 == 0 {
						ask(t, s, http.MethodGet, "/conversations", "")
					} else {
						ask(t, s, http.MethodPost, chatPath, chatBody, openAIKey)
					}
				})
			}
			wg.Wait()
			after := s.Stats()
			if got := after.Admitted - before.Admitted; got != want || after.Throttled-before.Throttled != 8-want || after.InFlight != 0 {
				t.Errorf("%d of 8 admitted, stats %+v, want %d", got, after, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestTheServersTokenIsTheOnlyKey(t *testing.T) {
	var log bytes.Buffer
	s := provider(t, instant(""), llm.Options{}, serve.Options{Token: "right", Log: &log})
	for _, tt := range []struct {
		path, body, field, code string
		status                  int
	}{
		{chatPath, chatBody, "Authorization: Bearer wrong", "invalid_api_key", 401},
		{azurePath, chatBody, "Api-Key: wrong", "Access denied", 401},
		{messagesPath, messageBody, "X-Api-Key: wrong", "authentication_error", 401},
		{geminiPath, geminiBody, "X-Goog-Api-Key: wrong", "API_KEY_INVALID", 400},
		{chatPath, chatBody, "Authorization: Basic right", "API key", 401},
		{chatPath, chatBody, "Authorization: Bearer right", "choices", 200},
		{azurePath, chatBody, "Authorization: Bearer right", "choices", 200},
		{messagesPath, messageBody, "Authorization: Bearer right", "end_turn", 200},
		{messagesPath, strings.Replace(messageBody, ":6", ":900", 1), "X-Api-Key: right", "end_turn", 200},
		{geminiPath + "?key=right", geminiBody, "", "candidates", 200},
	} {
		w := ask(t, s, http.MethodPost, tt.path, strings.Replace(tt.body, ":6}", ":900}", 1), tt.field)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.code) {
			t.Errorf("%s with %q: %d %s, want %d and %s", tt.path, tt.field, w.Code, w.Body, tt.status, tt.code)
		}
	}
	if st := s.Stats(); st.Unauthorized != 5 || st.Admitted != 5 || len(st.ByKey) != 1 {
		t.Errorf("stats %+v, want 5 unauthorized and 5 admitted of one key", st)
	}
	if n := len(entries(t, &log)); n != 5 {
		t.Errorf("%d lines in the log, want the 5 that met the limits", n)
	}
}

func TestKeysAreCountedApartUpToABound(t *testing.T) {
	s := provider(t, instant(""), llm.Options{}, serve.Options{})
	for i := range 1010 {
		ask(t, s, http.MethodPost, chatPath, chatBody, fmt.Sprintf("Authorization: Bearer key-%d", i))
	}
	by := s.Stats().ByKey
	if by[serve.KeyID("key-7")].Admitted != 1 || by["others"].Admitted != 10 || len(by) != 1001 {
		t.Errorf("%d keys, %d of others, want 1,000 and 10", len(by)-1, by["others"].Admitted)
	}
}

func TestOptionsAndLimitsAreChecked(t *testing.T) {
	for _, opt := range []llm.Options{{OutputTokens: -1}, {OutputTokens: 100_001}, {TokensPerSecond: -1}, {TokensPerSecond: 1e7}} {
		if _, err := llm.New(opt); err == nil {
			t.Errorf("%+v was accepted", opt)
		}
	}
	for _, l := range []llm.Limits{{RequestsPerMinute: -1}, {TokensPerMinute: 1_000_000_001}, {RequestsPerDay: scenario.MaxCount + 1}} {
		if _, err := l.Scenario(); err == nil {
			t.Errorf("%+v was accepted", l)
		}
	}
	s, err := llm.Limits{}.Scenario()
	if err != nil || len(s.Provider.Limits) != 0 {
		t.Errorf("no limits are %v, %v", s.Provider.Limits, err)
	}
}
