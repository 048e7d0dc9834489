package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/headway-go/headway/internal/sim/serve"
)

// The rule for tokens: four bytes of text are one, rounded up for each text. Messages and
// requests add some.
const (
	bytesPerToken    = 4
	tokensPerMessage = 4
	tokensPerRequest = 3
)

const (
	maxBody   = 8 << 20   // bytes of a request's body
	maxModel  = 256       // bytes of a model's name
	maxOutput = 1_000_000 // tokens that a request may ask for
)

func tokens(bytes int) int { return (bytes + bytesPerToken - 1) / bytesPerToken }

// prompt is the part of a request that the answer depends on. It does not include what a
// proxy may change without changing the question, such as the order of fields and options
// of streams.
type prompt struct {
	tokens int
	digest uint64
}

func newPrompt(model string) prompt {
	p := prompt{tokens: tokensPerRequest}
	p.note(model)
	return p
}

// note adds text to the digest.
func (p *prompt) note(text string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	p.digest = serve.Mix(p.digest ^ h.Sum64())
}

func (p *prompt) text(text string) {
	p.tokens += tokens(len(text))
	p.note(text)
}

// raw counts JSON that is not text, such as tools and images, as raw JSON.
func (p *prompt) raw(value json.RawMessage) {
	var compact bytes.Buffer
	if len(value) == 0 || string(value) == "null" || json.Compact(&compact, value) != nil {
		return
	}
	p.text(compact.String())
}

// part is a part of a message: text, or something else.
type part struct {
	words *string
	value json.RawMessage
}

// UnmarshalJSON accepts any object.
func (p *part) UnmarshalJSON(value []byte) error {
	var t struct {
		Text *string `json:"text"`
	}
	if err := json.Unmarshal(value, &t); err != nil {
		return err
	}
	p.words, p.value = t.Text, bytes.Clone(value)
	return nil
}

func (p *prompt) parts(all []part) {
	for _, one := range all {
		if one.words != nil {
			p.text(*one.words)
		} else {
			p.raw(one.value)
		}
	}
}

// content reads a text or a list of parts.
func (p *prompt) content(field string, value json.RawMessage) error {
	if len(value) == 0 || string(value) == "null" {
		return nil
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		p.text(text)
		return nil
	}
	var all []part
	if json.Unmarshal(value, &all) != nil {
		return badRequest{field, "must be a string or an array of objects"}
	}
	p.parts(all)
	return nil
}

// call is a parsed request.
type call struct {
	prompt
	model  string
	most   int // tokens of output; 0 means no bound
	stream bool
	usage  bool // a chat stream reports its usage
	array  bool // a stream is a JSON array, not server-sent events

	counting, listing bool // nothing is generated
}

// newCall checks the fields that every request has.
func newCall(model string, most *int64, name string) (call, error) {
	c := call{model: model}
	switch {
	case model == "":
		return c, badRequest{"model", "is missing"}
	case len(model) > maxModel || strings.ContainsFunc(model, func(r rune) bool { return r < ' ' }):
		return c, badRequest{"model", fmt.Sprintf("must be a name of at most %d bytes", maxModel)}
	case most != nil && (*most < 1 || *most > maxOutput):
		return c, badRequest{name, fmt.Sprintf("is %d, must be from 1 to %d", *most, maxOutput)}
	case most != nil:
		c.most = int(*most)
	}
	c.prompt = newPrompt(model)
	return c, nil
}

// badRequest is an error in a request. Its text has no content.
type badRequest struct{ field, why string }

func (e badRequest) Error() string { return e.field + ": " + e.why }

// decode decodes a body, which must be one JSON object.
func decode(body []byte, into any) error {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return badRequest{"body", "must be a JSON object"}
	}
	if err := json.Unmarshal(body, into); err != nil {
		return badRequest{"body", "is not the JSON that this call takes"}
	}
	return nil
}

// one checks a requested number of answers, which must be one.
func one(field string, n *int64) error {
	if n != nil && *n != 1 {
		return badRequest{field, fmt.Sprintf("is %d, must be 1: this provider gives one answer", *n)}
	}
	return nil
}
