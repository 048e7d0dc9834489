package provider

import (
	"path"
	"strings"

	"github.com/headway-go/headway/internal/usage"
)

// Route is a call that a provider serves.
type Route struct {
	// Method is in upper case; empty matches any.
	Method string
	// Path is a pattern of segments. "**" at the start matches any number of segments, "*"
	// one segment, and "{model}" one that names the model, also before a verb:
	// "{model}:generateContent". Case is ignored, as some servers do.
	Path string
	// Shape is the format in which the response reports its usage; None if it does not.
	Shape Shape
	// Metered calls cost quota. Others only count as attempts.
	Metered bool
	// Stream reports that the path alone requests a stream.
	Stream bool
	// Media reports that the body may be a form with files, each of which counts as File
	// tokens.
	Media bool
	File  int64
	// Files reports that the call only stores files: it runs no model, now or later.
	Files bool
}

// verb reports whether the path has a verb after the model.
func (r *Route) verb() bool { return strings.Contains(r.Path, "{model}:") }

// unknown matches calls without a route.
var unknown = Route{Media: true}

// modelRoutes are the calls of all language model APIs. They are distinguished by the ends
// of their paths, because providers that copy an API use different prefixes: /openai/v1,
// /api/v1, /v1beta/openai, /anthropic.
var modelRoutes = routes()

// plainRoutes are the routes of a plain HTTP upstream.
var plainRoutes = []Route{{Path: "**", Metered: true, Media: true}}

func routes() []Route {
	var all []Route
	// OpenAI, and Azure with the name of a deployment.
	for _, r := range []Route{
		{Path: "chat/completions", Shape: usage.OpenAIChat, Metered: true},
		{Path: "completions", Shape: usage.OpenAIChat, Metered: true},
		{Path: "responses/input_tokens"},
		{Path: "responses/compact", Shape: usage.OpenAIResponses, Metered: true},
		{Path: "responses", Shape: usage.OpenAIResponses, Metered: true},
		{Path: "embeddings", Shape: usage.OpenAIEmbeddings, Metered: true},
		// Images and transcripts report their usage like the Responses API, if at all.
		{Path: "images/generations", Shape: usage.OpenAIResponses, Metered: true},
		{Path: "images/edits", Shape: usage.OpenAIResponses, Metered: true, Media: true, File: imageAuto},
		{Path: "images/variations", Metered: true, Media: true, File: imageAuto},
		{Path: "audio/transcriptions", Shape: usage.OpenAIResponses, Metered: true, Media: true, File: soundOpenAI},
		{Path: "audio/translations", Shape: usage.OpenAIResponses, Metered: true, Media: true, File: soundOpenAI},
		{Path: "audio/speech", Metered: true},
		{Path: "moderations"},
	} {
		r.Method = "POST"
		for _, prefix := range []string{"**/deployments/{model}/", "**/"} {
			under := r
			under.Path = prefix + r.Path
			all = append(all, under)
		}
	}
	// Anthropic, and Google with a verb after a colon.
	for _, r := range []Route{
		{Path: "**/messages/count_tokens"},
		{Path: "**/v1/messages", Shape: usage.Anthropic, Metered: true},
		{Path: "**/{model}:generateContent", Shape: usage.Gemini, Metered: true},
		{Path: "**/{model}:streamGenerateContent", Shape: usage.Gemini, Metered: true, Stream: true},
		{Path: "**/{model}:embedContent", Shape: usage.Gemini, Metered: true},
		{Path: "**/{model}:batchEmbedContents", Shape: usage.Gemini, Metered: true},
		{Path: "**/{model}:predict", Metered: true},
		{Path: "**/{model}:predictLongRunning", Metered: true},
		// Anthropic's models on Vertex AI.
		{Path: "**/{model}:rawPredict", Shape: usage.Anthropic, Metered: true},
		{Path: "**/{model}:streamRawPredict", Shape: usage.Anthropic, Metered: true, Stream: true},
		// Calls that generate nothing, or do so later and under other limits.
		{Path: "**/{model}:countTokens"},
		{Path: "**/{model}:computeTokens"},
		{Path: "**/{model}:batchGenerateContent"},
		{Path: "**/{model}:asyncBatchEmbedContent"},
	} {
		r.Method = "POST"
		all = append(all, r)
	}
	for _, p := range []string{"files", "files/*", "files/*/content", "uploads", "uploads/*/parts", "uploads/*/complete", "uploads/*/cancel"} {
		all = append(all, Route{Path: "**/" + p, Media: true, Files: true})
	}
	return all
}

// route returns the route of a request, and the model if the path names it.
func (d *Description) route(method, p string) (r *Route, model string) {
	p = canonical(p)
	for i := range d.Routes {
		r := &d.Routes[i]
		if r.Method != "" && r.Method != method {
			continue
		}
		if model, ok := match(r.Path, p); ok {
			return r, model
		}
	}
	return &unknown, ""
}

// canonical returns the path as a lenient upstream may read it, so that no spelling avoids
// its route: with slashes only, and without empty segments, dots, a slash at the end, and
// parameters of segments.
func canonical(p string) string {
	p = strings.ReplaceAll(p, `\`, "/")
	if strings.IndexByte(p, ';') >= 0 {
		segments := strings.Split(p, "/")
		for i := range segments {
			segments[i], _, _ = strings.Cut(segments[i], ";")
		}
		p = strings.Join(segments, "/")
	}
	if p == "" || p[0] != '/' || strings.Contains(p, "//") || strings.Contains(p, "/.") {
		p = path.Clean("/" + p)
	}
	return strings.TrimSuffix(p, "/")
}

// match compares from the end, where routes differ most.
func match(pattern, p string) (model string, ok bool) {
	pattern = strings.TrimPrefix(pattern, "/")
	p = strings.TrimPrefix(p, "/")
	for {
		rest, want, more := cutLast(pattern)
		if want == "**" {
			return model, true
		}
		before, got, left := cutLast(p)
		switch before0, verb, named := strings.Cut(want, "{model}"); {
		case named && before0 == "":
			n := len(got) - len(verb)
			if n <= 0 || !strings.EqualFold(got[n:], verb) {
				return "", false
			}
			model = got[:n]
		case want == "*" && got != "":
		case !strings.EqualFold(want, got):
			return "", false
		}
		if !more {
			return model, !left
		}
		if !left && rest != "**" {
			return "", false
		}
		pattern, p = rest, before
	}
}

// cutLast splits off the last segment; more is false if it was the only one.
func cutLast(p string) (before, last string, more bool) {
	i := strings.LastIndexByte(p, '/')
	if i < 0 {
		return "", p, false
	}
	return p[:i], p[i+1:], true
}
