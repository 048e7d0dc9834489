package egress_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/estimate"
	"github.com/headway-go/headway/quota"
)

// TestTheDayIsChargedWhatWasUsed: what a provider counts by the minute is its own
// affair; days, windows, output budgets and reports count input and output.
func TestTheDayIsChargedWhatWasUsed(t *testing.T) {
	const many = 100_000
	limits := quota.Limits{
		TokensPerMinute: many, TokenBurst: many, OutputTokensPerMinute: many, MaxDailyTokens: many,
		SoftTokenBudget: many, SoftTokenWindowMS: 60_000,
	}
	usage := func(in, cached, out, reasoned int) string {
		return fmt.Sprintf(`{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},"completion_tokens_details":{"reasoning_tokens":%d}}}`, in, out, in+out, cached, reasoned)
	}
	for name, c := range map[string]struct {
		api            provider.API
		upstream, rule string
		path, ask      string
		answer         string
		day, by, out   int64
		apart          [2]int64 // cached and reasoning tokens
	}{
		"OpenAI counts max_tokens": {
			provider.OpenAI, "", "", "/p/v1/chat/completions", `{"model":"m","max_tokens":8000,"messages":[]}`, usage(100, 40, 50, 30),
			150, 8000, 50, [2]int64{40, 30},
		},
		"a copy of its API counts what was used": {
			provider.OpenAI, "http://copy/v1", "", "/p/chat/completions", `{"model":"m","max_tokens":8000,"messages":[]}`, usage(100, 0, 50, 0),
			150, 150, 50, [2]int64{},
		},
		"a copy whose owner says otherwise": {
			provider.OpenAI, "http://copy/v1", "openai", "/p/chat/completions", `{"model":"m","max_tokens":8000,"messages":[]}`, usage(100, 0, 50, 0),
			150, 8000, 50, [2]int64{},
		},
		"Azure keeps its estimate for the minute": {
			provider.AzureOpenAI, "http://azure", "", "/p/openai/deployments/m/chat/completions?api-version=1", `{"model":"m","max_tokens":8000,"messages":[]}`, usage(100, 0, 50, 0),
			150, 8100, 50, [2]int64{},
		},
		"Gemini counts no output": {
			provider.Gemini, "", "", "/p/v1beta/models/m:generateContent", `{"contents":[]}`,
			`{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":500,"thoughtsTokenCount":4000,"totalTokenCount":4600}}`,
			4600, 100, 4500, [2]int64{0, 4000},
		},
		"Anthropic counts no cache reads": {
			provider.Anthropic, "", "", "/p/v1/messages", `{"model":"m","max_tokens":8000,"messages":[]}`,
			`{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":100,"cache_read_input_tokens":900,"output_tokens":50}}`,
			1050, 150, 50, [2]int64{900, 0},
		},
	} {
		bubble(t, name, func(t *testing.T) {
			d, err := provider.New(provider.Settings{API: c.api, Upstream: c.upstream, Charge: c.rule})
			if err != nil {
				t.Fatal(err)
			}
			up := &mirror{body: c.answer, header: http.Header{"Content-Type": {"application/json"}}}
			x := newRig(t, c.api, up, func(p *egress.Provider, _ *egress.Options) {
				config := generous()
				config.Models["others"] = quota.Model{Limits: limits, Charge: d.Charge}
				p.Description, p.Pacing, p.Approver = d, nil, newLedger(t, config)
			})
			if res, body, err := x.ask(t, "POST", c.path, c.ask); err != nil || res.StatusCode != 200 {
				t.Fatal(res, err, body)
			}
			synctest.Wait()
			s := x.quota.Snapshot().Models["others"]
			if day := many - *s.DailyTokensRemaining; day != c.day || s.Ledger.Used != c.day {
				t.Errorf("the day was charged %d, the ledger %d, want %d", day, s.Ledger.Used, c.day)
			}
			if window := many - *s.SoftTokensRemaining; window != c.day {
				t.Errorf("the soft window holds %d, want %d", window, c.day)
			}
			if by := many - *s.TokensRemaining; by != c.by {
				t.Errorf("the minute was charged %d, want %d", by, c.by)
			}
			for _, f := range x.quota.Forecast(quota.Scope{Model: "others"}) {
				if f.Budget == "outputTokens" && many-f.Remaining != c.out {
					t.Errorf("the output budget was charged %d, want %d", many-f.Remaining, c.out)
				}
			}
			if apart := [2]int64{s.Ledger.Cached, s.Ledger.Reasoning}; apart != c.apart {
				t.Errorf("cached and reasoning tokens are %v, want %v", apart, c.apart)
			}
			used := x.last(t).Used
			if used.Input+used.Output != c.day || used.Cached != c.apart[0] || used.Reasoning != c.apart[1] {
				t.Errorf("the call says %+v", used)
			}
			if status := x.proxy.Status()[0].Tokens; status != used {
				t.Errorf("the provider's totals are %+v, the call's %+v", status, used)
			}
			if !strings.Contains(x.log.text(), fmt.Sprintf("reasoning_tokens=%d", c.apart[1])) {
				t.Error("the log does not say the reasoning tokens")
			}
		})
	}
}

