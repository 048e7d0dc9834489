package provider

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	authorization   = "Authorization"
	bearer          = "Bearer"
	apiKeyAnthropic = "X-Api-Key"
	apiKeyAzure     = "Api-Key"
	apiKeyGoogle    = "X-Goog-Api-Key"
	apiKeyGateway   = "Ocp-Apim-Subscription-Key"
)

// places are the headers in which clients present keys, whatever the API: an SDK
// that is pointed at another provider still has its own way.
var places = [...]Auth{
	{Header: authorization, Scheme: bearer},
	{Header: apiKeyAnthropic},
	{Header: apiKeyAzure},
	{Header: apiKeyGoogle},
	{Header: apiKeyGateway}, // Azure API Management
}

// Key is the key that the client presents: in the API's own place, else in any of
// the usual ones. Google's also look into the URL. It is "" when there is none.
func (d *Description) Key(r *http.Request) string {
	if key := d.Auth.read(r); key != "" {
		return key
	}
	for _, place := range places {
		if key := place.read(r); key != "" {
			return key
		}
	}
	if d.API == Gemini {
		return parameter(r.URL.RawQuery, "key")
	}
	return ""
}

// read is the key in one place.
func (a Auth) read(r *http.Request) string {
	if a.Query != "" {
		return parameter(r.URL.RawQuery, a.Query)
	}
	value := r.Header.Get(a.Header)
	if a.Scheme == "" {
		return value
	}
	scheme, key, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(scheme, a.Scheme) {
		return ""
	}
	return strings.TrimSpace(key)
}

// SetKey removes whatever the client presented, in any place, and presents key
// instead; "" presents none. The URL's other parameters stay byte for byte.
func (d *Description) SetKey(r *http.Request, key string) {
	for _, place := range places {
		r.Header.Del(place.Header)
	}
	r.Header.Del(d.Auth.Header)
	names := []string{d.Auth.Query}
	if d.API == Gemini {
		names = append(names, "key", "$key", "access_token", "oauth_token")
	}
	r.URL.RawQuery = Without(r.URL.RawQuery, names...)
	auth := d.Auth
	if auth.Header == apiKeyGoogle && strings.Contains(r.URL.Path, "/openai/") {
		// Google's compatibility with OpenAI documents this place only.
		auth = places[0]
	}
	switch {
	case key == "":
	case auth.Query != "":
		pair := url.QueryEscape(auth.Query) + "=" + url.QueryEscape(key)
		if r.URL.RawQuery != "" {
			pair = r.URL.RawQuery + "&" + pair
		}
		r.URL.RawQuery = pair
	case auth.Scheme != "":
		r.Header.Set(auth.Header, auth.Scheme+" "+key)
	default:
		r.Header.Set(auth.Header, key)
	}
}

// PassKey copies the credentials that the client presents in headers from src to
// dst as they are, for a provider whose key the client holds itself. A key in the
// URL stays there by itself.
func (d *Description) PassKey(dst, src http.Header) {
	for _, place := range places {
		copyHeader(dst, src, place.Header)
	}
	copyHeader(dst, src, d.Auth.Header)
}

func copyHeader(dst, src http.Header, name string) {
	if values := src[name]; len(values) > 0 {
		dst[name] = values
	}
}

// pairs calls take for each pair of a query with its decoded name.
func pairs(query string, take func(name, pair string)) {
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if strings.ContainsAny(name, "%+") {
			if decoded, err := url.QueryUnescape(name); err == nil {
				name = decoded
			}
		}
		take(name, pair)
	}
}

// parameter is the first value of a parameter.
func parameter(query, name string) (value string) {
	if query == "" {
		return ""
	}
	found := false
	pairs(query, func(n, pair string) {
		if found || n != name {
			return
		}
		_, text, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(text); err == nil {
			value, found = decoded, true
		}
	})
	return value
}

// Without is the query without the parameters of some names; the others stay
// byte for byte.
func Without(query string, names ...string) string {
	if query == "" {
		return ""
	}
	var kept []string
	pairs(query, func(n, pair string) {
		for _, name := range names {
			if name != "" && n == name {
				return
			}
		}
		kept = append(kept, pair)
	})
	return strings.Join(kept, "&")
}

