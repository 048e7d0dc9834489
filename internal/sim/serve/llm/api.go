// Package llm simulates a provider of language models over real HTTP, for tests of proxies
// and clients. An [API] is mounted on a [serve.Server], whose scenario limits it.
//
// # Endpoints
//
//	POST /v1/chat/completions                           OpenAI, plain and streamed
//	POST /v1/responses                                  OpenAI, plain and streamed
//	POST /openai/deployments/{name}/chat/completions    Azure OpenAI
//	POST /openai/v1/chat/completions, /openai/v1/responses
//	POST /v1/messages                                   Anthropic, plain and streamed
//	POST /v1/messages/count_tokens
//	POST /v1beta/models/{model}:generateContent         Gemini; also below /v1
//	POST /v1beta/models/{model}:streamGenerateContent   ?alt=sse, or a JSON array
//	POST /v1beta/models/{model}:countTokens
//	GET  /v1/models, /openai/v1/models, /v1beta/models
//
// All of them share the limits of one scenario, like the keys of one account; serve several
// for several providers. The path determines the format of headers and errors; below /v1,
// where two providers share paths, the field anthropic-version does. Each provider accepts
// its own kind of key (Authorization: Bearer, api-key, x-api-key, x-goog-api-key) and
// refuses a missing one in its own format. Any key is accepted, unless the server has a
// token. Any model name is accepted.
//
// # Tokens
//
// Four bytes of text are a token, rounded up for each text. A message, or a string in place
// of one, adds 4 tokens and a request 3. Other input, such as tools and images, counts as
// its compact JSON. Of a prompt of 1,024 tokens or more, half is in a cache, in multiples
// of 128: read from it or, equally often, written to it, which only Anthropic reports. The
// answer depends only on seed, model and prompt; it is half to one and a half times as long
// as the mean, and at most as long as the caller allows. Models with "thinking" in their
// names generate half as many thinking tokens in addition.
//
// # Limits
//
// A request counts as one, and in tokens as its provider charges on admission: with OpenAI
// the larger of the prompt and the caller's bound on the output, with Anthropic the prompt
// outside the cache and the output, with Gemini the prompt. Malformed requests, and those
// that list models or count tokens, do not count. A concurrency limit counts streams that
// are really in flight. The scenario's retry_after says whether and how exactly a refusal
// reports the wait, and the endpoint's protocol in which fields; the scenario's headers and
// status are not used. An outage of the scenario looks like overload. A window of 23 hours
// or more is reported as a day.
//
// # Trouble on demand
//
// A request for a model whose name is one of these, or ends in a hyphen and one of these,
// is charged and then fails:
//
//	cut-after-N        the connection ends after N chunks, or halfway a plain answer
//	error-after-N      an error comes after N chunks; a plain answer is overloaded
//	error-in-stream    error-after-1
//	overloaded         529 with Anthropic, 503 with the others
//	quota-exhausted    the account's budget is gone
//	throttled          429, with a wait of one second
//
// A stream that is too short for that fails at its end. Chunks have four tokens.
//
// It is not a reference for models' answers or costs. The server's stats count by key
// ([serve.Stats]), and its log has a line for each decision. An API is safe for concurrent
// use. Time is real, or that of a testing/synctest bubble.
package llm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim/serve"
)

const (
	defaultOutput = 64
	maxMean       = 100_000
	fastest       = 1e6
)

// Options configure the answers. The zero value answers with 64 tokens on average, without
// delay.
type Options struct {
	// Seed determines the answers.
	Seed uint64
	// OutputTokens is the approximate mean length of an answer: 1 to 100,000, default 64.
	OutputTokens int
	// TokensPerSecond is the rate at which a call's output is generated, at most 1,000,000;
	// 0, the default, means no delay.
	TokensPerSecond float64
}

// API has the endpoints, for [serve.Options].APIs. It is immutable.
type API struct {
	seed uint64
	mean int
	pace float64
}

// New checks the options. Errors name the option, its value and its bounds.
func New(opt Options) (*API, error) {
	opt.OutputTokens = cmp.Or(opt.OutputTokens, defaultOutput)
	if opt.OutputTokens < 1 || opt.OutputTokens > maxMean {
		return nil, fmt.Errorf("llm: option OutputTokens is %d, must be from 1 to %d", opt.OutputTokens, maxMean)
	}
	if !(opt.TokensPerSecond >= 0 && opt.TokensPerSecond <= fastest) {
		return nil, fmt.Errorf("llm: option TokensPerSecond is %g, must be from 0 to %g", opt.TokensPerSecond, fastest)
	}
	return &API{seed: opt.Seed, mean: opt.OutputTokens, pace: opt.TokensPerSecond}, nil
}

