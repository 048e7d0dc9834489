package llm_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// What Headway reads out of an answer must be what the provider meant.
func TestTheClientSideReadsWhatIsMeant(t *testing.T) {
	const minute = "  limits: [{kind: sliding_window, limit: 1, window: 1m}, {kind: cost_window, limit: 9000, window: 1m}]\n"
	const day = "  limits: [{kind: fixed_window, limit: 1, window: 24h}]\n"
	for _, api := range []struct{ name, path, body, key string }{
		{"openai", chatPath, chatBody, openAIKey},
		{"responses", responsesPath, responseBody, openAIKey},
		{"azure", "/openai/v1/chat/completions", chatBody, azureKey},
		{"anthropic", messagesPath, messageBody, anthropicKey},
		{"gemini", geminiPath, geminiBody, geminiKey},
	} {
		for _, tt := range []struct {
			name, section, model string
			calls                int
			class                reason.Class
			exhausted            bool
			wait                 time.Duration // at least; -1 means none
		}{
			{"an answer", minute, "sim-small", 1, reason.OK, false, -1},
			{"a minute's limit", minute, "sim-small", 2, reason.Throttled, false, 59 * time.Second},
			{"on demand", "", "sim-throttled", 1, reason.Throttled, false, time.Second},
			{"overload", "", "sim-overloaded", 1, reason.Overloaded, false, -1},
			{"no money", "", "sim-quota-exhausted", 1, reason.Throttled, true, -1},
			{"a day's limit", day, "sim-small", 2, reason.Throttled, api.name == "gemini", -1},
		} {
			t.Run(api.name+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := provider(t, instant(tt.section), llm.Options{Seed: 1}, serve.Options{})
					var got signal.Signal
					for range tt.calls {
						w := ask(t, s, http.MethodPost, named(api.path, tt.model), named(api.body, tt.model), api.key)
						got = signal.Read(time.Now(), w.Code, w.Header(), w.Body.Bytes())
						time.Sleep(time.Second / 2)
					}
					if got.Class != tt.class || got.Exhausted != tt.exhausted || tt.wait >= 0 && (!got.HasRetryAfter || got.RetryAfter < tt.wait) {
						t.Errorf("read as %+v, want %v, exhausted %v and a wait of %s", got, tt.class, tt.exhausted, tt.wait)
					}
					if api.name != "gemini" && tt.section == minute && len(got.Limits) != 2 {
						t.Errorf("limits %+v, want requests and tokens", got.Limits)
					}
				})
			})
		}
	}
}

func TestTheClientSideReadsErrorsInStreams(t *testing.T) {
	s := provider(t, instant(""), llm.Options{Seed: 1}, serve.Options{})
	for _, tt := range streams {
		key := map[string]string{"messages": anthropicKey, "gemini": geminiKey}[tt.name]
		if key == "" {
			key = openAIKey
		}
		w := ask(t, s, http.MethodPost, strings.Replace(tt.path, "MODEL", "error-after-2", 1), strings.Replace(tt.body, "MODEL", "error-after-2", 1), key)
		events := strings.Split(strings.TrimSpace(strings.ReplaceAll(w.Body.String(), "\r", "")), "\n\n")
		last := events[len(events)-1]
		if _, data, ok := strings.Cut(last, "data: "); ok {
			last = data
		}
		if got := signal.ReadStreamError([]byte(last)); w.Code != 200 || got.Class != reason.Overloaded {
			t.Errorf("%s: %q is read as %+v, want overload", tt.name, last, got)
		}
		if n := chunks(w.Body.String(), tt.chunk); n != 2 {
			t.Errorf("%s: %d chunks before the error, want 2", tt.name, n)
		}
	}
}
