package profile

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// Request is an attempt to be matched with pools.
type Request struct {
	Method string
	Path   string
	Header http.Header

	rawQuery string
	values   url.Values
	open     func() (io.ReadCloser, error) // opens the body; nil if it cannot be read twice
	body     any
	bytes    int
	read     bool
}

// RequestOf returns the request to match. Its path is relative to base, the path of the
// connection's address. The body is read only if a pool depends on one of its fields and it
// can be read again, and at most 1 MiB of it.
func RequestOf(req *http.Request, base string) *Request {
	r := &Request{Method: req.Method, Header: req.Header}
	r.Method = cmp.Or(r.Method, http.MethodGet)
	if req.URL != nil {
		r.Path, r.rawQuery = req.URL.Path, req.URL.RawQuery
		if base = strings.TrimSuffix(base, "/"); base != "" {
			if rest, ok := strings.CutPrefix(r.Path, base); ok && (rest == "" || rest[0] == '/') {
				r.Path = rest
			}
		}
	}
	if req.Body != nil && req.Body != http.NoBody {
		r.open = req.GetBody
	}
	return r
}

// Body sets a body that was already read.
func (r *Request) Body(b []byte) *Request {
	r.decode(b)
	return r
}

// maxBody is how much of a body is read.
const maxBody = 1 << 20

func (r *Request) decode(b []byte) {
	r.read, r.bytes = true, len(b)
	if json.Unmarshal(b, &r.body) != nil {
		r.body = nil
	}
}

// field returns a field of the body as text.
func (r *Request) field(name string) string {
	s, _ := at(r.fields(), name).(string)
	return s
}

// size returns the length of the part of the body that is read.
func (r *Request) size() int {
	_ = r.fields()
	return r.bytes
}

// fields returns the decoded body.
func (r *Request) fields() any {
	if !r.read && r.open != nil {
		r.read = true
		if body, err := r.open(); err == nil {
			b, err := io.ReadAll(io.LimitReader(body, maxBody))
			_ = body.Close()
			if err == nil {
				r.decode(b)
			}
		}
	}
	return r.body
}

// at returns the value of a field. Dots separate the names of nested fields.
func at(v any, name string) any {
	for part := range strings.SplitSeq(name, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[part]
	}
	return v
}

func (r *Request) query(name string) string {
	if r.values == nil && r.rawQuery != "" {
		r.values, _ = url.ParseQuery(r.rawQuery)
	}
	return r.values.Get(name)
}

func (r *Request) hasQuery(name string) bool {
	_ = r.query(name)
	return r.values.Has(name)
}

// Pools finds the pool of an attempt: the first one that matches. The zero value has no
// pools, so only the account's limits apply. It is safe for concurrent use, and must not be
// copied after its first use.
type Pools struct {
	List []Pool
	// Base is the path of the connection's address. Patterns match the path after it.
	Base string

	mu     sync.Mutex
	routes map[string]string // pools that responses named, by route
}

// Name returns the name of an attempt's pool; "" if only the account's limits apply.
func (p *Pools) Name(r *Request) string {
	for i := range p.List {
		if name := p.List[i].of(r, func() string { return p.learned(r) }); name != "" {
			return name
		}
	}
	return ""
}

// Learn records the pool that a response names, for pools that are named by a response
// header. It returns the pool's name, "" if the response names none.
func (p *Pools) Learn(r *Request, header http.Header) string {
	for i := range p.List {
		pool := &p.List[i]
		if pool.Each.Response == "" || !pool.Match.Fits(r) {
			continue
		}
		if value := header.Get(pool.Each.Response); value != "" {
			p.remember(r, value)
			return pool.called(value)
		}
	}
	return ""
}

const (
	// maxRoutes is the maximum number of remembered routes.
	maxRoutes = 1024
	// mixed marks a route whose attempts belong to several pools.
	mixed = ""
)

// routesOf returns the keys under which an attempt's pool is remembered, the most specific
// first: the method with the first two path segments, and with the first one.
func routesOf(r *Request) [2]string {
	first, rest, _ := strings.Cut(strings.Trim(r.Path, "/"), "/")
	second, _, _ := strings.Cut(rest, "/")
	return [2]string{r.Method + " /" + first + "/" + second, r.Method + " /" + first}
}

func (p *Pools) remember(r *Request, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.routes == nil || len(p.routes) >= maxRoutes {
		p.routes = map[string]string{} // each is learned again from one attempt
	}
	all := routesOf(r)
	p.routes[all[0]] = value
	if was, known := p.routes[all[1]]; known && was != value {
		value = mixed
	}
	p.routes[all[1]] = value
}

func (p *Pools) learned(r *Request) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, route := range routesOf(r) {
		if value, known := p.routes[route]; known {
			return value
		}
	}
	return ""
}
