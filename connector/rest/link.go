package rest

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// nextLink returns the target of the first rel="next" in the Link headers (RFC 8288), "" if
// there is none. An unreadable header is an error, because ignoring it would end the walk
// early.
func nextLink(h http.Header) (string, error) {
	for _, line := range h.Values("Link") {
		target, err := nextIn(line)
		if target != "" || err != nil {
			return target, err
		}
	}
	return "", nil
}

var errLink = errors.New("the Link header cannot be read (RFC 8288)")

func nextIn(s string) (string, error) {
	for {
		s = strings.TrimLeft(s, " \t,")
		if s == "" {
			return "", nil
		}
		target, rest, ok := strings.Cut(s, ">")
		if !ok || !strings.HasPrefix(target, "<") {
			return "", errLink
		}
		next, rel := false, false
		for s = strings.TrimLeft(rest, " \t"); strings.HasPrefix(s, ";"); s = strings.TrimLeft(s, " \t") {
			var name, value string
			if name, value, s, ok = linkParam(s[1:]); !ok {
				return "", errLink
			}
			if strings.EqualFold(name, "rel") && !rel { // only the first rel counts
				rel = true
				for word := range strings.FieldsSeq(value) {
					next = next || strings.EqualFold(word, "next")
				}
			}
		}
		if s != "" && s[0] != ',' {
			return "", errLink
		}
		if next {
			return target[1:], nil
		}
	}
}

// linkParam parses name, name=token or name="quoted" at the start of s.
func linkParam(s string) (name, value, rest string, ok bool) {
	s = strings.TrimLeft(s, " \t")
	end := strings.IndexAny(s, "=;, \t")
	if end < 0 {
		return s, "", "", true
	}
	name, rest = s[:end], strings.TrimLeft(s[end:], " \t")
	if !strings.HasPrefix(rest, "=") {
		return name, "", rest, true
	}
	rest = strings.TrimLeft(rest[1:], " \t")
	if !strings.HasPrefix(rest, `"`) {
		end = strings.IndexAny(rest, ";, \t")
		if end < 0 {
			end = len(rest)
		}
		return name, rest[:end], rest[end:], true
	}
	var b strings.Builder
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; c {
		case '"':
			return name, b.String(), rest[i+1:], true
		case '\\':
			if i++; i == len(rest) {
				return "", "", "", false
			}
			b.WriteByte(rest[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", "", false
}

// origin is a host that may receive the connection's credential.
type origin struct{ base *url.URL }

var (
	errElsewhere = errors.New("the next page is on another host than base_url; it is not followed, since the credential must not go there")
	errNextURL   = errors.New("the next page's URL cannot be read")
)

// relative turns a next page's URL, absolute or relative to the request, into a path and
// query, which are stored as the cursor. Requests always use the scheme, host and port of
// base_url, so a provider behind a proxy that returns http URLs instead of https works too.
func (o origin) relative(request *url.URL, next, secretParam string) (string, error) {
	if len(next) > maxCursor {
		return "", errNextURL
	}
	ref, err := url.Parse(next)
	if err != nil || ref.Opaque != "" {
		return "", errNextURL
	}
	u := request.ResolveReference(ref)
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errNextURL
	}
	if u.User != nil || !strings.EqualFold(u.Hostname(), o.base.Hostname()) || !samePort(u, o.base) {
		return "", errElsewhere
	}
	path := cmp.Or(u.EscapedPath(), "/")
	if query := dropParam(u.RawQuery, secretParam); query != "" {
		path += "?" + query
	}
	return path, nil
}

// absolute returns the URL of a stored cursor.
func (o origin) absolute(cursor string) (*url.URL, error) {
	if !strings.HasPrefix(cursor, "/") {
		return nil, errNextURL
	}
	// The scheme and host come only from base_url.
	u, err := url.Parse(o.base.Scheme + "://" + o.base.Host + cursor)
	if err != nil || u.Host != o.base.Host || u.User != nil || u.Fragment != "" {
		return nil, errNextURL
	}
	return u, nil
}

// samePort compares ports. A scheme's default port equals no port.
func samePort(a, b *url.URL) bool {
	own := func(u *url.URL) string {
		if p := u.Port(); p != map[string]string{"http": "80", "https": "443"}[u.Scheme] {
			return p
		}
		return ""
	}
	return own(a) == own(b)
}

// dropParam removes a parameter from a query and keeps the rest unchanged.
func dropParam(query, name string) string {
	if name == "" || query == "" {
		return query
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(key); err == nil && strings.EqualFold(plain, name) {
			continue
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, "&")
}
