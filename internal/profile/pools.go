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

// Request is an attempt as it is matched.
type Request struct {
	Method string
	Path   string
	Header http.Header

	rawQuery string
	values   url.Values
	open     func() (io.ReadCloser, error) // of the body; nil when it cannot be read twice
	body     any
	bytes    int
	read     bool
}

// RequestOf is a request as it is matched. The path is that below base, the path of the
// connection's address. A body is looked into only where a pool is by one of its fields,
// only when it can be read again, and no further than 1 MiB.
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

// Body makes an attempt match by a body that was read already.
func (r *Request) Body(b []byte) *Request {
	r.decode(b)
	return r
}

// maxBody is how much of a body is looked into.
const maxBody = 1 << 20

func (r *Request) decode(b []byte) {
	r.read, r.bytes = true, len(b)
	if json.Unmarshal(b, &r.body) != nil {
		r.body = nil
	}
}

// field is a text in the body.
func (r *Request) field(name string) string {
	s, _ := at(r.fields(), name).(string)
	return s
}

// size is the length of the body, as far as it is looked into.
func (r *Request) size() int {
	_ = r.fields()
	return r.bytes
}

// fields is the body.
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

// at is the value of a field, in which a dot stands between names.
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

// Pools finds the pool of an attempt: the first that matches. The zero value has no
// pools, so only the account's limits apply. It is safe for concurrent use, but not to
// be copied after its first use.
type Pools struct {
	List []Pool
	// Base is the path of the connection's address; the paths of patterns are below it.
	Base string

	mu     sync.Mutex
	routes map[string]string // what responses said of attempts alike
}

// Of returns the name of an attempt's pool; "" if only the account's limits apply.
func (p *Pools) Of(req *http.Request) string {
	if len(p.List) == 0 {
		return ""
	}
	return p.Name(RequestOf(req, p.Base))
}

// Name is [Pools.Of] for an attempt that is not a request of net/http.
func (p *Pools) Name(r *Request) string {
	for i := range p.List {
		if name := p.List[i].of(r, func() string { return p.learned(r) }); name != "" {
			return name
		}
	}
	return ""
}

// Learn records which pool a response names for its attempt, where pools are named by a
// response header. It returns that pool's name, "" if the response does not say.
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
	// maxRoutes bounds the routes that are remembered.
	maxRoutes = 1024
	// mixed marks a route whose attempts are of several pools.
	mixed = ""
)

// routesOf returns the keys under which the pool of similar attempts is remembered, the
// most specific first: the method with the first two segments of the path, and with the
// first.
func routesOf(r *Request) [2]string {
	first, rest, _ := strings.Cut(strings.Trim(r.Path, "/"), "/")
	second, _, _ := strings.Cut(rest, "/")
	return [2]string{r.Method + " /" + first + "/" + second, r.Method + " /" + first}
}

func (p *Pools) remember(r *Request, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.routes == nil || len(p.routes) >= maxRoutes {
		p.routes = map[string]string{} // each costs an attempt to be learned again
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
