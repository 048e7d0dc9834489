package provider

import (
	"net/http"
	"net/url"
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
