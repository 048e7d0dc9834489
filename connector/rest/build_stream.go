package rest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/configfile"
)

// maxLookback bounds incremental.lookback: each run lists what changed within it.
const maxLookback = 366 * 24 * time.Hour

func (b builder) stream(n *node, auth Auth, seen map[string]string) Stream {
	s := Stream{
		Name:        b.streamName(n.Get("name"), seen),
		List:        b.request(n.Get("list"), auth, false),
		Records:     b.expr(n.Get("records")),
		Key:         b.expr(n.Get("key")),
		Fingerprint: b.expr(n.Get("fingerprint")),
		Paginate:    b.paginate(n.Get("paginate")),
		BadRecords:  BadRecords(cmp.Or(b.text(n.Get("bad_records")), string(QuarantineBadRecords))),
	}
	taken := b.pagingParams(n.Get("paginate"))
	if i := n.Get("incremental"); i != nil {
		s.Incremental = &Incremental{
			Cursor: b.expr(i.Get("cursor")), Param: b.text(i.Get("param")),
			Ascending: b.text(i.Get("order")) == "ascending", Inclusive: i.Get("inclusive") != nil && i.Get("inclusive").Value == "true",
			Lookback: b.duration(i.Get("lookback"), 0, time.Second, maxLookback),
		}
		b.take(i.Get("param"), taken)
	}
	b.alone(n.Get("list").Get("query"), auth, taken)
	if d := n.Get("detail"); d != nil {
		s.Detail = &Detail{
			Stream:  b.streamName(d.Get("stream"), seen),
			Request: b.request(d, auth, true),
			Records: b.expr(d.Get("records")),
			Key:     b.expr(d.Get("key")),

			Paginate: b.paginate(d.Get("paginate")),
		}
		b.alone(d.Get("query"), auth, b.pagingParams(d.Get("paginate")))
	}
	return s
}

// pagingParams returns the query parameters that paging sets. It reports a parameter that
// is set twice.
func (b builder) pagingParams(n *node) map[string]*node {
	taken := map[string]*node{}
	b.take(n.Get("param"), taken)
	b.take(n.Get("page").Get("param"), taken)
	b.take(n.Get("page").Get("size_param"), taken)
	b.take(n.Get("offset").Get("param"), taken)
	b.take(n.Get("offset").Get("limit_param"), taken)
	return taken
}

// alone reports query parameters that are also set by something else.
func (b builder) alone(query *node, auth Auth, taken map[string]*node) {
	if query != nil {
		for _, f := range query.Fields {
			if by, ok := taken[f.Name]; ok {
				b.Fail(f.At, query.Below(f.Name), "is set by %s: remove it here", by.Path)
			}
		}
	}
	if auth.Kind == QueryAuth {
		if by, ok := taken[auth.Name]; ok {
			by.Fail("is %s, the parameter that provider.auth sends: one of them is wrong", configfile.Quote(auth.Name))
		}
	}
}

// take claims a query parameter for a field.
func (b builder) take(n *node, taken map[string]*node) {
	name := b.text(n)
	if name == "" {
		return
	}
	if by, ok := taken[name]; ok {
		n.Fail("is %s, which %s has already", configfile.Quote(name), by.Path)
		return
	}
	taken[name] = n
}

