package usage

import "strings"

// eventKind is what matters of an event's name.
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

// String gives the problem's name.
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
