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
