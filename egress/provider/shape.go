package provider

import "github.com/headway-go/headway/internal/usage"

// Shape says in which API's words a response reports its usage.
type Shape = usage.Shape

// The shapes.
const (
	ShapeNone             = usage.None             // Reports nothing: such a body is not looked at.
	ShapeOpenAIChat       = usage.OpenAIChat       // Chat completions, and legacy completions.
	ShapeOpenAIResponses  = usage.OpenAIResponses  // The Responses API.
	ShapeOpenAIEmbeddings = usage.OpenAIEmbeddings // Embeddings, which have input only.
	ShapeAnthropic        = usage.Anthropic        // The Messages API.
	ShapeGemini           = usage.Gemini           // generateContent and streamGenerateContent.
)
