// Package provider describes the APIs that egress proxies, as data: where a call names its
// model, which calls cost quota, how a key is sent, which headers pass, and the form of a
// refusal that the provider's own SDK understands.
//
// [Builtin] returns a built-in description, and [New] one from a configuration.
// [Description.Call] is on the hot path: it parses a body in one pass, without building a
// tree or copying text.
//
// The package counts no tokens (egress does so with [Call.Texts]), reads no usage and sends
// nothing. A call that it cannot parse is not an error but estimated roughly, so that new
// fields of an API do no harm.
//
// A [Description] is immutable, and its methods are safe for concurrent use. Nothing here
// reads a clock.
//
// Stability: settling.
package provider

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headway-go/headway/internal/profile"
	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
)

// Profile has the limits that a provider publishes: which requests share one, what they
// cost and what responses report. A transport.Transport uses it. Each connection needs a
// profile of its own, since it remembers what requests cost.
type Profile = profile.Profile

// FindProfile returns a profile by name ("github"; "headway profiles list" shows all), or
// reads one from a file by path. A file NAME.yaml in one of the folders replaces the
// built-in profile NAME. The error names every problem of a file with its line.
func FindProfile(name string, folders ...string) (*Profile, error) {
	return profile.Find(name, folders...)
}

// API is a family of providers with the same API.
type API string

// The APIs.
const (
	// OpenAI is OpenAI and all providers that copy its API. The base URL of its SDKs ends
	// with /v1, so a client uses http://127.0.0.1:8700/openai/v1/.
	OpenAI API = "openai"
	// AzureOpenAI is OpenAI on Azure, by deployment or under /openai/v1. Its api-version
	// parameter passes unchanged.
	AzureOpenAI API = "azure-openai"
	// Anthropic is the Messages API. The base URL of its SDKs has no /v1.
	Anthropic API = "anthropic"
	// Gemini is Google's API, also on Vertex AI, and its OpenAI-compatible API under
	// /v1beta/openai. The base URL of its SDKs has no version.
	Gemini API = "gemini"
	// HTTP is any other upstream. Every request is a call without model or tokens.
	HTTP API = "http"
)

// Auth is where a key is sent: in Header, or as the URL parameter Query.
type Auth struct {
	Header string // canonical, such as "X-Api-Key"; empty when in the URL
	Scheme string // precedes the key, such as "Bearer"; may be empty
	Query  string // such as "key"; empty when in a header
}

// Description is one upstream.
type Description struct {
	// API is the family of the upstream.
	API API
	// Upstream has scheme and host, and optionally a path prefix for all requests.
	Upstream *url.URL
	// Auth is where the upstream expects its key.
	Auth Auth
	// Charge is the name of the quota rule.
	Charge string
	// Routes are the known calls; the first match counts. Other calls pass as attempts that
	// cost no quota.
	Routes []Route
	// Addresses are members of JSON responses with URLs of the upstream that clients call
	// with their key, such as "results_url".
	Addresses []string
	// RequestHeaders are headers that pass in addition to the fixed ones, in canonical
	// form; a star at the end makes a prefix: "X-Title", "X-Acme-*".
	RequestHeaders []string
	// LimitHeaders maps the upstream's names of limit headers to names that package signal
	// knows: "X-Acme-Left": "X-Ratelimit-Remaining".
	LimitHeaders map[string]string
}

// Settings are the settings of a provider. Only API is required if the built-in description
// has an upstream; a provider that copies OpenAI's API needs Upstream too.
type Settings struct {
	// API is one of the constants.
	API API
	// Upstream is https://host or http://host, with an optional path prefix. It
	// replaces the built-in one.
	Upstream string
	// AuthHeader and AuthScheme, or AuthQuery, replace the built-in place of the key. A
	// scheme without a header is for Authorization.
	AuthHeader, AuthScheme, AuthQuery string
	// Charge replaces the built-in quota rule; the quota checks that it exists. An upstream
	// that copies OpenAI's API is charged its total by default.
	Charge string
	// RequestHeaders and LimitHeaders are as in [Description].
	RequestHeaders []string
	LimitHeaders   map[string]string
	// Addresses are members of JSON responses in addition to the known ones of the API; see
	// [Description].
	Addresses []string
}

// APIs lists the known APIs.
func APIs() []API { return []API{OpenAI, AzureOpenAI, Anthropic, Gemini, HTTP} }

// Builtin returns the built-in description of an API; ok is false if it is unknown. The
// upstream is nil for Azure OpenAI and HTTP, which differ for each owner.
func Builtin(api API) (d Description, ok bool) {
	d = Description{API: api, Routes: modelRoutes}
	switch api {
	case OpenAI:
		d.Upstream = &url.URL{Scheme: "https", Host: "api.openai.com"}
		d.Auth, d.Charge = Auth{Header: authorization, Scheme: bearer}, "openai"
	case AzureOpenAI:
		d.Auth, d.Charge = Auth{Header: apiKeyAzure}, "azure"
	case Anthropic:
		d.Upstream = &url.URL{Scheme: "https", Host: "api.anthropic.com"}
		d.Auth, d.Charge = Auth{Header: apiKeyAnthropic}, "anthropic"
		d.Addresses = []string{"results_url"}
	case Gemini:
		d.Upstream = &url.URL{Scheme: "https", Host: "generativelanguage.googleapis.com"}
		d.Auth, d.Charge = Auth{Header: apiKeyGoogle}, "gemini"
	case HTTP:
		d.Auth, d.Charge = Auth{Header: authorization, Scheme: bearer}, "total"
		d.Routes = plainRoutes
	default:
		return Description{}, false
	}
	return d, true
}

