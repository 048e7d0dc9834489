package llm

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

// gemini is the protocol of the Gemini API. It has no headers about limits.
type gemini struct{}

func (gemini) credential(r *http.Request) string {
	if key := r.Header.Get("X-Goog-Api-Key"); key != "" {
		return key
	}
	return r.URL.Query().Get("key")
}

func (gemini) mark(http.Header, string) {}

func (gemini) limits(http.Header, []serve.Quota) {}

type geminiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []any  `json:"details,omitempty"`
}

type geminiFailure struct {
	Error geminiError `json:"error"`
}

func (gemini) refuse(_ http.Header, t trouble) (int, any) {
	failure := func(code int, status, message string, details ...any) (int, any) {
		return code, geminiFailure{geminiError{code, message, status, details}}
	}
	switch t.kind {
	case malformed:
		return failure(http.StatusBadRequest, "INVALID_ARGUMENT", t.why)
	case oversized:
		return failure(http.StatusRequestEntityTooLarge, "INVALID_ARGUMENT", "Request payload size exceeds the limit.")
	case keyless:
		return failure(http.StatusForbidden, "PERMISSION_DENIED", "Method doesn't allow unregistered callers. Please use an API key.")
	case unknownKey:
		return failure(http.StatusBadRequest, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", map[string]string{
			"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com",
		})
	case unknownPath:
		return failure(http.StatusNotFound, "NOT_FOUND", "Not found: "+t.why+".")
	case throttled, exhausted:
		return failure(http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", t.geminiDetails()...)
	case overloaded:
		return failure(http.StatusServiceUnavailable, "UNAVAILABLE", "The model is overloaded. Please try again later.")
	case suspended:
		return failure(http.StatusForbidden, "PERMISSION_DENIED", "Consumer has been suspended.")
	}
	return failure(http.StatusInternalServerError, "INTERNAL", "An internal error has occurred.")
}

// geminiDetails names the quota and the wait. For a daily quota the wait is less than a
// minute and too short, as with the real API.
func (t trouble) geminiDetails() []any {
	var all []any
	q, wait, said := t.limit, t.wait, t.said
	if t.kind == exhausted {
		q, wait, said = &serve.Quota{}, 34*time.Second, true
		q.Kind, q.Window, q.Limit = scenario.FixedWindow, 24*time.Hour, 1
	}
	if q != nil {
		metric, id := "generate_content_requests", "GenerateRequestsPerMinutePerProjectPerModel"
		switch tokens, daily := q.Kind == scenario.CostWindow, window(q) == "day"; {
		case tokens && daily:
			metric, id = "generate_content_input_token_count", "GenerateContentInputTokensPerModelPerDay"
		case tokens:
			metric, id = "generate_content_input_token_count", "GenerateContentInputTokensPerModelPerMinute"
		case daily:
			id = "GenerateRequestsPerDayPerProjectPerModel"
		}
		if window(q) == "day" {
			wait = max(wait%time.Minute, time.Second)
		}
		all = append(all, map[string]any{
			"@type": "type.googleapis.com/google.rpc.QuotaFailure",
			"violations": []any{map[string]any{
				"quotaMetric":     "generativelanguage.googleapis.com/" + metric,
				"quotaId":         id,
				"quotaDimensions": map[string]string{"model": t.call.model, "location": "global"},
				"quotaValue":      whole(q.Limit),
			}},
		})
	}
	if said {
		all = append(all, map[string]string{
			"@type":      "type.googleapis.com/google.rpc.RetryInfo",
			"retryDelay": strconv.FormatFloat(ceil(wait, time.Millisecond).Seconds(), 'f', -1, 64) + "s",
		})
	}
	return all
}

func (gemini) models() any {
	type model struct {
		Name    string   `json:"name"`
		Display string   `json:"displayName"`
		Methods []string `json:"supportedGenerationMethods"`
	}
	all := make([]model, len(known))
	for i, id := range known {
		all[i] = model{"models/" + id, id, []string{"generateContent", "streamGenerateContent", "countTokens"}}
	}
	return struct {
		Models []model `json:"models"`
	}{all}
}

