package usage

import (
	"strings"
)

// leaf is the meaning of a member of a body. Members without a meaning are skipped and not
// stored.
type leaf uint8

const (
	nothing leaf = iota
	// The provider's figures, which are numbers. They come first, because they index
	// figures.
	inputTokens
	outputTokens
	cachedTokens
	createdTokens // written to a cache, in addition to inputTokens
	readTokens    // read from a cache, in addition to inputTokens
	totalTokens
	thoughtTokens // in addition to outputTokens
	reasonTokens  // part of outputTokens
	toolTokens    // in addition to inputTokens
	figureKinds   // the number of figures
	// text is generated text, if it is a string.
	text
	// arguments are generated, and counted as raw JSON.
	arguments
	// kind is the name of an event.
	kind
	// choice is an alternative of the answer, if it is an object.
	choice
	// finish says why an alternative ended, if it is a string.
	finish
	// failure is an error, unless it is null.
	failure
	// code names an error.
	code
)

// node is a place in a body that is read. The elements of an array are at the array's
// place.
type node struct {
	leaf leaf
	kids []kid
}

type kid struct {
	name string
	node *node
}

// child returns the place of a member; nil if nothing in it is read.
func (n *node) child(name []byte) *node {
	for i := range n.kids {
		if n.kids[i].name == string(name) {
			return n.kids[i].node
		}
	}
	return nil
}

// add sets the leaf at a dotted path.
func (n *node) add(path string, l leaf) {
	at := n
	for name := range strings.SplitSeq(path, ".") {
		next := at.child([]byte(name))
		if next == nil {
			next = &node{}
			at.kids = append(at.kids, kid{name, next})
		}
		at = next
	}
	at.leaf = l
}

// grammar returns the tree of all places of a shape.
func grammar(parts ...map[string]leaf) *node {
	root := &node{}
	for _, part := range parts {
		for path, l := range part {
			root.add(path, l)
		}
	}
	return root
}

// under moves places below a member.
func under(member string, places map[string]leaf) map[string]leaf {
	moved := make(map[string]leaf, len(places))
	for path, l := range places {
		moved[member+"."+path] = l
	}
	return moved
}

var (
	errorPlaces = map[string]leaf{
		"error":                             failure,
		"error.type":                        code,
		"error.code":                        code,
		"error.status":                      code,
		"error.details.error_code":          code, // Anthropic
		"error.details.violations.quotaId":  code, // Google
		"error.details.reason":              code, // Google
		"error.metadata.error_type":         code, // OpenRouter
		"error.error.type":                  code, // compatible servers that wrap an error
		"error.details.metadata.quota_unit": code, // Google
	}
	// chatUsage has the names of OpenAI and those of DeepSeek.
	chatUsage = map[string]leaf{
		"prompt_tokens":                       inputTokens,
		"completion_tokens":                   outputTokens,
		"total_tokens":                        totalTokens,
		"prompt_tokens_details.cached_tokens": cachedTokens,
		"prompt_cache_hit_tokens":             cachedTokens,

		"completion_tokens_details.reasoning_tokens": reasonTokens,
	}
	responsesUsage = map[string]leaf{
		"input_tokens":                       inputTokens,
		"output_tokens":                      outputTokens,
		"total_tokens":                       totalTokens,
		"input_tokens_details.cached_tokens": cachedTokens,

		"output_tokens_details.reasoning_tokens": reasonTokens,
	}
	anthropicUsage = map[string]leaf{
		"input_tokens":                inputTokens,
		"output_tokens":               outputTokens,
		"cache_creation_input_tokens": createdTokens,
		"cache_read_input_tokens":     readTokens,
	}
	geminiUsage = map[string]leaf{
		"promptTokenCount":        inputTokens,
		"cachedContentTokenCount": cachedTokens,
		"candidatesTokenCount":    outputTokens,
		"thoughtsTokenCount":      thoughtTokens,
		"toolUsePromptTokenCount": toolTokens,
		"totalTokenCount":         totalTokens,
	}
	// spoken are the places of text in a chat's message or delta.
	spoken = map[string]leaf{
		"content":                       text,
		"content.text":                  text, // Mistral
		"refusal":                       text,
		"reasoning":                     text, // OpenRouter, Groq, vLLM
		"reasoning_content":             text, // DeepSeek
		"function_call.name":            text,
		"function_call.arguments":       text,
		"tool_calls.function.name":      text,
		"tool_calls.function.arguments": text,
		"tool_calls.custom.input":       text,
	}
)

