// Package provider describes the APIs that egress stands in front of, as data:
// where a call's model stands, which calls cost quota, what a request asks for,
// how a key is presented, which headers pass, and how a refusal is said so that
// the provider's own SDK understands it.
//
// [Builtin] gives what is known of an API, [New] a description from the few lines
// of a configuration. [Description.Call] is the verb of the hot path: one pass
// over the body that builds no tree and copies no text.
//
// It counts no tokens (egress does that with [Call.Texts]), reads no
// usage and sends nothing. What it cannot read is a call that is
// estimated roughly, not an error: a provider that adds a member tomorrow is
// served as before.
//
// A [Description] is not changed after it is made; all its methods are safe for
// concurrent use. Nothing here reads a clock.
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

// Profile is what a provider publishes of its limits: which requests share one, what they
// cost, what responses say. A transport.Transport takes it. Each connection has one of its
// own, since it remembers what requests took.
type Profile = profile.Profile

// FindProfile gives a profile by its name ("github"; headway profiles list shows all), or
// reads a file of one's own by its path. A file NAME.yaml in one of the folders comes before
// the profile of that name that comes with Headway. The error names every problem of a file
// with its line.
func FindProfile(name string, folders ...string) (*Profile, error) {
	return profile.Find(name, folders...)
}

// API is a family of providers that speak alike.
type API string

// The APIs.
const (
	// OpenAI is OpenAI and all that copy its API. Its SDKs' base URL ends with
	// /v1, so a client's is http://127.0.0.1:8700/openai/v1/.
	OpenAI API = "openai"
	// AzureOpenAI is OpenAI as Azure serves it, by deployment or under /openai/v1.
	// Its api-version parameter passes like any other.
	AzureOpenAI API = "azure-openai"
	// Anthropic is the Messages API. Its SDKs' base URL is without /v1.
	Anthropic API = "anthropic"
	// Gemini is Google's API, also as Vertex AI has it, and its compatibility with
	// OpenAI's under /v1beta/openai. Its SDKs' base URL is without a version.
	Gemini API = "gemini"
	// HTTP is any other upstream: every request is a call that costs one, without
	// model or tokens.
	HTTP API = "http"
)

// Auth is how a key is presented: in Header, or as the URL parameter Query.
type Auth struct {
	Header string // canonical, such as "X-Api-Key"; empty when in the URL
	Scheme string // stands before the key with a space, such as "Bearer"; may be empty
	Query  string // such as "key"; empty when in a header
}

// Description is one upstream.
type Description struct {
	// API is whose manners it has.
	API API
	// Upstream is scheme, host and an optional path that stands before every
	// request's own.
	Upstream *url.URL
	// Auth is how the upstream wants its key.
	Auth Auth
	// Charge is the name of quota's rule.
	Charge string
	// Routes are the calls that are known; the first that matches counts. All else
	// is passed on as an attempt that costs no quota.
	Routes []Route
	// Addresses are members of JSON answers that hold an address of the upstream
	// which clients call with their key, such as "results_url".
	Addresses []string
	// RequestHeaders pass to the upstream beside those that always do, in canonical
	// form, by name or, with a star at the end, by prefix: "X-Title", "X-Acme-*".
	RequestHeaders []string
	// LimitHeaders are the upstream's own names for limit headers, and the names
	// that package signal knows: "X-Acme-Left": "X-Ratelimit-Remaining".
	LimitHeaders map[string]string
}

// Settings are what a configuration says of a provider. Only API is needed where
// the built-in description has an upstream; a provider that copies OpenAI's API
// needs Upstream too.
type Settings struct {
	// API is one of the constants.
	API API
	// Upstream is https://host or http://host, with an optional path prefix. It
	// replaces the built-in one.
	Upstream string
	// AuthHeader and AuthScheme, or AuthQuery, replace the built-in way to present
	// a key. A scheme without a header is for Authorization.
	AuthHeader, AuthScheme, AuthQuery string
	// Charge replaces the built-in rule. Whether quota has it is quota's to say. An
	// upstream that speaks OpenAI's API and is not OpenAI has no rule of its own: it
	// is charged its total by default.
	Charge string
	// RequestHeaders and LimitHeaders are as in [Description].
	RequestHeaders []string
	LimitHeaders   map[string]string
	// Addresses are members of JSON answers beside those that are known of the API; see
	// [Description].
	Addresses []string
}

// APIs lists the known APIs.
func APIs() []API { return []API{OpenAI, AzureOpenAI, Anthropic, Gemini, HTTP} }

// Builtin gives what is known of an API; ok is false for one that is not. The
// upstream is nil for Azure OpenAI and HTTP, where each owner has another.
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

// New gives the description that the settings ask for. Errors name the field, its
// value and what it must be, except that no part of a URL's user information is
// repeated.
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

// upstream reads a base URL.
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

// present takes over how a key is presented.
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

// Rule is quota's standard charge of the description's name; ok is false when the
// name is not a standard one.
func (d *Description) Rule() (rule quota.Charge, ok bool) {
	rule, ok = quota.StandardCharges()[d.Charge]
	return rule, ok
}

// token reports whether s is one in the sense of HTTP: a header's name, or a word.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

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