// generate handles calls of a model, which the path names before a colon.
var generate = endpoint{
	dialect: gemini{}, read: readGenerate, charge: chargeGemini,
	plain:  func(a *answer) any { return newGeneration(a, a.text, a.output, true) },
	script: func(a *answer) script { return generateScript{a} },
	count: func(c call) any {
		return struct {
			Total int `json:"totalTokens"`
		}{c.tokens}
	},
}

// chargeGemini returns the prompt's tokens: the limit is on input.
func chargeGemini(a *answer) int { return a.tokens }

func readGenerate(r *http.Request, body []byte) (call, error) {
	model, method, _ := strings.Cut(r.PathValue("call"), ":")
	switch method {
	case "generateContent", "streamGenerateContent", "countTokens":
	default:
		return call{}, errNowhere
	}
	type content struct {
		Role  string `json:"role"`
		Parts []part `json:"parts"`
	}
	var in struct {
		Contents []content `json:"contents"`
		System   *content  `json:"systemInstruction"`
		Tools    []part    `json:"tools"`
		Config   struct {
			MaxOutput  *int64 `json:"maxOutputTokens"`
			Candidates *int64 `json:"candidateCount"`
		} `json:"generationConfig"`
	}
	if err := decode(body, &in); err != nil {
		return call{}, err
	}
	c, err := newCall(model, in.Config.MaxOutput, "generationConfig.maxOutputTokens")
	if err = errors.Join(err, one("generationConfig.candidateCount", in.Config.Candidates)); err != nil {
		return c, err
	}
	if len(in.Contents) == 0 {
		return c, badRequest{"contents", "is not specified"}
	}
	if in.System != nil {
		in.Contents = append(in.Contents, *in.System)
	}
	for _, m := range in.Contents {
		c.tokens += tokensPerMessage
		c.note(m.Role)
		c.parts(m.Parts)
	}
	c.parts(in.Tools)
	c.counting = method == "countTokens"
	c.stream = method == "streamGenerateContent"
	c.array = c.stream && r.URL.Query().Get("alt") != "sse"
	return c, nil
}

type generation struct {
	Candidates []candidate     `json:"candidates"`
	Usage      generationUsage `json:"usageMetadata"`
	Model      string          `json:"modelVersion"`
	ID         string          `json:"responseId"`
}

type candidate struct {
	Content struct {
		Parts []map[string]string `json:"parts"`
		Role  string              `json:"role"`
	} `json:"content"`
	Finish string `json:"finishReason,omitempty"`
	Index  int    `json:"index"`
}

type generationUsage struct {
	Prompt     int `json:"promptTokenCount"`
	Candidates int `json:"candidatesTokenCount,omitempty"`
	Total      int `json:"totalTokenCount"`
	Cached     int `json:"cachedContentTokenCount,omitempty"`
	Thoughts   int `json:"thoughtsTokenCount,omitempty"`
}

// newGeneration returns a chunk, after which sent tokens have been sent, or the whole
// answer.
func newGeneration(a *answer, text string, sent int, last bool) generation {
	g := generation{
		Candidates: make([]candidate, 1), Model: a.model, ID: a.id,
		Usage: generationUsage{a.tokens, sent, a.tokens + a.thoughts + sent, a.cached, a.thoughts},
	}
	c := &g.Candidates[0]
	c.Content.Parts, c.Content.Role = []map[string]string{{"text": text}}, "model"
	if last {
		c.Finish = "STOP"
		if a.cut {
			c.Finish = "MAX_TOKENS"
		}
	}
	return g
}

type generateScript struct{ a *answer }

func (generateScript) begin() []event { return nil }

func (s generateScript) piece(text string, sent int) []event {
	return []event{{data: newGeneration(s.a, text, sent, sent == s.a.output)}}
}

func (generateScript) end() []event { return nil }

func (generateScript) broken() []event {
	_, body := gemini{}.refuse(nil, trouble{kind: overloaded})
	return []event{{data: body, bare: true}}
}
