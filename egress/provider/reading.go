package provider

import (
	"bytes"
	"errors"

	"github.com/headway-go/headway/internal/rawjson"
	"github.com/headway-go/headway/quota"
)

const (
	// maxModel is the maximum length of a model's name, as in package quota.
	maxModel = 256
	// maxChoices is more answers than any API returns at once.
	maxChoices = 1024
	// maxSpans is the maximum number of members with text for the model.
	maxSpans = 12
)

var errTwoModels = errors.New(`the body names two models: "model" must be there once`)

// reading is one pass over a request's body. It serves all APIs, since no member has two
// meanings.
type reading struct {
	body  []byte
	call  Call // the result
	named bool // a model was named

	// spans are the positions of members with text for the model.
	spans [maxSpans]span
	n     int
}

type span struct {
	at  int
	raw bool // as raw JSON, not the strings in it
}

// request reads the whole body.
func (r *reading) request() error {
	b := bytes.TrimPrefix(r.body, []byte("\xef\xbb\xbf"))
	i := rawjson.Space(b, 0)
	switch {
	case i == len(b):
		return errors.New("the body is empty, must be a JSON object")
	case b[i] == 0x1f || b[i] == 0x28:
		return errors.New("the body is compressed, must be plain JSON")
	case b[i] != '{':
		return errors.New("the body must be a JSON object")
	}
	r.body = b
	end := rawjson.Each(b, i, r.member)
	switch {
	case end == twoModels:
		return errTwoModels
	case end < 0 || rawjson.Space(b, end) != len(b):
		return errors.New("the body is not valid JSON, must be one whole object")
	}
	return nil
}

// twoModels is a position that reports the error.
const twoModels = -2

// member visits a member of the request.
func (r *reading) member(key []byte, i int) int {
	switch string(key) {
	case "messages", "contents", "input", "prompt", "content", "system", "systemInstruction", "system_instruction",
		"instructions", "requests", "instances", "suffix":
		return r.words(i)
	case "tools", "functions", "response_format", "text", "output_config", "output_format":
		return r.schema(i)
	case "stream":
		r.call.Stream = rawjson.At(r.body, i) == 't'
	case "max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample":
		return r.most(i)
	case "n", "best_of":
		return r.choices(i)
	case "generationConfig", "generation_config":
		if rawjson.At(r.body, i) == '{' {
			return rawjson.Each(r.body, i, r.config)
		}
	default:
		// Some servers ignore case, so a member in any case names the model.
		if len(key) == len("model") && bytes.EqualFold(key, []byte("model")) {
			return r.model(i)
		}
	}
	return rawjson.Skip(r.body, i)
}

// config visits a member of Gemini's generationConfig.
func (r *reading) config(key []byte, i int) int {
	switch string(key) {
	case "maxOutputTokens", "max_output_tokens":
		return r.most(i)
	case "candidateCount", "candidate_count":
		return r.choices(i)
	case "responseSchema", "response_schema", "responseJsonSchema", "response_json_schema":
		return r.schema(i)
	}
	return rawjson.Skip(r.body, i)
}

func (r *reading) most(i int) int {
	end := rawjson.Skip(r.body, i)
	if end > 0 {
		r.call.MaxTokens = max(r.call.MaxTokens, number(r.body[i:end], quota.MaxTokens))
	}
	return end
}

func (r *reading) choices(i int) int {
	end := rawjson.Skip(r.body, i)
	if end > 0 {
		r.call.Choices = max(r.call.Choices, number(r.body[i:end], maxChoices))
	}
	return end
}

func (r *reading) model(i int) int {
	end := rawjson.Skip(r.body, i)
	if end < 0 || r.body[i] != '"' {
		return end
	}
	if r.name(rawjson.Unquote(r.body[i+1:end-1])) != nil {
		return twoModels
	}
	return end
}

func (r *reading) name(model []byte) error {
	model = model[:min(len(model), maxModel)]
	if r.named && r.call.Model != string(model) {
		return errTwoModels
	}
	r.named, r.call.Model = true, string(model)
	return nil
}

// words visits a member whose strings the model reads.
func (r *reading) words(i int) int {
	w := walk{body: r.body}
	end := w.value(i, 0)
	r.call.Extra += w.flat
	r.note(i, false)
	return end
}

// schema visits a member that the model reads as raw JSON.
func (r *reading) schema(i int) int {
	end := rawjson.Skip(r.body, i)
	if c := rawjson.At(r.body, i); c == '{' || c == '[' {
		r.note(i, true)
	}
	return end
}

func (r *reading) note(i int, raw bool) {
	if r.n < maxSpans {
		r.spans[r.n] = span{i, raw}
		r.n++
	}
}

// texts yields what the model reads, member by member.
func (r *reading) texts(yield func(string) bool) {
	for _, s := range r.spans[:r.n] {
		if s.raw {
			if !yield(string(r.body[s.at:rawjson.Skip(r.body, s.at)])) {
				return
			}
			continue
		}
		w := walk{body: r.body, say: yield}
		if w.value(s.at, 0) < 0 {
			return
		}
	}
}
