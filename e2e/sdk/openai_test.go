package sdk_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/azure"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"
)

const prompt = "tell me of the sea"

// wide is a budget that only counts.
const wide = "    pacing: {start: conservative, ceiling: 1ms}\n    quota: {global: {calls_per_minute: 1000000, tokens_per_minute: 100000000}}\n"

func openAI(url string, more ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(url + "/openai/v1/"), option.WithAPIKey(clientKey), option.WithMaxRetries(0),
	}, more...)...)
}

func chat(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: model, MaxCompletionTokens: openai.Int(40),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
	}
}

func TestOpenAIUsageIsAccountedToTheToken(t *testing.T) {
	up := upstream(t)
	p := govern(t, up, wide)
	c := openAI(p.URL)
	var want int64
	for range 3 {
		r, err := c.Chat.Completions.New(t.Context(), chat("sim-small"))
		if err != nil {
			t.Fatal(err)
		}
		want += r.Usage.TotalTokens
	}
	r, err := c.Responses.New(t.Context(), responses.ResponseNewParams{
		Model: "sim-small", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(prompt)},
	})
	if err != nil {
		t.Fatal(err)
	}
	want += r.Usage.TotalTokens
	if _, err := c.Models.List(t.Context()); err != nil {
		t.Error(err)
	}
	checkUse(t, p, up, "openai", 4, want)
}

func TestOpenAIStreamsWithoutAskingForUsage(t *testing.T) {
	up := upstream(t)
	p := govern(t, up, wide)
	c := openAI(p.URL)
	acc := follow(t, c.Chat.Completions.NewStreaming(t.Context(), chat("sim-small")), nil)
	if acc.Choices[0].Message.Content == "" || acc.Choices[0].FinishReason == "" {
		t.Errorf("the stream came to %+v", acc.Choices[0])
	}
	if acc.Usage.TotalTokens != 0 {
		t.Errorf("the client got a usage of %d tokens that it did not ask for", acc.Usage.TotalTokens)
	}
	k := served(t, up)
	checkUse(t, p, up, "openai", 1, k.Input+k.Output)
}

func TestOpenAIStreamsWithUsage(t *testing.T) {
	up := upstream(t)
	p := govern(t, up, wide)
	params := chat("sim-small")
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	acc := follow(t, new(openAI(p.URL)).Chat.Completions.NewStreaming(t.Context(), params), nil)
	if acc.Usage.TotalTokens == 0 {
		t.Error("the usage that the client asked for did not come")
	}
	checkUse(t, p, up, "openai", 1, acc.Usage.TotalTokens)
}

func TestOpenAIResponsesStream(t *testing.T) {
	up := upstream(t)
	p := govern(t, up, wide)
	c := openAI(p.URL)
	st := c.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{
		Model: "sim-small", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(prompt)},
	})
	var total int64
	for st.Next() {
		switch e := st.Current().AsAny().(type) {
		case responses.ResponseCompletedEvent:
			total = e.Response.Usage.TotalTokens
		case responses.ResponseIncompleteEvent:
			total = e.Response.Usage.TotalTokens
		}
	}
	if err := st.Err(); err != nil || total == 0 {
		t.Errorf("the stream ended with %d tokens: %v", total, err)
	}
	checkUse(t, p, up, "openai", 1, total)
}

func TestOpenAIErrorsAreTyped(t *testing.T) {
	t.Parallel() // the SDKs wait
	up := upstream(t)
	p := govern(t, up, wide)
	for _, c := range []struct {
		model  string
		status int
		typ    string
	}{
		{"throttled", 429, ""}, {"overloaded", 503, ""}, {"quota-exhausted", 429, "insufficient_quota"},
	} {
		_, err := new(openAI(p.URL)).Chat.Completions.New(t.Context(), chat(c.model))
		e, ok := errors.AsType[*openai.Error](err)
		if !ok || e.StatusCode != c.status || c.typ != "" && e.Type != c.typ {
			t.Errorf("%s: got %v, want a typed %d %s", c.model, err, c.status, c.typ)
		}
		if c.model == "throttled" && ok && e.Response.Header.Get("Retry-After") == "" {
			t.Error("the provider's Retry-After was lost")
		}
	}
}

func TestOpenAICutStreamIsSettledByWhatWasSeen(t *testing.T) {
	up := upstream(t)
	p := govern(t, up, wide)
	params := chat("sim-cut-after-3")
	st := new(openAI(p.URL)).Chat.Completions.NewStreaming(t.Context(), params)
	acc := follow(t, st, errCut)
	if len(acc.Choices) == 0 || acc.Choices[0].Message.Content == "" {
		t.Fatal("nothing of the stream came through before it was cut")
	}
	// Three chunks of four tokens were seen, and the prompt; never the whole answer.
	p.accounted(t, "openai")
	if in, out := p.used(t, "openai"); out < 8 || out > 16 || in == 0 {
		t.Errorf("%d tokens of input and %d of output counted, want the prompt and about 12", in, out)
	}
	// OpenAI counts what was allowed against its minute; the ledger has what was used.
	in, out := p.used(t, "openai")
	if used := p.accounted(t, "openai").Global.Ledger.Used; used != in+out {
		t.Errorf("%d tokens in the ledger, want the %d that were used", used, in+out)
	}
}