// narrow is an upstream that takes two calls a second, ten at once, and says
// nothing of it in its headers.
type narrow struct {
	mu      sync.Mutex
	level   float64
	at      time.Time
	refused int
}

func (n *narrow) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	time.Sleep(50 * time.Millisecond)
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	n.level, n.at = min(10, n.level+2*now.Sub(n.at).Seconds()), now
	status := http.StatusOK
	if n.level < 1 {
		status = http.StatusTooManyRequests
		n.refused++
	} else {
		n.level--
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2,
	}, nil
}

// TestABurstThatTheProviderRefusesIsSpread: an owner who gives a burst of 120 at
// 120 a minute loses the calls that were under way, and not those of every burst.
func TestABurstThatTheProviderRefusesIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &narrow{level: 10, at: time.Now()}
		x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, _ *egress.Options) {
			config := generous()
			config.Global = quota.Limits{CallsPerMinute: 120, Burst: 120}
			p.Approver, p.Pacing, p.MaxWait = newLedger(t, config), nil, time.Minute
			p.Circuit.Off = true
		})
		const clients = 20
		var all sync.WaitGroup
		answered := make(chan int, 4000)
		for range clients {
			all.Go(func() {
				for range 4 { // bursts of work, with rests in which the owner's bucket fills
					for range 15 {
						res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false))
						if err != nil {
							t.Error(err)
							return
						}
						answered <- res.StatusCode
					}
					time.Sleep(5 * time.Minute)
				}
			})
		}
		all.Wait()
		close(answered)
		ok := 0
		for status := range answered {
			if status == http.StatusOK {
				ok++
			}
		}
		if up.refused > 2*clients || ok < 4*15*clients-2*clients {
			t.Errorf("%d calls were answered and %d refused by the provider, want no more refused than were under way", ok, up.refused)
		}
	})
}

// reports returns a provider that reports the same usage for every call.
func reports(input, output int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, input, output, input+output)
	})
}

// repeat sends a body some times and gives the log of the last.
func (x *rig) repeat(t *testing.T, times int, path, body string) egress.CallLog {
	t.Helper()
	for range times {
		if a, text, err := x.ask(t, http.MethodPost, path, body); err != nil || a.StatusCode != http.StatusOK {
			t.Fatal(a, text, err)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.calls[len(x.calls)-1]
}

const (
	chatPath  = "/p/v1/chat/completions"
	wordsOnly = `{"model":"m","messages":[{"role":"user","content":"What is this?"}]}`
	withImage = `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},` +
		`{"type":"image_url","image_url":{"url":"https://example.org/a.png","detail":"low"}}]}]}`
)

func TestImagesTeachNothingOfTheText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A hundred tokens for the image and some for four words of text.
		transport, _ := serveOn(t, reports(130, 5))
		x := newRig(t, provider.OpenAI, transport, nil)
		first := x.repeat(t, 1, chatPath, wordsOnly).Estimated.Input
		x = newRig(t, provider.OpenAI, transport, nil)
		image := x.repeat(t, 20, chatPath, withImage)
		if image.Estimated.Input != first+85 {
			t.Errorf("with an image %d tokens are expected, want %d more than %d", image.Estimated.Input, 85, first)
		}
		if got := x.repeat(t, 1, chatPath, wordsOnly).Estimated.Input; got != first {
			t.Errorf("after images %d tokens are expected of the text, want %d as before", got, first)
		}
		if got := x.repeat(t, 60, chatPath, wordsOnly).Estimated.Input; got <= 2*first {
			t.Errorf("after text %d tokens are expected of the text, want more than %d: the provider said %d", got, 2*first, 130)
		}
		x.settled(t)
	})
}

func TestOutputIsExpectedForEachChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const choices = `,"n":3,"messages":[]}`
		transport, _ := serveOn(t, reports(10, 300))
		x := newRig(t, provider.OpenAI, transport, nil)
		if got := x.repeat(t, 1, chatPath, `{"model":"m"`+choices).Estimated.Output; got != 3*estimate.DefaultOutput {
			t.Errorf("at first %d are expected of three answers, want %d", got, 3*estimate.DefaultOutput)
		}
		if got := x.repeat(t, 200, chatPath, `{"model":"m"`+choices).Estimated.Output; got != 300 {
			t.Errorf("at last %d are expected of three answers, want 300", got)
		}
		if got := x.repeat(t, 1, chatPath, `{"model":"m","messages":[]}`).Estimated.Output; got != 100 {
			t.Errorf("%d are expected of one answer, want 100", got)
		}
		if got := x.repeat(t, 1, chatPath, `{"model":"m","max_tokens":20`+choices).Estimated.Output; got != 60 {
			t.Errorf("%d are expected of three answers of 20 at most, want 60", got)
		}
		x.settled(t)
	})
}

func TestEmbeddingsHaveNoOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, _ := serveOn(t, reports(2, 0))
		x := newRig(t, provider.OpenAI, transport, nil)
		c := x.repeat(t, 1, "/p/v1/embeddings", `{"model":"m","input":"some words"}`)
		if c.Estimated.Output != 0 || c.Estimated.Input == 0 || c.Used.Input != 2 {
			t.Errorf("expected are %+v, used %+v", c.Estimated, c.Used)
		}
		if got := x.repeat(t, 1, chatPath, `{"model":"other","messages":[]}`).Estimated.Output; got != estimate.DefaultOutput {
			t.Errorf("of a chat %d are expected, want %d", got, estimate.DefaultOutput)
		}
		x.settled(t)
	})
}

// TestNothingIsCountedBeforeTheProviderObjects: tokens of prompts are counted from the first
// refusal on, which is itself settled for what it was to cost, and where a provider does not
// say what was used.
func TestNothingIsCountedBeforeTheProviderObjects(t *testing.T) {
	answers := []struct {
		status        int
		body          string
		free, counted bool
	}{
		{200, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`, true, false},
		{200, `{"choices":[]}`, true, true},
		{429, `{"error":{}}`, true, true},
		{200, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`, false, true},
	}
	synctest.Test(t, func(t *testing.T) {
		n := 0
		transport, _ := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(answers[n].status)
			_, _ = io.WriteString(w, answers[n].body)
		}))
		pacing, err := headway.New(headway.Config{Name: "p", Passive: true})
		if err != nil {
			t.Fatal(err)
		}
		x := newRig(t, provider.OpenAI, transport, func(p *egress.Provider, _ *egress.Options) {
			p.Approver, p.Models, p.Pacing, p.MaxWait = nil, nil, pacing, time.Hour
		})
		for i, a := range answers {
			n = i
			if got := pacing.Unlimited("m"); got != a.free {
				t.Errorf("before call %d unlimited is %v, want %v", i+1, got, a.free)
			}
			if _, _, err := x.ask(t, http.MethodPost, chatPath, wordsOnly); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			x.mu.Lock()
			c := x.calls[i]
			x.mu.Unlock()
			if c.Status != a.status || (c.Estimated.Input > 0) != a.counted || (c.Used.Input > 0) != (a.status == 200) {
				t.Errorf("call %d: status %d, expected %+v, used %+v", i+1, c.Status, c.Estimated, c.Used)
			}
		}
	})
}