// Mount adds the endpoints.
func (a *API) Mount(mux *http.ServeMux, gate *serve.Gate) {
	for pattern, e := range map[string]endpoint{
		"POST /v1/chat/completions":                              chat(openAI{}),
		"POST /v1/responses":                                     responses(openAI{}),
		"POST /openai/deployments/{deployment}/chat/completions": chat(azure{}),
		"POST /openai/v1/chat/completions":                       chat(azure{}),
		"POST /openai/v1/responses":                              responses(azure{}),
		"POST /v1/messages":                                      messages,
		"POST /v1/messages/count_tokens":                         countTokens,
		"POST /v1beta/models/{call}":                             generate,
		"POST /v1/models/{call}":                                 generate,
		"GET /v1/models":                                         list(openAI{}),
		"GET /v1beta/models":                                     list(gemini{}),
		"GET /openai/v1/models":                                  list(azure{}),
		"/v1/":                                                   nowhere(openAI{}),
		"/openai/":                                               nowhere(azure{}),
		"/v1beta/":                                               nowhere(gemini{}),
	} {
		mux.Handle(pattern, port{endpoint: e, api: a, gate: gate})
	}
}

// dialect is one provider's protocol: how a call identifies its caller, and how limits and
// errors are reported.
type dialect interface {
	// credential returns the caller's key; empty if there is none.
	credential(r *http.Request) string
	// mark sets the request's id, if the provider does so.
	mark(h http.Header, id string)
	// limits reports the rest of the limits.
	limits(h http.Header, left []serve.Quota)
	// refuse returns the response to a failed call, and may add to the header.
	refuse(h http.Header, t trouble) (status int, body any)
	// models returns the list of models.
	models() any
}

// endpoint handles the calls of one path.
type endpoint struct {
	dialect
	// open reports that OpenAI and Anthropic share this path.
	open bool
	// read parses a body; its error is a badRequest or errNowhere.
	read func(r *http.Request, body []byte) (call, error)
	// charge returns the charge on the limit on tokens, on admission.
	charge func(a *answer) int
	plain  func(a *answer) any
	script func(a *answer) script
	// count responds to a call that only counts the tokens of a prompt.
	count func(c call) any
}

// list returns an endpoint that lists the models; it meets no limit.
func list(d dialect) endpoint {
	return endpoint{dialect: d, open: true, read: func(*http.Request, []byte) (call, error) { return call{listing: true}, nil }}
}

// nowhere returns an endpoint that refuses every call.
func nowhere(d dialect) endpoint {
	return endpoint{dialect: d, open: true, read: func(*http.Request, []byte) (call, error) { return call{}, errNowhere }}
}

var errNowhere = errors.New("no such path or method")

// trouble describes a refusal.
type trouble struct {
	kind
	id    string
	call  call
	why   string       // of a malformed request
	limit *serve.Quota // the limit that throttles; nil if it counts neither calls nor tokens
	cost  int          // in tokens
	wait  time.Duration
	said  bool // the response has the wait
}

// port serves an endpoint.
type port struct {
	endpoint
	api  *API
	gate *serve.Gate
}

// ServeHTTP handles one call.
func (p port) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.open && r.Header.Get("Anthropic-Version") != "" {
		p.dialect = anthropic{}
	}
	key := p.credential(r)
	if !p.gate.Knows(key) {
		t := trouble{kind: unknownKey}
		if key == "" {
			t.kind = keyless
		}
		p.fail(w, t)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		p.fail(w, trouble{kind: oversized})
		return
	} else if err != nil {
		return // the client has disconnected
	}
	c, err := p.read(r, body)
	switch bad, ok := errors.AsType[badRequest](err); {
	case ok:
		p.fail(w, trouble{kind: malformed, why: bad.Error()})
	case err != nil:
		p.fail(w, trouble{kind: unknownPath, why: r.Method + " of this path"})
	case c.listing:
		send(w, http.StatusOK, p.models())
	case c.counting:
		send(w, http.StatusOK, p.count(c))
	default:
		p.generate(w, r, c, serve.KeyID(key))
	}
}

