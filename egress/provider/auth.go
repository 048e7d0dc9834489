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

// places are the headers for keys in all APIs. An SDK that is used with another provider
// still sends its key in its own header.
var places = [...]Auth{
	{Header: authorization, Scheme: bearer},
	{Header: apiKeyAnthropic},
	{Header: apiKeyAzure},
	{Header: apiKeyGoogle},
	{Header: apiKeyGateway}, // Azure API Management
}

// Key returns the client's key, "" if there is none. It is read from the header of the API,
// else from any of the usual ones; for Google also from the URL.
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

// read returns the key in one place.
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

// SetKey removes the client's keys from all places and sets key instead; "" sets none. The
// URL's other parameters keep their bytes.
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
		// Google's OpenAI-compatible API documents only this place.
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

// PassKey copies the client's credentials from the headers src to dst, for a provider whose
// key the client has itself. A key in the URL stays there.
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

// parameter returns the first value of a parameter.
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

// Without returns the query without the named parameters. The others keep their bytes.
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

// list has names of headers in canonical form, and prefixes.
type list struct {
	names    map[string]bool
	prefixes []string
}

// newList makes a list. An entry with a star at the end is a prefix.
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
	// asked are the request headers that pass: those about the body or the call, and those
	// by which SDKs identify themselves.
	asked = newList("Accept", "Accept-Language", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Range", "Content-Type",
		"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Prefer", "Range", "User-Agent",
		"Idempotency-Key", "X-Idempotency-Key", "Request-Id", "X-Request-Id", "X-Client-Request-Id", "Traceparent", "Tracestate",
		"Session_id", "Conversation_id", "Originator", "X-Server-Timeout",
		"Anthropic-*", "Azureml-*", "Openai-*", "X-Goog-*", "X-Ms-*", "X-Stainless-*")

	// barred are request headers that never pass, whatever the configuration: credentials,
	// and fields that an upstream may trust because a proxy usually sets them.
	barred = newList("Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Ocp-Apim-Subscription-Key", "Cookie", "Cookie2", "Proxy",
		"Accept-Encoding", "Client-Ip", "Cf-Connecting-Ip", "Forwarded", "Origin", "Referer", "True-Client-Ip", "Via", "X-Client-Ip", "X-Cluster-Client-Ip",
		"X-Host", "X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-*", "X-Real-Ip", "X-Rewrite-Url",
		"X-Forwarded*", "X-Headway*")

	// kept are the response headers that are removed: they bind a browser or client to the
	// upstream's host, or allow pages of other origins to read the response, which is for
	// Headway to decide.
	kept = newList("Alt-Svc", "Clear-Site-Data", "Nel", "Public-Key-Pins", "Report-To", "Reporting-Endpoints", "Set-Cookie", "Set-Cookie2",
		"Strict-Transport-Security", "Access-Control-*", "X-Headway*")

	// hops concern one connection only.
	hops = newList("Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Http2-Settings", "Expect", "Host", "Content-Length")
)

// never reports whether a request header in canonical form passes under no configuration.
func never(name string) bool { return hops.has(name) || barred.has(name) }

// Forward copies the request headers that go upstream from src to dst: a fixed list and
// [Description.RequestHeaders]. For a plain HTTP upstream it copies all but those that
// never pass.
//
// It copies no credentials; [Description.SetKey] or [Description.PassKey] adds one. It does
// not copy Accept-Encoding, so that the caller decides which encodings it can read. Names
// must be canonical, as in net/http. The headers share their values.
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

// Return copies the response headers that go to the client from src to dst. They share
// their values. Content-Length is not copied.
func (d *Description) Return(dst, src http.Header) {
	connection := src["Connection"]
	for name, values := range src {
		if !hops.has(name) && !kept.has(name) && !owned(connection, name) {
			dst[name] = slices.Clip(values)
		}
	}
}

// owned reports whether the Connection header lists a header as hop-by-hop.
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
