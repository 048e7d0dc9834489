package rest

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

func (b builder) headerName(n *node) string {
	s := b.text(n)
	if s != "" && !headerToken(s) {
		n.Fail("is not a header name: want letters, digits and dashes")
	}
	return textproto.CanonicalMIMEHeaderKey(s)
}

// headers are non-secret headers, or secret ones by reference.
func (b builder) headers(n *node) map[string]Value {
	if n == nil || len(n.Fields) == 0 {
		return nil
	}
	out := make(map[string]Value, len(n.Fields))
	for _, f := range n.Fields {
		name, path := http.CanonicalHeaderKey(f.Name), n.Below(f.Name)
		v := b.value(f.Node)
		_, twice := out[name]
		switch {
		case !headerToken(f.Name):
			b.Fail(f.At, path, "is not a header name: want letters, digits and dashes")
		case slices.Contains(hopHeaders, name):
			b.Fail(f.At, path, "is a header that the connection itself sets: remove it")
		case twice:
			b.Fail(f.At, path, "is set twice: header names do not differ by case")
		case !headerText(v.Reveal()):
			b.Fail(f.Node.At, path, "has a value that a header cannot hold: it has a line break or another control character")
		case sounds(name) && !f.Node.References() && v.Reveal() != "":
			b.Fail(f.Node.At, path, "is written out, and sounds like a secret; want a reference such as ${API_TOKEN}, best under provider.auth")
		}
		out[name] = v
	}
	return out
}

// hopHeaders belong to the HTTP client.
var hopHeaders = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Te", "Trailer", "Upgrade", "Accept-Encoding"}

// secretNames are words in the names of headers and parameters that hold credentials.
var secretNames = []string{"authorization", "cookie", "token", "secret", "password", "apikey", "api-key", "api_key"}

func sounds(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretNames, func(s string) bool { return strings.HasSuffix(name, s) })
}

func headerText(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) < 0
}

// headerToken reports whether s is a token of RFC 9110, section 5.6.2.
func headerToken(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	}) < 0
}

func (b builder) query(n *node, auth Auth) map[string]Value {
	if n == nil || len(n.Fields) == 0 {
		return nil
	}
	out := make(map[string]Value, len(n.Fields))
	for _, f := range n.Fields {
		path := n.Below(f.Name)
		switch v := b.value(f.Node); {
		case auth.Kind == QueryAuth && f.Name == auth.Name:
			b.Fail(f.At, path, "provider.auth sends this parameter: remove it here")
		case sounds(f.Name) && !pageToken(f.Name) && !f.Node.References() && v.Reveal() != "":
			b.Fail(f.Node.At, path, "is written out, and sounds like a secret; want a reference such as ${API_TOKEN}, best under provider.auth.query")
		}
		out[f.Name] = b.value(f.Node)
	}
	return out
}

// pageToken tells a position in a list from a credential.
func pageToken(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "page") || strings.Contains(name, "sync") || strings.Contains(name, "next")
}
