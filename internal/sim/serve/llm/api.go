// Package llm is a simulated provider of language models, over real HTTP: what
// a proxy or a client of one is tested against. An [API] is mounted on a
// [serve.Server], whose scenario limits it.
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
// All of them share the limits of one scenario, as the keys of one account do;
// serve several for several providers. A path tells the language of headers and
// errors; below /v1, where two meet, the field anthropic-version does. Each
// takes its own kind of key (Authorization: Bearer, api-key, x-api-key,
// x-goog-api-key) and refuses a missing one in its own words. Any key will do,
// unless the server has a token. Any model's name will do.
//
// # Tokens
//
// Four bytes of text are a token, rounded up for each text. A message, or a
// string that stands for one, weighs 4 more, a request 3 more; what is not text,
// as tools and images, weighs as its compact JSON does. A prompt of 1,024 tokens
// or more is halfway in a cache, in multiples of 128: read from it or, as often,
// written to it, which only Anthropic tells. Every answer is that of its seed,
// model and prompt, half to one and a half times as long as the mean, at most what
// the caller allows. The models whose names have "thinking" in them think half as much
// again before they write.
//
// # Limits
//
// A request weighs one, and in tokens what its provider charges on admission:
// with OpenAI the larger of the prompt and what the caller allows as output,
// with Anthropic the prompt outside the cache and what will be generated, with
// Gemini the prompt. What is malformed, lists models or counts tokens meets no
// limit. A limit of concurrency counts streams that are really under way. The
// scenario's retry_after says whether and how exactly a refusal tells the wait,
// the endpoint's language in what fields; its headers and status are not used. An
// outage of the scenario looks like overload. A window of 23 hours or more is
// called a day's.
//
// # Trouble on demand
//
// A model's name that is one of these, or ends in a hyphen and one of these, is
// charged and then fails:
//
//	cut-after-N        the connection ends after N chunks, or halfway a plain answer
//	error-after-N      an error comes after N chunks; a plain answer is overloaded
//	error-in-stream    error-after-1
//	overloaded         529 with Anthropic, 503 with the others
//	quota-exhausted    the account's budget is gone
//	throttled          429, with a wait of one second
//
// A stream that is too short for it fails at its end. Chunks have four tokens.
//
// Do not use it to learn what a provider's models answer or cost: it only has
// the shapes. The server's stats count by key ([serve.Stats]), its log has a line
// for each decision. An API is safe for concurrent use. Time is real, or that of
// a testing/synctest bubble.
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

// Options are how the provider answers. The zero value answers with 64 tokens
// on average, all at once.
type Options struct {
	// Seed decides the answers.
	Seed uint64
	// OutputTokens is about the mean length of an answer: 1 to 100,000, default 64.
	OutputTokens int
	// TokensPerSecond is how fast a call's output is generated, at most
	// 1,000,000; 0, the default, is without delay.
	TokensPerSecond float64
}

// API is the endpoints, for [serve.Options].APIs. It is immutable.
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

// dialect is one provider's API: how a call names its caller, how it reports
// its limits, and how it says what went wrong.
type dialect interface {
	// credential is the caller's; empty for none.
	credential(r *http.Request) string
	// mark names the request, where the provider does.
	mark(h http.Header, id string)
	// limits tells what is left.
	limits(h http.Header, left []serve.Quota)
	// refuse gives the answer to a call that went wrong, and may add to the
	// header what belongs to it.
	refuse(h http.Header, t trouble) (status int, body any)
	// models is the list of models.
	models() any
}

// endpoint is one path's call.
type endpoint struct {
	dialect
	// open says that paths of OpenAI and Anthropic meet here.
	open bool
	// read makes a call of a body; its error is a badRequest or errNowhere.
	read func(r *http.Request, body []byte) (call, error)
	// charge is what the provider's limit on tokens weighs, on admission.
	charge func(a *answer) int
	plain  func(a *answer) any
	script func(a *answer) script
	// count answers a call that wants nothing but the weight of a prompt.
	count func(c call) any
}

// list is an endpoint that lists the models; it meets no limit.
func list(d dialect) endpoint {
	return endpoint{dialect: d, open: true, read: func(*http.Request, []byte) (call, error) { return call{listing: true}, nil }}
}

// nowhere refuses every call.
func nowhere(d dialect) endpoint {
	return endpoint{dialect: d, open: true, read: func(*http.Request, []byte) (call, error) { return call{}, errNowhere }}
}

var errNowhere = errors.New("no such path or method")

// trouble is what a refusal has to say.
type trouble struct {
	kind
	id    string
	call  call
	why   string       // of a malformed request
	limit *serve.Quota // that throttles; nil when it counts neither calls nor tokens
	cost  int          // in tokens
	wait  time.Duration
	said  bool // the answer says wait
}

// port serves an endpoint.
type port struct {
	endpoint
	api  *API
	gate *serve.Gate
}

// ServeHTTP answers one call.
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
		return // the client has gone away
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

// generate takes a call through the limits and answers it.
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

// lasts is how long it takes to generate so many tokens.
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
	_, _ = w.Write(encode(body)) // the client may have gone away
}

// encode writes JSON as providers do, with <, > and & as they are. What is
// encoded here always can be.
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
	// pieceTokens is how much text a chunk of a stream has, at most.
	pieceTokens = 4
	// cacheFrom is the shortest prompt that a cache holds, cacheStep what its
	// part in the cache is a multiple of.
	cacheFrom = 1024
	cacheStep = 128
)

// answer is what a call is answered, computed from the seed and the call alone,
// apart from the time.
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

// generated is what the provider counts as output.
func (a *answer) generated() int { return a.thoughts + a.output }

// asked is what the prompt used.
func (a *answer) asked() serve.Usage {
	return serve.Usage{Input: int64(a.tokens), Cached: int64(a.cached)}
}

// lexicon has words of three letters: with the space after it each is a token.
var lexicon = strings.Fields(`and any are ask axe bay bed bit box bus but can cap car cow cut day did dim dry
	due ear eat end eve far few fit fly fog for fox gap get got had has hat her hid him his hop how ice ink its
	jam jar joy key kit law lay led let lid lit log lot low map may men met mix mud new nor not now oak odd off
	old one our out own pad pay pen pit ran raw red rid rim row run sad sat saw sea see set she shy sit six sky
	sun tea ten the tie tin too top try two use van vow war was way wet who why win yes yet you`)
