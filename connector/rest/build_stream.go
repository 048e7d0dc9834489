package rest

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// maxLookback bounds incremental.lookback: each run lists what lies within it.
const maxLookback = 366 * 24 * time.Hour

func (b builder) stream(n *node, auth Auth, seen map[string]string) Stream {
	s := Stream{
		Name:        b.streamName(n.get("name"), seen),
		List:        b.request(n.get("list"), auth, false),
		Records:     b.expr(n.get("records")),
		Key:         b.expr(n.get("key")),
		Fingerprint: b.expr(n.get("fingerprint")),
		Paginate:    b.paginate(n.get("paginate")),
		BadRecords:  BadRecords(cmp.Or(b.text(n.get("bad_records")), string(QuarantineBadRecords))),
	}
	taken := b.pagingParams(n.get("paginate"))
	if i := n.get("incremental"); i != nil {
		s.Incremental = &Incremental{
			Cursor: b.expr(i.get("cursor")), Param: b.text(i.get("param")),
			Ascending: b.text(i.get("order")) == "ascending", Inclusive: i.get("inclusive") != nil && i.get("inclusive").value == "true",
			Lookback: b.duration(i.get("lookback"), 0, time.Second, maxLookback),
		}
		b.take(i.get("param"), taken)
	}
	b.alone(n.get("list").get("query"), auth, taken)
	if d := n.get("detail"); d != nil {
		s.Detail = &Detail{
			Stream:  b.streamName(d.get("stream"), seen),
			Request: b.request(d, auth, true),
			Records: b.expr(d.get("records")),
			Key:     b.expr(d.get("key")),

			Paginate: b.paginate(d.get("paginate")),
		}
		b.alone(d.get("query"), auth, b.pagingParams(d.get("paginate")))
	}
	return s
}

// pagingParams claims the query parameters that paging sets: a parameter that
// two things set would silently be one of them.
func (b builder) pagingParams(n *node) map[string]*node {
	taken := map[string]*node{}
	b.take(n.get("param"), taken)
	b.take(n.get("page").get("param"), taken)
	b.take(n.get("page").get("size_param"), taken)
	b.take(n.get("offset").get("param"), taken)
	b.take(n.get("offset").get("limit_param"), taken)
	return taken
}

// alone reports query parameters that something else sets as well.
func (b builder) alone(query *node, auth Auth, taken map[string]*node) {
	if query != nil {
		for _, f := range query.fields {
			if by, ok := taken[f.name]; ok {
				b.add(f.at, query.below(f.name), "is set by %s: remove it here", by.path)
			}
		}
	}
	if auth.Kind == QueryAuth {
		if by, ok := taken[auth.Name]; ok {
			b.add(by.at, by.path, "is %s, the parameter that provider.auth sends: one of them is wrong", quote(auth.Name))
		}
	}
}

// take claims a query parameter for the field that names it.
func (b builder) take(n *node, taken map[string]*node) {
	name := b.text(n)
	if name == "" {
		return
	}
	if by, ok := taken[name]; ok {
		b.add(n.at, n.path, "is %s, which %s has already", quote(name), by.path)
		return
	}
	taken[name] = n
}

// streamName is a name that no other stream or detail has. Case does not tell
// names apart, since it does not tell files apart everywhere.
func (b builder) streamName(n *node, seen map[string]string) string {
	name := b.name(n, 63)
	if name == "" {
		return ""
	}
	folded := strings.ToLower(name)
	if first, ok := seen[folded]; ok {
		b.add(n.at, n.path, "is %s, the name of %s already: names must differ, by more than case", quote(n.written), first)
	} else {
		seen[folded] = n.path
		*b.names = append(*b.names, naming{n.at, n.path, n.written, name})
	}
	return name
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

func (b builder) request(n *node, auth Auth, keyed bool) Request {
	q := Request{Query: b.query(n.get("query"), auth), Headers: b.headers(n.get("headers"))}
	p := n.get("path")
	q.Path = b.path(p, keyed)
	if !keyed || p == nil {
		return q
	}
	held := strings.Contains(b.text(p), "{key}")
	if query := n.get("query"); query != nil {
		for _, f := range query.fields {
			held = held || strings.Contains(f.node.value, "{key}")
		}
	}
	if !held {
		b.add(p.at, p.path, "is %s; want {key} in the path or in a query value, or every record gets the same detail", quote(p.written))
	}
	return q
}

// path is an escaped path, with {key} in it as it is.
func (b builder) path(n *node, keyed bool) string {
	s := b.text(n)
	if s == "" {
		return ""
	}
	for _, hold := range placeholder.FindAllString(s, -1) {
		switch {
		case hold != "{key}":
			b.add(n.at, n.path, "has %s, and nothing is known to put there; only {key} of a detail is replaced", quote(hold))
		case !keyed:
			b.add(n.at, n.path, "has {key}, which only a detail has")
		}
	}
	parts := strings.Split(s, "{key}")
	for i, part := range parts {
		// The check on the first part makes sure that the path cannot name another host.
		u, err := url.Parse("http://h" + part)
		if i > 0 {
			u, err = url.Parse("http://h/" + part)
		}
		if err != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(part, "#") || i == 0 && !strings.HasPrefix(part, "/") {
			b.add(n.at, n.path, "%s; want a path that starts with / and has no ? or # (parameters go under query)", n.is())
			return ""
		}
		for segment := range strings.SplitSeq(part, "/") {
			if segment == "." || segment == ".." {
				b.add(n.at, n.path, "%s; want no . or .. between slashes", n.is())
				return ""
			}
		}
		parts[i] = u.EscapedPath()
		if i > 0 {
			parts[i] = strings.TrimPrefix(parts[i], "/")
		}
	}
	return strings.Join(parts, "{key}")
}

func (b builder) paginate(n *node) Paginate {
	switch {
	case n.get("cursor") != nil:
		return Paginate{Kind: CursorPaging, Next: b.expr(n.get("cursor")), Param: b.text(n.get("param"))}
	case n.get("link") != nil:
		return Paginate{Kind: LinkPaging}
	case n.get("next_url") != nil:
		return Paginate{Kind: NextURLPaging, Next: b.expr(n.get("next_url"))}
	case n.get("page") != nil:
		p := n.get("page")
		return Paginate{
			Kind: NumberPaging, Param: b.text(p.get("param")), Start: b.count(p.get("start"), 1, 1<<53),
			SizeParam: b.text(p.get("size_param")), Size: b.count(p.get("size"), 0, 1<<53),
		}
	case n.get("offset") != nil:
		o := n.get("offset")
		return Paginate{
			Kind: OffsetPaging, Param: b.text(o.get("param")),
			SizeParam: b.text(o.get("limit_param")), Size: b.count(o.get("limit"), 0, 1<<53),
		}
	default:
		return Paginate{Kind: SinglePage}
	}
}

func (b builder) rule(n *node) ErrorRule {
	r := ErrorRule{
		Status: int(b.count(n.get("status"), 0, 599)),
		Body:   b.expr(n.get("body")),
		As:     Meaning(b.text(n.get("as"))),
	}
	if r.Status >= 200 && r.Status < 300 && r.Body == nil && n.get("body") == nil {
		b.add(n.at, n.path, "makes an error of every %s; want body with an expression that tells which", fmt.Sprint(r.Status))
	}
	return r
}