// streamName reads a name that no other stream or detail has. Names that differ only in
// case count as equal, because on some systems their files would be the same.
func (b builder) streamName(n *node, seen map[string]string) string {
	name := b.name(n, 63)
	if name == "" {
		return ""
	}
	folded := strings.ToLower(name)
	if first, ok := seen[folded]; ok {
		n.Fail("is %s, the name of %s already: names must differ, by more than case", configfile.Quote(n.Written), first)
	} else {
		seen[folded] = n.Path
		*b.names = append(*b.names, naming{n.At, n.Path, n.Written, name})
	}
	return name
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

func (b builder) request(n *node, auth Auth, keyed bool) Request {
	q := Request{Query: b.query(n.Get("query"), auth), Headers: b.headers(n.Get("headers"))}
	p := n.Get("path")
	q.Path = b.path(p, keyed)
	if !keyed || p == nil {
		return q
	}
	held := strings.Contains(b.text(p), "{key}")
	if query := n.Get("query"); query != nil {
		for _, f := range query.Fields {
			held = held || strings.Contains(f.Node.Value, "{key}")
		}
	}
	if !held {
		p.Fail("is %s; want {key} in the path or in a query value, or every record gets the same detail", configfile.Quote(p.Written))
	}
	return q
}

// path reads an escaped path, which may contain {key}.
func (b builder) path(n *node, keyed bool) string {
	s := b.text(n)
	if s == "" {
		return ""
	}
	for _, hold := range placeholder.FindAllString(s, -1) {
		switch {
		case hold != "{key}":
			n.Fail("has %s, and nothing is known to put there; only {key} of a detail is replaced", configfile.Quote(hold))
		case !keyed:
			n.Fail("has {key}, which only a detail has")
		}
	}
	parts := strings.Split(s, "{key}")
	for i, part := range parts {
		// The path cannot name another host: its first part was checked.
		u, err := url.Parse("http://h" + part)
		if i > 0 {
			u, err = url.Parse("http://h/" + part)
		}
		if err != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(part, "#") || i == 0 && !strings.HasPrefix(part, "/") {
			n.Want("a path that starts with / and has no ? or # (parameters go under query)")
			return ""
		}
		for segment := range strings.SplitSeq(part, "/") {
			if segment == "." || segment == ".." {
				n.Want("no . or .. between slashes")
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
	case n.Get("cursor") != nil:
		return Paginate{Kind: CursorPaging, Next: b.expr(n.Get("cursor")), Param: b.text(n.Get("param"))}
	case n.Get("link") != nil:
		return Paginate{Kind: LinkPaging}
	case n.Get("next_url") != nil:
		return Paginate{Kind: NextURLPaging, Next: b.expr(n.Get("next_url"))}
	case n.Get("page") != nil:
		p := n.Get("page")
		return Paginate{
			Kind: NumberPaging, Param: b.text(p.Get("param")), Start: b.count(p.Get("start"), 1, 1<<53),
			SizeParam: b.text(p.Get("size_param")), Size: b.count(p.Get("size"), 0, 1<<53),
		}
	case n.Get("offset") != nil:
		o := n.Get("offset")
		return Paginate{
			Kind: OffsetPaging, Param: b.text(o.Get("param")),
			SizeParam: b.text(o.Get("limit_param")), Size: b.count(o.Get("limit"), 0, 1<<53),
		}
	default:
		return Paginate{Kind: SinglePage}
	}
}

func (b builder) rule(n *node) ErrorRule {
	r := ErrorRule{
		Status: int(b.count(n.Get("status"), 0, 599)),
		Body:   b.expr(n.Get("body")),
		As:     Meaning(b.text(n.Get("as"))),
	}
	if r.Status >= 200 && r.Status < 300 && r.Body == nil && n.Get("body") == nil {
		n.Fail("makes an error of every %s; want body with an expression that tells which", fmt.Sprint(r.Status))
	}
	return r
}

// shape returns a digest of each part of the stream. It uses values as written in the file,
// so it contains no secret, and a renewed secret does not change it.
func (s *Stream) shape(p Provider) connector.Shape {
	sizeless := s.Paginate.Kind != SinglePage && s.Paginate.Kind != NumberPaging
	list := append([]string{s.List.Path}, s.List.parts(sizeless)...)
	list = append(list, headerParts(p.Headers)...)
	list = append(list, s.Paginate.parts()...)
	shape := connector.Shape{
		Base: digest(p.BaseURL.Host, p.BaseURL.EscapedPath()), List: digest(list...),
		Records: digest(s.Records.String()), Key: digest(s.Key.String()),
	}
	if s.Fingerprint != nil {
		shape.Fingerprint = digest(s.Fingerprint.String())
	}
	if s.Incremental != nil {
		shape.Incremental = digest(s.Incremental.Cursor.String(), s.Incremental.Param)
	}
	if d := s.Detail; d != nil {
		parts := append([]string{d.Request.Path, d.Records.String(), d.Key.String()}, d.Request.parts(false)...)
		shape.Detail = digest(append(parts, d.Paginate.parts()...)...)
	}
	return shape
}

// parts returns what a request asks for beside its path. With sizeless, it leaves out the
// page size, which divides a list differently but does not change its records.
func (r Request) parts(sizeless bool) (parts []string) {
	for _, name := range slices.Sorted(maps.Keys(r.Query)) {
		if !sizeless || sizeNameOf(name) != sizeName {
			parts = append(parts, name, r.Query[name].String())
		}
	}
	return append(parts, headerParts(r.Headers)...)
}

func headerParts(headers map[string]Value) (parts []string) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !strings.EqualFold(name, "User-Agent") {
			parts = append(parts, "header "+strings.ToLower(name), headers[name].String())
		}
	}
	return parts
}

// parts returns what determines how the pages of a list are found. The page size is
// included only if positions are counted in pages.
func (p Paginate) parts() []string {
	if p.Kind == SinglePage {
		return nil
	}
	parts := []string{"paginate", string(p.Kind), p.Param, strconv.FormatInt(p.Start, 10)}
	if p.Next != nil {
		parts = append(parts, p.Next.String())
	}
	if p.Kind == NumberPaging {
		parts = append(parts, p.SizeParam, strconv.FormatInt(p.Size, 10))
	}
	return parts
}

// digest returns a short hash, which distinguishes versions of a text. It is not
// cryptographically strong.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