// list is names of headers in canonical form, and beginnings of names.
type list struct {
	names    map[string]bool
	prefixes []string
}

// newList reads names, and prefixes with a star at the end.
func newList(all ...string) list {
	l := list{names: make(map[string]bool, len(all))}
	for _, entry := range all {
		if prefix, star := strings.CutSuffix(entry, "*"); star {
			l.prefixes = append(l.prefixes, prefix)
		} else {
			l.names[entry] = true
		}
	}
	return l
}

func (l *list) has(name string) bool {
	if l.names[name] {
		return true
	}
	for _, prefix := range l.prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

var (
	// asked are the request headers that pass: those that say something of the
	// body or the call, and those by which SDKs and providers know each other.
	asked = newList("Accept", "Accept-Language", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Range", "Content-Type",
		"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Prefer", "Range", "User-Agent",
		"Idempotency-Key", "X-Idempotency-Key", "Request-Id", "X-Request-Id", "X-Client-Request-Id", "Traceparent", "Tracestate",
		"Session_id", "Conversation_id", "Originator", "X-Server-Timeout",
		"Anthropic-*", "Azureml-*", "Openai-*", "X-Goog-*", "X-Ms-*", "X-Stainless-*")

	// barred are the request headers that pass by no configuration: the
	// connection's own, credentials, and what an upstream or a proxy before it could
	// take for the word of somebody it trusts.
	barred = newList("Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Ocp-Apim-Subscription-Key", "Cookie", "Cookie2", "Proxy",
		"Accept-Encoding", "Client-Ip", "Cf-Connecting-Ip", "Forwarded", "Origin", "Referer", "True-Client-Ip", "Via", "X-Client-Ip", "X-Cluster-Client-Ip",
		"X-Host", "X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-*", "X-Real-Ip", "X-Rewrite-Url",
		"X-Forwarded*", "X-Headway*")

	// kept are the response headers that do not come back: what binds a browser or
	// a client to the upstream's host, which is not ours. Whether a page of another
	// origin may read the answer is Headway's to say.
	kept = newList("Alt-Svc", "Clear-Site-Data", "Nel", "Public-Key-Pins", "Report-To", "Reporting-Endpoints", "Set-Cookie", "Set-Cookie2",
		"Strict-Transport-Security", "Access-Control-*", "X-Headway*")

	// hops concern one connection only.
	hops = newList("Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Http2-Settings", "Expect", "Host", "Content-Length")
)

// never reports whether a request header, in canonical form, may pass under no
// configuration.
func never(name string) bool { return hops.has(name) || barred.has(name) }

// Forward copies to dst the request headers of src that go upstream: those of a
// list and of [Description.RequestHeaders]. To a plain HTTP upstream, whose needs
// nobody knows, go all but those that never pass.
//
// Credentials are not among them: [Description.SetKey] or [Description.PassKey]
// adds one. Neither is Accept-Encoding, so that the caller decides whether it can
// read what comes back. Both headers are canonical, as net/http makes them, and
// share their values.
func (d *Description) Forward(dst, src http.Header) {
	connection := src["Connection"]
	for name, values := range src {
		switch {
		case d.API != HTTP && !asked.has(name) && !d.adds(name), never(name), name == d.Auth.Header, owned(connection, name):
		default:
			dst[name] = slices.Clip(values)
		}
	}
}

// adds reports whether the configuration lets a request header pass.
func (d *Description) adds(name string) bool {
	for _, entry := range d.RequestHeaders {
		if prefix, star := strings.CutSuffix(entry, "*"); entry == name || star && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// Return copies to dst the response headers of src that come back to the client,
// which share their values. The length of the body is not among them.
func (d *Description) Return(dst, src http.Header) {
	connection := src["Connection"]
	for name, values := range src {
		if !hops.has(name) && !kept.has(name) && !owned(connection, name) {
			dst[name] = slices.Clip(values)
		}
	}
}

// owned reports whether the Connection header's lines declare a header as the
// connection's own.
func owned(lines []string, name string) bool {
	for _, line := range lines {
		for option := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(option), name) {
				return true
			}
		}
	}
	return false
}