func TestAzureDeployments(t *testing.T) {
	up := upstream(t)
	p := govern(t, up, wide)
	c := openai.NewClient(azure.WithEndpoint(p.URL+"/azure", "2024-10-21"), azure.WithAPIKey(clientKey),
		azure.WithUnsafeAllowHTTP(), option.WithMaxRetries(0))
	r, err := c.Chat.Completions.New(t.Context(), chat("blue"))
	if err != nil {
		t.Fatal(err)
	}
	checkUse(t, p, up, "azure", 1, r.Usage.TotalTokens)
}

// TestRefusalIsTypedAndRetried: a refusal of the proxy's own is an error that
// the SDK understands, and honours without help.
func TestRefusalIsTypedAndRetried(t *testing.T) {
	up := upstream(t)
	p := govern(t, up, "    max_wait: 500ms\n    pacing: {ceiling: 1ms}\n    quota: {global: {calls_per_minute: 20, burst: 1}}\n")
	plain := openAI(p.URL)
	ends := make(chan error)
	for range 5 { // together, so that some are refused however slow the machine is
		go func() {
			_, err := plain.Chat.Completions.New(t.Context(), chat("sim-small"))
			ends <- err
		}()
	}
	var err error
	allowed := 0
	for range 5 {
		if end := <-ends; end != nil {
			err = end
		} else {
			allowed++
		}
	}
	if allowed == 0 {
		t.Fatalf("none of five calls was allowed: %v", err)
	}
	e, ok := errors.AsType[*openai.Error](err)
	if !ok || e.StatusCode != http.StatusTooManyRequests || e.Code != "rate_limit_exceeded" {
		t.Fatalf("got %v, want a typed 429", err)
	}
	if body := string(e.DumpResponse(true)); !strings.Contains(body, "RATE_GLOBAL_LIMIT_EXCEEDED") {
		t.Errorf("the answer lacks a code of ours: %s", body)
	}
	if h := e.Response.Header; h.Get("Retry-After") == "" || h.Get("x-should-retry") != "true" {
		t.Errorf("Retry-After %q, x-should-retry %q", h.Get("Retry-After"), h.Get("x-should-retry"))
	}
	patient := openAI(p.URL, option.WithMaxRetries(4))
	if _, err := patient.Chat.Completions.New(t.Context(), chat("sim-small")); err != nil {
		t.Errorf("an SDK that retries as advertised: %v", err)
	}
	if got := served(t, up); got.Throttled != 0 {
		t.Errorf("the provider refused %d times", got.Throttled)
	}
}

func TestFiftyStreamsAtOnce(t *testing.T) {
	up := upstream(t, "--pace", "100")
	p := govern(t, up, wide)
	c := openAI(p.URL)
	ends := make(chan error)
	for range 50 {
		go func() {
			st := c.Chat.Completions.NewStreaming(t.Context(), chat("sim-small"))
			for st.Next() {
			}
			ends <- st.Err()
		}()
	}
	for range 50 {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	k := served(t, up)
	checkUse(t, p, up, "openai", 50, k.Input+k.Output)
}

// errCut stands for any error of a stream that breaks off.
var errCut = errors.New("cut")

// follow reads a stream to its end; want is nil, or errCut for any error.
func follow(t *testing.T, st *ssestream.Stream[openai.ChatCompletionChunk], want error) openai.ChatCompletionAccumulator {
	t.Helper()
	acc := openai.ChatCompletionAccumulator{}
	for st.Next() {
		if !acc.AddChunk(st.Current()) {
			t.Error("the SDK's accumulator refuses a chunk")
		}
	}
	if err := st.Err(); (err != nil) != (want != nil) {
		t.Errorf("the stream ended with %v, want %v", err, want)
	}
	return acc
}

// checkUse holds what the proxy counted against what the provider served and
// what the clients were sent.
func checkUse(t *testing.T, p proxy, up, provider string, calls, tokens int64) {
	t.Helper()
	s, k := p.accounted(t, provider), served(t, up)
	if k.Admitted != calls || s.Statistics.Approved != calls {
		t.Errorf("%d calls approved and %d served, want %d", s.Statistics.Approved, k.Admitted, calls)
	}
	in, out := p.used(t, provider)
	if in != k.Input || out != k.Output || in+out != tokens {
		t.Errorf("%d + %d tokens counted and %d + %d served, the clients were sent %d", in, out, k.Input, k.Output, tokens)
	}
}