// grammars are the trees of places, by shape.
var grammars = [...]*node{
	None: nil,
	OpenAIChat: grammar(errorPlaces, under("usage", chatUsage), under("x_groq.usage", chatUsage),
		under("choices.delta", spoken), under("choices.message", spoken),
		map[string]leaf{"choices": choice, "choices.text": text, "choices.finish_reason": finish}),
	OpenAIResponses: grammar(errorPlaces, under("response", errorPlaces),
		under("usage", responsesUsage), under("response.usage", responsesUsage),
		map[string]leaf{
			"type": kind, "code": code, "delta": text,
			"output.content.text": text, "output.content.refusal": text, "output.summary.text": text,
			"output.name": text, "output.arguments": text,
		}),
	Anthropic: grammar(errorPlaces, under("usage", anthropicUsage), under("message.usage", anthropicUsage),
		map[string]leaf{
			"type":       kind,
			"delta.text": text, "delta.thinking": text, "delta.partial_json": text,
			"content_block.name": text, "content_block.text": text,
			"content.text": text, "content.thinking": text, "content.name": text, "content.input": arguments,
			"delta.stop_reason": finish,
		}),
	Gemini: grammar(errorPlaces, under("usageMetadata", geminiUsage),
		map[string]leaf{
			"candidates": choice, "candidates.finishReason": finish,
			"candidates.content.parts.text": text, "candidates.content.parts.functionCall": arguments,
			"candidates.content.parts.executableCode.code": text,
			"promptFeedback.blockReason":                   finish,
		}),
	OpenAIEmbeddings: grammar(errorPlaces, under("usage", chatUsage)),
}

// eventKind is the kind of an event, by its name.
type eventKind uint8

const (
	otherEvent eventKind = iota
	lastEvent
	deltaEvent // of Anthropic's message
	errorEvent
	soundEvent // its delta is not text
)

func kindOf(name []byte) eventKind {
	switch string(name) {
	case "response.completed", "response.incomplete", "response.failed", "message_stop",
		"transcript.text.done", "image_generation.completed", "image_edit.completed":
		return lastEvent
	case "message_delta":
		return deltaEvent
	case "error":
		return errorEvent
	case "response.audio.delta", "response.output_audio.delta":
		return soundEvent
	}
	return otherEvent
}

// gravity orders problems.
type gravity uint8

const (
	noGravity gravity = iota
	otherGravity
	overloadGravity
	rateGravity
	quotaGravity
)

// String returns the problem's name.
func (g gravity) String() string {
	switch g {
	case otherGravity:
		return OtherProblem
	case overloadGravity:
		return Overloaded
	case rateGravity:
		return RateLimited
	case quotaGravity:
		return QuotaSpent
	default:
		return NoProblem
	}
}

// gravities are the codes, types and statuses that providers document.
var gravities = map[string]gravity{
	"rate_limit_exceeded": rateGravity, // OpenAI
	"slow_down":           rateGravity, // OpenAI
	"too_many_requests":   rateGravity, // Azure OpenAI
	"rate_limit_error":    rateGravity, // Anthropic
	"RESOURCE_EXHAUSTED":  rateGravity, // Google
	"429":                 rateGravity,

	"server_is_overloaded": overloadGravity, // OpenAI
	"overloaded_error":     overloadGravity, // Anthropic
	"UNAVAILABLE":          overloadGravity, // Google
	"503":                  overloadGravity,
	"529":                  overloadGravity,

	"insufficient_quota":                quotaGravity, // OpenAI
	"billing_hard_limit_reached":        quotaGravity, // OpenAI
	"credit_balance_exhausted":          quotaGravity, // OpenAI
	"organization_spend_limit_exceeded": quotaGravity, // OpenAI
	"organization_usage_limit_exceeded": quotaGravity, // OpenAI
	"project_spend_limit_exceeded":      quotaGravity, // OpenAI
	"enforced_spend_limit_reached":      quotaGravity, // Anthropic
}

func gravityOf(code []byte) gravity {
	if g, known := gravities[string(code)]; known {
		return g
	}
	if strings.Contains(string(code), "PerDay") { // Google's quotaId
		return quotaGravity
	}
	return noGravity
}
