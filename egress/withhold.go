package egress

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headway-go/headway/internal/keys"
)

// holdsKey reports whether a text holds what the call presented as its Headway
// key, or anything that has the form of one.
func (x *exchange) holdsKey(text string) bool {
	if x.presented != "" && strings.Contains(text, x.presented) {
		return true
	}
	return keys.Found(text)
}

// withhold takes out of a request that goes upstream whatever holds a Headway
// key, wherever the client put it. The provider's own key is put in after.
func (x *exchange) withhold(out *http.Request) {
	for name, values := range out.Header {
		if slices.ContainsFunc(values, x.holdsKey) {
			delete(out.Header, name)
		}
	}
	if out.URL.RawQuery == "" || !x.inQuery(out.URL.RawQuery) {
		return
	}
	var kept []string
	for pair := range strings.SplitSeq(out.URL.RawQuery, "&") {
		if !x.inQuery(pair) {
			kept = append(kept, pair)
		}
	}
	out.URL.RawQuery = strings.Join(kept, "&")
}

// inQuery reports whether a query, or a pair of one, holds a Headway key.
func (x *exchange) inQuery(query string) bool {
	if x.holdsKey(query) {
		return true
	}
	decoded, err := url.QueryUnescape(query)
	return err == nil && x.holdsKey(decoded)
}
