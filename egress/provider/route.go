package provider

import (
	"path"
	"strings"

	"github.com/headway-go/headway/internal/usage"
)

// Route is one call that a provider serves.
type Route struct {
	// Method is in upper case; empty is any.
	Method string
	// Path is segments with slashes. Before all others "**" stands for any number
	// of segments; "*" is any one segment; "{model}" is one that names the model,
	// also before a verb: "{model}:generateContent". Upper and lower case are the
	// same, since some servers hold it so.
	Path string
	// Shape is how the response tells its use; None when it does not.
	Shape Shape
	// Metered calls cost quota. The others are attempts only.
	Metered bool
	// Stream says that the path alone makes it a stream.
	Stream bool
	// Media says that the body may be not JSON: a form with files, each of which
	// counts File tokens.
	Media bool
	File  int64
	// Files says that the call only keeps files: it runs no model, now or later.
	Files bool
}

// verb reports whether the path says what is done with the model.
func (r *Route) verb() bool { return strings.Contains(r.Path, "{model}:") }

// unknown is every call that no route is for.
var unknown = Route{Media: true}

// modelRoutes are the calls of all APIs of language models. They are distinguished by
// the ends of their paths, because those who copy an API serve it under prefixes
// of their own: /openai/v1, /api/v1, /v1beta/openai, /anthropic.
var modelRoutes = routes()

// plainRoutes are those of a plain HTTP upstream.
var plainRoutes = []Route{{Path: "**", Metered: true, Media: true}}

func routes() []Route {
	var all []Route
	// OpenAI's, and under the name of a deployment at Azure.
	for _, r := range []Route{
		{Path: "chat/completions", Shape: usage.OpenAIChat, Metered: true},
		{Path: "completions", Shape: usage.OpenAIChat, Metered: true},
		{Path: "responses/input_tokens"},
		{Path: "responses/compact", Shape: usage.OpenAIResponses, Metered: true},
		{Path: "responses", Shape: usage.OpenAIResponses, Metered: true},
		{Path: "embeddings", Shape: usage.OpenAIEmbeddings, Metered: true},
		// Images and transcripts tell their use as responses do, where at all.
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
	// Anthropic's, and Google's, whose verb stands after a colon.
	for _, r := range []Route{
		{Path: "**/messages/count_tokens"},
		{Path: "**/v1/messages", Shape: usage.Anthropic, Metered: true},
		{Path: "**/{model}:generateContent", Shape: usage.Gemini, Metered: true},
		{Path: "**/{model}:streamGenerateContent", Shape: usage.Gemini, Metered: true, Stream: true},
		{Path: "**/{model}:embedContent", Shape: usage.Gemini, Metered: true},
		{Path: "**/{model}:batchEmbedContents", Shape: usage.Gemini, Metered: true},
		{Path: "**/{model}:predict", Metered: true},
		{Path: "**/{model}:predictLongRunning", Metered: true},
		// Anthropic's models at Vertex.
		{Path: "**/{model}:rawPredict", Shape: usage.Anthropic, Metered: true},
		{Path: "**/{model}:streamRawPredict", Shape: usage.Anthropic, Metered: true, Stream: true},
		// What generates nothing, or later and under limits of its own.
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

// route finds the route of a request, and the model if the path names it.
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

// canonical is the path as a lenient upstream takes it, so that no other way to
// write it leads past its route: with slashes only, and without empty segments,
// dots, a slash at the end, and parameters of segments.
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

// cutLast cuts the last segment off; more is false when it was the only one.
func cutLast(p string) (before, last string, more bool) {
	i := strings.LastIndexByte(p, '/')
	if i < 0 {
		return "", p, false
	}
	return p[:i], p[i+1:], true
}
