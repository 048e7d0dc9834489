package egress

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/headway-go/headway/egress/provider"
)

// cut takes the provider's name off an escaped path. The rest begins with a
// slash, or is empty when there is nothing but the name.
func cut(escaped string) (name, rest string) {
	path := strings.TrimPrefix(escaped, "/")
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, ""
}

// proxied reports whether a request is one to a proxy, which this is not.
func proxied(r *http.Request) bool {
	return r.Method == http.MethodConnect || r.URL.Scheme != "" || r.URL.Host != "" || r.URL.Opaque != "" ||
		!strings.HasPrefix(r.URL.Path, "/")
}

// escapes reports whether a decoded path has a segment that a server may take
// for "here" or "above": below a path prefix that would lead out of it. Some
// servers read a backslash as a slash.
func escapes(path string) bool {
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";") // parameters, which some servers take off
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// upgrades reports whether a request wants what only another protocol can give, a
// WebSocket. Other offers, such as that of HTTP/2 (h2c), are passed over, as a
// server may: the client then goes on as it began. Source: RFC 9110, section 7.8.
func upgrades(h http.Header) bool {
	for _, line := range h["Upgrade"] {
		for offer := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(offer), "/")
			if strings.EqualFold(name, "websocket") {
				return true
			}
		}
	}
	return false
}

// target is the upstream's URL for the rest of an escaped path. The error is
// that of a percent sign which stands for nothing.
func target(base *url.URL, rest, query string) (*url.URL, error) {
	path, err := url.PathUnescape(rest)
	if err != nil {
		return nil, err
	}
	raw := strings.TrimSuffix(base.EscapedPath(), "/") + rest
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, Path: strings.TrimSuffix(base.Path, "/") + path, RawQuery: query}
	if u.Path != raw {
		u.RawPath = raw
	}
	return u, nil
}

// relocate turns a Location of the upstream into one that leads through the
// proxy. It is "" when it leads anywhere else: whoever followed it would be past
// the quota, with whatever credential it holds.
//
// Parameters in which a key may stand are left out of its query.
func relocate(location, name string, base, asked *url.URL, keys ...string) string {
	u, err := asked.Parse(location)
	if err != nil || u.Scheme != base.Scheme || u.Host != base.Host || u.User != nil {
		return ""
	}
	prefix := strings.TrimSuffix(base.EscapedPath(), "/")
	rest, ok := strings.CutPrefix(u.EscapedPath(), prefix)
	if !ok || rest != "" && rest[0] != '/' {
		return ""
	}
	to := "/" + name + rest
	if query := provider.Without(u.RawQuery, append(keys, "key", "$key", "api_key", "api-key", "access_token", "oauth_token")...); query != "" {
		to += "?" + query
	}
	return to
}
