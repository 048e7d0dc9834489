package provider

import (
	"net/http"
	"slices"
	"strings"
)

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