// generate takes a call through the limits and responds to it.
func (p port) generate(w http.ResponseWriter, r *http.Request, c call, key string) {
	a := p.api.answer(c, time.Now())
	cost := max(1, p.charge(a))
	v, ok := p.gate.Enter(w, r, serve.Call{Key: key, Model: c.model, Cost: float64(cost), Busy: p.api.lasts(a.generated(), 1)})
	if !ok {
		return
	}
	defer v.Leave()
	p.mark(v.Header(), a.id)
	p.limits(v.Header(), v.Quotas)
	t := trouble{id: a.id, call: c, cost: cost}
	f := faultOf(c.model)
	switch {
	case v.Suspended:
		t.kind = suspended
	case v.Throttled:
		t.kind, t.wait, t.said = throttled, v.RetryAfter, v.HasRetryAfter
		for i := range v.Quotas {
			if q := &v.Quotas[i]; q.Name == v.Limit {
				t.limit = q
			}
		}
	case !v.Admitted, f.ailment == ailing, f.ailment == erring && !c.stream:
		t.kind = overloaded
	case f.ailment == spent:
		t.kind = exhausted
	case f.ailment == throttling:
		t.kind, t.wait, t.said = throttled, time.Second, true
	default:
		p.reply(v, r, a, f)
		return
	}
	v.Free()
	p.fail(v, t)
}

// lasts returns how long it takes to generate a number of tokens.
func (a *API) lasts(tokens int, slow float64) time.Duration {
	if a.pace == 0 {
		return 0
	}
	return time.Duration(math.Round(float64(tokens) / a.pace * slow * float64(time.Second)))
}

func (e endpoint) fail(w http.ResponseWriter, t trouble) {
	status, body := e.refuse(w.Header(), t)
	send(w, status, body)
}

func send(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(body)) // the client may have disconnected
}

// encode encodes JSON as providers do, without escaping <, > and &. It is called only for
// values that can be encoded.
func encode(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("llm: " + err.Error())
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

const (
	// pieceTokens is the maximum number of tokens in a chunk.
	pieceTokens = 4
	// cacheFrom is the shortest prompt that is cached; the cached part is a multiple of
	// cacheStep.
	cacheFrom = 1024
	cacheStep = 128
)

// answer is the answer to a call. It depends only on the seed, the call and the time.
type answer struct {
	call
	id       string // 16 hexadecimal digits
	cached   int    // tokens of the prompt that were read from a cache
	written  int    // tokens of the prompt that were written to one
	thoughts int    // tokens
	output   int    // tokens of text
	cut      bool   // the caller's bound ended it
	text     string
	at       time.Time
}

// answer computes the answer to a call.
func (a *API) answer(c call, at time.Time) *answer {
	draw := func(salt, n uint64) int { return int(serve.Mix(serve.Mix(a.seed^c.digest)+salt) % n) }
	out := &answer{call: c, id: fmt.Sprintf("%016x", serve.Mix(a.seed^c.digest)), at: at}
	out.output = (a.mean+1)/2 + draw(1, uint64(a.mean))
	if strings.Contains(c.model, "thinking") {
		out.thoughts = (out.output + 1) / 2
	}
	if c.most > 0 && out.thoughts+out.output > c.most {
		out.cut = true
		out.thoughts = min(out.thoughts, c.most/2)
		out.output = c.most - out.thoughts
	}
	if held := c.tokens / 2 / cacheStep * cacheStep; c.tokens >= cacheFrom {
		if draw(2, 2) == 0 {
			out.cached = held
		} else {
			out.written = held
		}
	}
	var b strings.Builder
	b.Grow(out.output * bytesPerToken)
	for i := range out.output {
		b.WriteString(lexicon[draw(16+uint64(i), uint64(len(lexicon)))])
		if i == out.output-1 && !out.cut {
			b.WriteByte('.')
		} else {
			b.WriteByte(' ')
		}
	}
	out.text = b.String()
	return out
}

// generated returns the tokens that count as output.
func (a *answer) generated() int { return a.thoughts + a.output }

// asked returns the prompt's usage.
func (a *answer) asked() serve.Usage {
	return serve.Usage{Input: int64(a.tokens), Cached: int64(a.cached)}
}

// lexicon has words of three letters: with the following space each is a token.
var lexicon = strings.Fields(`and any are ask axe bay bed bit box bus but can cap car cow cut day did dim dry
	due ear eat end eve far few fit fly fog for fox gap get got had has hat her hid him his hop how ice ink its
	jam jar joy key kit law lay led let lid lit log lot low map may men met mix mud new nor not now oak odd off
	old one our out own pad pay pen pit ran raw red rid rim row run sad sat saw sea see set she shy sit six sky
	sun tea ten the tie tin too top try two use van vow war was way wet who why win yes yet you`)
