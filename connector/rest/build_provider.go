package rest

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/control"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/profile"
)

func (b builder) provider(n *node) Provider {
	p := Provider{
		BaseURL: b.url(n.Get("base_url")),
		Auth:    b.auth(n.Get("auth")),
		Ceiling: b.ceiling(n.Get("ceiling")),
		Fleet:   n.Get("fleet").Fleet(),
		Timeout: b.duration(n.Get("timeout"), DefaultTimeout, time.Millisecond, time.Hour),
		MaxBody: b.bytes(n.Get("max_body")),
		Headers: b.headers(n.Get("headers")),
	}
	p.Keys = b.keys(n, &p)
	p.Pacing = b.pacing(n.Get("pacing"), p.Ceiling)
	p.Circuit = b.circuit(n.Get("circuit"))
	p.Profile = b.profile(n.Get("profile"), p.BaseURL)
	if r := n.Get("retry"); r != nil {
		p.Retry = Retry{
			Base:     b.duration(r.Get("base"), 0, time.Millisecond, time.Hour),
			Cap:      b.duration(r.Get("cap"), 0, time.Millisecond, time.Hour),
			Attempts: int(b.count(r.Get("attempts"), 0, 100)),
			Budget:   b.retryBudget(r.Get("budget")),
		}
		if p.Retry.Cap > 0 && p.Retry.Cap < p.Retry.Base {
			b.Fail(r.Get("cap").At, r.Below("cap"), "%s; want at least the base of %v", r.Get("cap").Is(), p.Retry.Base)
		}
	}
	if auth := p.Auth; auth.Kind == BearerAuth || auth.Kind == OAuth2Auth || auth.Kind == HeaderAuth {
		name := "Authorization"
		if auth.Kind == HeaderAuth {
			name = auth.Name
		}
		b.once(n.Get("headers"), name, "provider.auth sends this header: remove it here")
	}
	return p
}

// keys reads provider.keys.
func (b builder) keys(n *node, p *Provider) (keys []Key) {
	list, sticky := n.Get("keys"), n.Get("sticky")
	if list == nil {
		if sticky != nil {
			sticky.Fail("goes with provider.keys, and this file has none")
		}
		return nil
	}
	if auth := n.Get("auth"); auth != nil {
		list.Fail("do not go with provider.auth: make it the first of the keys")
	}
	if sticky != nil {
		p.Sticky = sticky.Written == "true"
	}
	for i, item := range list.Items {
		k := Key{Name: b.text(item.Get("name")), Auth: b.auth(item)}
		k.Name = cmp.Or(k.Name, strconv.Itoa(i+1))
		if slices.ContainsFunc(keys, func(o Key) bool { return o.Name == k.Name }) {
			item.Fail("is called %s, as one before it is: give it another name", k.Name)
		}
		if s := k.Auth.Secret; slices.ContainsFunc(keys, func(o Key) bool { return o.Auth.Secret.Reveal() == s.Reveal() && s.Reveal() != "" }) {
			item.Fail("has the same secret as one before it")
		}
		if k.Auth.Kind == BearerAuth || k.Auth.Kind == HeaderAuth {
			name := cmp.Or(k.Auth.Name, "Authorization")
			b.once(n.Get("headers"), name, "provider.keys send this header: remove it here")
		}
		keys = append(keys, k)
	}
	return keys
}

// profile returns the provider's published limits; nil if no profile is named.
func (b builder) profile(n *node, base *url.URL) *profile.Profile {
	name := b.text(n)
	if name == "" {
		return nil
	}
	var folders []string
	if b.env != nil {
		if dir, ok := b.env(profile.FolderVariable); ok && dir != "" {
			folders = append(folders, dir)
		}
	}
	p, err := profile.Find(name, folders...)
	if err != nil {
		n.Fail("is %s: %v", configfile.Quote(name), err)
		return nil
	}
	if base != nil {
		p.At(base.Path)
	}
	return p
}

// once reports a header that is also set by something else.
func (b builder) once(headers *node, name, message string) {
	if headers == nil {
		return
	}
	for _, f := range headers.Fields {
		if strings.EqualFold(f.Name, name) {
			b.Fail(f.At, headers.Below(f.Name), "%s", message)
		}
	}
}

