package usage

import "github.com/headway-go/headway/quota"

// Shape says in which API's words a response reports its usage.
type Shape uint8

// The shapes.
const (
	// None reports nothing: such a body is not looked at.
	None Shape = iota
	// OpenAIChat is chat completions, and legacy completions.
	OpenAIChat
	// OpenAIResponses is the Responses API.
	OpenAIResponses
	// Anthropic is the Messages API.
	Anthropic
	// Gemini is generateContent and streamGenerateContent.
	Gemini
	// OpenAIEmbeddings has input only.
	OpenAIEmbeddings
)

// String gives the shape's name, such as "openai-chat".
func (s Shape) String() string {
	switch s {
	case None:
		return "none"
	case OpenAIChat:
		return "openai-chat"
	case OpenAIResponses:
		return "openai-responses"
	case Anthropic:
		return "anthropic"
	case Gemini:
		return "gemini"
	case OpenAIEmbeddings:
		return "openai-embeddings"
	}
	return "unknown"
}

// The values of [Report].Problem.
const (
	// NoProblem: no error was seen.
	NoProblem = ""
	// RateLimited: the call went over a limit.
	RateLimited = "rate_limit"
	// Overloaded: the provider has too much to do.
	Overloaded = "overloaded"
	// QuotaSpent: a budget is used up that no short wait restores.
	QuotaSpent = "quota"
	// OtherProblem is any other error.
	OtherProblem = "other"
)

// Report is what a body said so far.
type Report struct {
	// Usage is the best knowledge so far. Once Reported it is the provider's own
	// figures; before, Output is at least Flowed, and Input is 0 if the provider
	// did not name it yet. It is always valid as [quota.Usage].
	Usage quota.Usage
	// Reported: the provider's final figures were seen.
	Reported bool
	// Flowed is about how many output tokens passed, by the text that did. It
	// never falls.
	Flowed int64
	// Ended: the body's own end was seen.
	Ended bool
	// Problem is the gravest error inside the body: one of [NoProblem],
	// [RateLimited], [Overloaded], [QuotaSpent] and [OtherProblem].
	Problem string
}
