package rest

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/control"
)

func (b builder) provider(n *node) Provider {
	p := Provider{
		BaseURL: b.url(n.get("base_url")),
		Auth:    b.auth(n.get("auth")),
		Ceiling: b.ceiling(n.get("ceiling")),
		Timeout: b.duration(n.get("timeout"), DefaultTimeout, time.Millisecond, time.Hour),
		MaxBody: b.bytes(n.get("max_body")),
		Headers: b.headers(n.get("headers")),
	}
	p.Pacing = b.pacing(n.get("pacing"), p.Ceiling)
	p.Circuit = b.circuit(n.get("circuit"))
	if r := n.get("retry"); r != nil {
		p.Retry = Retry{
			Base:     b.duration(r.get("base"), 0, time.Millisecond, time.Hour),
			Cap:      b.duration(r.get("cap"), 0, time.Millisecond, time.Hour),
			Attempts: int(b.count(r.get("attempts"), 0, 100)),
			Budget:   b.retryBudget(r.get("budget")),
		}
		if p.Retry.Cap > 0 && p.Retry.Cap < p.Retry.Base {
			b.add(r.get("cap").at, r.below("cap"), "%s; want at least the base of %v", r.get("cap").is(), p.Retry.Base)
		}
	}
	if auth := p.Auth; auth.Kind == BearerAuth || auth.Kind == OAuth2Auth || auth.Kind == HeaderAuth {
		name := "Authorization"
		if auth.Kind == HeaderAuth {
			name = auth.Name
		}
		b.once(n.get("headers"), name, "provider.auth sends this header: remove it here")
	}
	return p
}

// once reports a header that something else sets.
func (b builder) once(headers *node, name, message string) {
	if headers == nil {
		return
	}
	for _, f := range headers.fields {
		if strings.EqualFold(f.name, name) {
			b.add(f.at, headers.below(f.name), "%s", message)
		}
	}
}

func (b builder) pacing(n *node, ceiling time.Duration) Pacing {
	p := Pacing{
		Initial:       b.duration(n.get("initial"), 0, time.Millisecond, 24*time.Hour),
		Law:           b.text(n.get("law")),
		Step:          b.duration(n.get("step"), 0, time.Microsecond, 24*time.Hour),
		MaxRetryAfter: b.duration(n.get("max_retry_after"), DefaultMaxRetryAfter, time.Second, 24*time.Hour),
	}
	if p.Law != "" && !slices.Contains(control.Names(), p.Law) {
		law := n.get("law")
		b.add(law.at, law.path, "%s; want one of the laws %s", law.is(), strings.Join(control.Names(), ", "))
	}
	if s := b.text(n.get("factor")); s != "" {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || v <= 0 || v >= 1 {
			f := n.get("factor")
			b.add(f.at, f.path, "%s; want a number between 0 and 1, both excluded, such as 0.5", f.is())
		}
		p.Factor = v
	}
	if tolerance := n.get("tolerance"); tolerance != nil {
		if p.Tolerance = b.duration(tolerance, 0, 0, 24*time.Hour); p.Tolerance == 0 {
			p.Tolerance = -1 // written out as none
		}
	}
	if law := cmp.Or(p.Law, control.DefaultLaw); law != "aimd" && slices.Contains(control.Names(), law) {
		for _, name := range []string{"step", "factor"} {
			if f := n.get(name); f != nil {
				b.add(f.at, f.path, "is used by law aimd only, and the law is %s: remove it, or set law: aimd", law)
			}
		}
	}
	if ceiling == 0 {
		ceiling = control.DefaultCeiling
	}
	b.jitter(n.get("jitter"), ceiling, &p)
	return p
}

func (b builder) jitter(n *node, ceiling time.Duration, p *Pacing) {
	if n == nil {
		return
	}
	bound := n
	if n.kind == kindTable {
		bound = n.get("max")
		p.JitterMin = b.duration(n.get("min"), 0, 0, time.Hour)
	}
	p.JitterMax = b.duration(bound, 0, 0, time.Hour)
	if bound != nil && p.JitterMax == 0 {
		p.JitterMax = -1 // written out as none
	}
	low := n.get("min")
	switch {
	case low == nil:
	case p.JitterMin > ceiling:
		b.add(low.at, low.path, "%s, which is longer than the ceiling of %v: no wait could ever be that short; want at most the ceiling", low.is(), ceiling)
	case p.JitterMin > max(p.JitterMax, 0):
		b.add(low.at, low.path, "%s; want at most max", low.is())
	}
}

// url is an absolute URL that a credential may be sent to.
func (b builder) url(n *node) *url.URL {
	s := b.text(n)
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	advice := ""
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "" || u.Scheme != "http" && u.Scheme != "https":
		advice = n.is() + "; want a URL such as https://api.example.com/v1"
	case u.User != nil:
		advice = "has a login in it; remove it and put the credential under provider.auth, by reference"
	case u.RawQuery != "" || u.ForceQuery:
		advice = "has a query; parameters go under query of each list and detail"
	case u.Fragment != "":
		advice = "has a fragment (#), which is never sent; remove it"
	}
	if advice != "" {
		b.add(n.at, n.path, "%s", advice)
		return nil
	}
	return u
}