func (b builder) pacing(n *node, ceiling time.Duration) Pacing {
	p := Pacing{
		Initial:       b.duration(n.Get("initial"), 0, time.Millisecond, 24*time.Hour),
		Law:           b.text(n.Get("law")),
		Step:          b.duration(n.Get("step"), 0, time.Microsecond, 24*time.Hour),
		MaxRetryAfter: b.duration(n.Get("max_retry_after"), DefaultMaxRetryAfter, time.Second, 24*time.Hour),
	}
	if p.Law != "" && !slices.Contains(control.Names(), p.Law) {
		law := n.Get("law")
		law.Fail("%s; want one of the laws %s", law.Is(), control.Choices(p.Law))
	}
	if s := b.text(n.Get("factor")); s != "" {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || v <= 0 || v >= 1 {
			f := n.Get("factor")
			f.Want("a number between 0 and 1, both excluded, such as 0.5")
		}
		p.Factor = v
	}
	if tolerance := n.Get("tolerance"); tolerance != nil {
		if p.Tolerance = b.duration(tolerance, 0, 0, 24*time.Hour); p.Tolerance == 0 {
			p.Tolerance = -1 // 0 in the file means no tolerance
		}
	}
	if law := cmp.Or(p.Law, control.DefaultLaw); law != "aimd" && slices.Contains(control.Names(), law) {
		for _, name := range []string{"step", "factor"} {
			if f := n.Get(name); f != nil {
				f.Fail("is used by law aimd only, and the law is %s: remove it, or set law: aimd", law)
			}
		}
	}
	ceiling = cmp.Or(ceiling, control.DefaultCeiling)
	b.jitter(n.Get("jitter"), ceiling, &p)
	return p
}

func (b builder) jitter(n *node, ceiling time.Duration, p *Pacing) {
	if n == nil {
		return
	}
	bound := n
	if n.Kind == configfile.Table {
		bound = n.Get("max")
		p.JitterMin = b.duration(n.Get("min"), 0, 0, time.Hour)
	}
	p.JitterMax = b.duration(bound, 0, 0, time.Hour)
	if bound != nil && p.JitterMax == 0 {
		p.JitterMax = -1 // 0 in the file means no jitter
	}
	low := n.Get("min")
	switch {
	case low == nil:
	case p.JitterMin > ceiling:
		low.Fail("%s, which is longer than the ceiling of %v: no wait could ever be that short; want at most the ceiling", low.Is(), ceiling)
	case p.JitterMin > max(p.JitterMax, 0):
		low.Fail("%s; want at most max", low.Is())
	}
}

// url reads an absolute URL that may receive a credential.
func (b builder) url(n *node) *url.URL {
	s := b.text(n)
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	advice := ""
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "" || u.Scheme != "http" && u.Scheme != "https":
		advice = n.Is() + "; want a URL such as https://api.example.com/v1"
	case u.User != nil:
		advice = "has a login in it; remove it and put the credential under provider.auth, by reference"
	case u.RawQuery != "" || u.ForceQuery:
		advice = "has a query; parameters go under query of each list and detail"
	case u.Fragment != "":
		advice = "has a fragment (#), which is never sent; remove it"
	}
	if advice != "" {
		n.Fail("%s", advice)
		return nil
	}
	return u
}

// pools reads provider.pools and pool_by, and sets the pool of each stream's requests.
func (b builder) pools(n *node, c *Config) {
	c.Provider.PoolBy = PoolBy(b.text(n.Get("pool_by")))
	var nodes []*node
	if list := n.Get("pools"); list != nil {
		nodes = list.Items
	}
	used := map[int]bool{}
	for i, n := range nodes {
		p := Pool{Name: b.name(n.Get("name"), 64), Path: b.text(n.Get("path")), Query: b.plain(n.Get("query")), Headers: b.plain(n.Get("headers"))}
		c.Provider.Pools = append(c.Provider.Pools, p)
		used[i] = p.Name == "" // the problem is already reported
	}
	pool := func(r *Request, stream string) {
		i := slices.IndexFunc(c.Provider.Pools, func(p Pool) bool { return p.holds(*r, c.Provider.Headers) })
		switch {
		case i >= 0:
			r.Pool, used[i] = c.Provider.Pools[i].Name, true
		case c.Provider.PoolBy == PoolByStream:
			r.Pool = stream
		}
	}
	for i := range c.Streams {
		s := &c.Streams[i]
		pool(&s.List, s.Name)
		if s.Detail != nil {
			pool(&s.Detail.Request, s.Detail.Stream)
		}
	}
	for i, n := range nodes {
		if !used[i] && len(c.Streams) > 0 {
			n.Fail("fits no request of a stream that an earlier pool leaves: remove it, or look at its path, query and headers")
		}
	}
}

// plain reads a map of texts.
func (b builder) plain(n *node) map[string]string {
	if n == nil {
		return nil
	}
	texts := map[string]string{}
	for _, f := range n.Fields {
		texts[f.Name] = b.value(f.Node).String()
	}
	return texts
}

// holds reports whether a request belongs to the pool. more are the headers that every
// request has.
func (p Pool) holds(r Request, more map[string]Value) bool {
	m := profile.Match{Query: p.Query, Header: p.Headers}
	if p.Path != "" {
		m.Paths = []string{p.Path}
	}
	if p.Path == "" && len(p.Query) == 0 && len(p.Headers) == 0 {
		return false
	}
	query, header := url.Values{}, http.Header{}
	for name, v := range r.Query {
		query.Set(name, v.String())
	}
	for _, all := range []map[string]Value{more, r.Headers} {
		for name, v := range all {
			header.Set(name, v.String())
		}
	}
	req := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: r.Path, RawQuery: query.Encode()}, Header: header}
	return m.Fits(profile.RequestOf(req, ""))
}