// New returns the description for some settings. Errors have the field, its value and its
// bound, but nothing of a URL's user information.
func New(s Settings) (Description, error) {
	d, ok := Builtin(s.API)
	if !ok {
		return Description{}, fmt.Errorf("provider: api is %q, must be one of %v", s.API, APIs())
	}
	if s.Upstream != "" {
		u, err := upstream(s.Upstream)
		if err != nil {
			return Description{}, err
		}
		d.Upstream = u
		if s.API == OpenAI && u.Hostname() != "openai.com" && !strings.HasSuffix(u.Hostname(), ".openai.com") {
			d.Charge = "total"
		}
	}
	if d.Upstream == nil {
		return Description{}, fmt.Errorf("provider: upstream is missing: api %q has none of its own, give https://host", s.API)
	}
	if err := d.present(s); err != nil {
		return Description{}, err
	}
	if s.Charge != "" {
		d.Charge = s.Charge
	}
	for i, name := range s.Addresses {
		if name == "" || len(name) > 128 || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
			return Description{}, fmt.Errorf("provider: addresses[%d] is %q, must be the name of a member, 1 to 128 printable ASCII characters", i, name)
		}
		d.Addresses = append(d.Addresses, name)
	}
	for i, name := range s.RequestHeaders {
		bare := strings.TrimSuffix(name, "*")
		if !token(bare) {
			return Description{}, fmt.Errorf("provider: request_headers[%d] is %q, must be a header's name, or a prefix and a star", i, name)
		}
		if never(http.CanonicalHeaderKey(bare)) {
			return Description{}, fmt.Errorf("provider: request_headers[%d] is %q, which never passes: it is the connection's, or may hold a credential", i, name)
		}
		d.RequestHeaders = append(d.RequestHeaders, http.CanonicalHeaderKey(bare)+name[len(bare):])
	}
	for _, from := range slices.Sorted(maps.Keys(s.LimitHeaders)) {
		to := s.LimitHeaders[from]
		if !token(from) || !token(to) {
			return Description{}, fmt.Errorf("provider: limit_headers has %q: %q, must be two header names", from, to)
		}
		if d.LimitHeaders == nil {
			d.LimitHeaders = make(map[string]string, len(s.LimitHeaders))
		}
		d.LimitHeaders[http.CanonicalHeaderKey(from)] = http.CanonicalHeaderKey(to)
	}
	return d, nil
}

// upstream parses a base URL.
func upstream(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("provider: upstream is not a URL, must be https://host with an optional path")
	case u.User != nil:
		return nil, fmt.Errorf("provider: upstream %q holds a user or password: give the key apart", u.Host)
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "", u.Opaque != "":
		return nil, fmt.Errorf("provider: upstream has scheme %q and host %q, must be https://host or http://host", u.Scheme, u.Host)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("provider: upstream of %q has a query or fragment, must end with its path", u.Host)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}

// present sets where a key is sent.
func (d *Description) present(s Settings) error {
	switch {
	case s.AuthQuery != "" && (s.AuthHeader != "" || s.AuthScheme != ""):
		return fmt.Errorf("provider: auth has both a query parameter %q and a header, must have one", s.AuthQuery)
	case s.AuthQuery != "":
		d.Auth = Auth{Query: s.AuthQuery}
	case s.AuthHeader != "" || s.AuthScheme != "":
		header := s.AuthHeader
		if header == "" {
			header = authorization
		}
		if !token(header) || hops.has(http.CanonicalHeaderKey(header)) {
			return fmt.Errorf("provider: auth header is %q, must be a header's name and none of the connection's own", header)
		}
		if s.AuthScheme != "" && !token(s.AuthScheme) {
			return fmt.Errorf("provider: auth scheme is %q, must be one word such as Bearer", s.AuthScheme)
		}
		d.Auth = Auth{Header: http.CanonicalHeaderKey(header), Scheme: s.AuthScheme}
	}
	return nil
}

// Rule returns the standard quota rule named in the description; ok is false if the name is
// not a standard one.
func (d *Description) Rule() (rule quota.Charge, ok bool) {
	rule, ok = quota.StandardCharges()[d.Charge]
	return rule, ok
}

// token reports whether s is an HTTP token, such as a header's name.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

// Shape is the format in which a response reports its usage.
type Shape = usage.Shape

// The shapes.
const (
	ShapeNone             = usage.None             // Reports nothing: the body is not read.
	ShapeOpenAIChat       = usage.OpenAIChat       // Chat completions, and legacy completions.
	ShapeOpenAIResponses  = usage.OpenAIResponses  // The Responses API.
	ShapeOpenAIEmbeddings = usage.OpenAIEmbeddings // Embeddings, which have input only.
	ShapeAnthropic        = usage.Anthropic        // The Messages API.
	ShapeGemini           = usage.Gemini           // generateContent and streamGenerateContent.
)
