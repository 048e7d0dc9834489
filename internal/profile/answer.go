package profile

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// Attempt returns a request's pool, "" if only the account's limits apply, and its
// estimated cost in the units that limits count. A pool that is passed in is kept.
func (p *Profile) Attempt(req *http.Request, pool string) (string, float64) {
	r := RequestOf(req, p.finder.Base)
	if pool == "" {
		pool = p.finder.Name(r)
	}
	return pool, p.classOf(r, pool).Cost.estimate(p, r, pool)
}

// Reads reports whether the body of a response must be read, because it says something
// about limits or whether the attempt was refused.
func (p *Profile) Reads(req *http.Request, pool string, status int, header http.Header) bool {
	if status >= http.StatusBadRequest || !strings.Contains(header.Get("Content-Type"), "json") {
		return false // the body of an error is read anyway
	}
	c := p.classOf(RequestOf(req, p.finder.Base), pool)
	return len(c.Cost.Reports) > 0 ||
		slices.ContainsFunc(c.Advertised, func(a Advertised) bool { return a.Body }) ||
		slices.ContainsFunc(p.refusals, func(r Refusal) bool { return len(r.Body) > 0 && slices.Contains(r.Status, status) })
}

// Read interprets the response to an attempt of a pool. It corrects class, wait and limits
// in s, the signal of the same response. It returns the pool that the response names ("" if
// none), the attempt's cost (0 if the response does not report it), and whether a refusal
// concerns the whole account. The body may be nil or truncated.
func (p *Profile) Read(now time.Time, req *http.Request, pool string, status int, header http.Header, body []byte, s *signal.Signal) (named string, cost float64, account bool) {
	r := RequestOf(req, p.finder.Base)
	if named = p.finder.Learn(r, header); named != "" {
		pool = named
	}
	c := p.classOf(r, pool)
	var fields any
	if len(body) > 0 && (body[0] == '{' || body[0] == '[') {
		_ = json.Unmarshal(body, &fields)
	}
	p.advertised(now, c, header, fields, s)
	for i := range p.refusals {
		if f := &p.refusals[i]; f.fits(status, header, fields) {
			f.apply(s)
			account = f.Account
			break
		}
	}
	if s.Class.Success() {
		cost = c.Cost.took(p, r, pool, header, fields)
		for i := range s.Limits {
			s.Limits[i].Took = int64(sum(fields, c.Cost.Parts[s.Limits[i].Unit]))
		}
	}
	return named, cost, account
}

// advertised replaces the limits that were read without the profile by those whose fields
// the profile names.
func (p *Profile) advertised(now time.Time, c *Class, header http.Header, fields any, s *signal.Signal) {
	all := c.Advertised
	if len(all) == 0 {
		all = p.account.Advertised
	}
	var limits []signal.Limit
	for i := range all {
		if l, ok := all[i].read(now, header, fields); ok {
			limits = append(limits, l)
		}
	}
	if limits != nil {
		s.Limits = limits
	}
}

func (a *Advertised) read(now time.Time, header http.Header, fields any) (signal.Limit, bool) {
	f := signal.Fields{
		Name: a.Name, Unit: a.Unit, Limit: a.Limit, Remaining: a.Remaining, Used: a.Used, Reset: a.Reset,
		Window: a.Window, Refills: a.Refills || a.RefillPerSec != "",
	}
	if a.Refills {
		f.Window = 0 // it is no window
	}
	from := header
	if a.Body {
		from = http.Header{}
		for _, name := range []string{a.Limit, a.Remaining, a.Used, a.Reset} {
			if v, ok := number(fields, name); ok {
				from[name] = []string{strconv.FormatFloat(math.Floor(v), 'f', 0, 64)}
			}
		}
	}
	if used, limit, ok := strings.Cut(header.Get(a.UsedOf), "/"); a.UsedOf != "" && ok {
		from = http.Header{"Used": {used}, "Limit": {limit}}
		f.Used, f.Limit = "Used", "Limit"
	}
	l, ok := f.Read(now, from)
	if ok && l.Reset < 0 && l.Quota > 0 && l.Remaining >= 0 {
		used := float64(max(0, l.Quota-l.Remaining))
		if rate, given := number(fields, a.RefillPerSec); given && rate > 0 {
			l.Reset = time.Duration(used / rate * float64(time.Second))
		} else if a.Refills && a.Window > 0 {
			l.Reset = time.Duration(used / float64(l.Quota) * float64(a.Window))
		}
	}
	return l, ok
}

func (f *Refusal) fits(status int, header http.Header, fields any) bool {
	if len(f.Status) > 0 && !slices.Contains(f.Status, status) {
		return false
	}
	for name, pattern := range f.Header {
		if values := header[http.CanonicalHeaderKey(name)]; len(values) == 0 || !fits(pattern, values[0]) {
			return false
		}
	}
	for name, pattern := range f.Body {
		if !slices.ContainsFunc(values(fields, name), func(v any) bool { return fits(pattern, text(v)) }) {
			return false
		}
	}
	return true
}

func (f *Refusal) apply(s *signal.Signal) {
	if f.Class != reason.Unknown {
		s.Class = f.Class
	}
	s.Exhausted = s.Exhausted || f.Exhausted
	if !s.HasRetryAfter {
		for _, l := range s.Limits {
			if l.Remaining == 0 && l.Reset > 0 && s.Class.Throttle() {
				s.RetryAfter, s.HasRetryAfter = max(s.RetryAfter, l.Reset), true
			}
		}
	}
	if !s.HasRetryAfter && f.Wait > 0 {
		s.RetryAfter, s.HasRetryAfter = f.Wait, true
	}
}

// alike identifies requests that are expected to cost the same.
type alike struct {
	pool string
	hash uint64
}

const (
	// maxAlike bounds how many kinds of requests are remembered by what they took.
	maxAlike = 1024
	// newest is the weight of the newest report in the remembered mean.
	newest = 0.25
)

func (c *Cost) kin(r *Request, pool string) alike {
	a := alike{pool: pool}
	if c.Alike != "" {
		h := fnv.New64a()
		_, _ = h.Write([]byte(r.field(c.Alike)))
		a.hash = h.Sum64()
	}
	return a
}

// estimate returns the expected cost of a request: the mean cost of similar requests, or
// the published cost if there were none.
func (c *Cost) estimate(p *Profile, r *Request, pool string) float64 {
	if c.Unit == "" {
		return 1
	}
	base := max(c.Base, 0)
	for i := range c.Rules {
		if c.Rules[i].Match.Fits(r) {
			base = c.Rules[i].Cost
			break
		}
	}
	if c.Bytes > 0 || len(c.Fields) > 0 {
		base += float64(r.size()) / max(1, c.Bytes) * min(1, c.Bytes)
		for _, name := range c.Fields {
			if v, ok := number(r.fields(), name); ok {
				base += v
				break
			}
		}
	} else if len(c.Reports) > 0 || c.Header != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		if known, ok := p.costs[c.kin(r, pool)]; ok {
			return known
		}
	}
	if base <= 0 {
		return 1
	}
	return base
}

// took returns the cost that a response reports for its request; 0 if it reports none.
func (c *Cost) took(p *Profile, r *Request, pool string, header http.Header, fields any) (cost float64) {
	if c.Unit == "" {
		return 0
	}
	if v, err := strconv.ParseFloat(strings.TrimSpace(header.Get(c.Header)), 64); c.Header != "" && err == nil && v > 0 && !math.IsInf(v, 0) {
		cost = v
	} else {
		cost = sum(fields, c.Reports)
	}
	if cost == 0 || c.Bytes > 0 || len(c.Fields) > 0 {
		return cost
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.costs == nil || len(p.costs) >= maxAlike {
		p.costs = map[alike]float64{}
	}
	key := c.kin(r, pool)
	if known, ok := p.costs[key]; ok {
		p.costs[key] = known + newest*(cost-known)
	} else {
		p.costs[key] = cost
	}
	return cost
}

// Asked returns the limits in a response to [Profile.Ask], by pool.
func (p *Profile) Asked(now time.Time, body []byte) map[string][]control.Fact {
	if p.ask == nil {
		return nil
	}
	var fields any
	if json.Unmarshal(body, &fields) != nil {
		return nil
	}
	all, _ := at(fields, p.ask.In).(map[string]any)
	found := map[string][]control.Fact{}
	for i := range p.pools {
		c := &p.pools[i]
		of := all[c.Name]
		quota, ok1 := number(of, p.ask.Limit)
		left, ok2 := number(of, p.ask.Remaining)
		reset, ok3 := number(of, p.ask.Reset)
		if c.Name == "" || !ok1 || !ok2 || !ok3 || quota <= 0 || left < 0 {
			continue
		}
		f := control.Fact{Name: c.Name, Quota: quota, Remaining: left, Window: signal.Unknown, Reset: max(0, time.Unix(int64(reset), 0).Sub(now))}
		for _, a := range c.Advertised { // the name that responses use
			f.Name, f.PerCost = a.Name, a.Unit != signal.UnitRequests
			if a.Window > 0 {
				f.Window = a.Window
			}
			break
		}
		found[c.Name] = append(found[c.Name], f)
	}
	return found
}

// sum adds up the named fields.
func sum(fields any, names []string) (total float64) {
	for _, name := range names {
		if v, ok := number(fields, name); ok {
			total += max(0, v)
		}
	}
	return total
}

// number returns a field that is a number, or a text with a number.
func number(v any, name string) (float64, bool) {
	if name == "" {
		return 0, false
	}
	for _, v := range values(v, name) {
		switch v := v.(type) {
		case float64:
			return v, true
		case string:
			if f, err := strconv.ParseFloat(v, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
				return f, true
			}
		}
	}
	return 0, false
}

// values returns the values of a field, for a list those of each element. Dots separate the
// names of nested fields.
func values(v any, name string) []any {
	if list, ok := v.([]any); ok {
		var all []any
		for _, v := range list {
			all = append(all, values(v, name)...)
		}
		return all
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	first, rest, more := strings.Cut(name, ".")
	v, ok = m[first]
	switch {
	case !ok:
		return nil
	case more:
		return values(v, rest)
	}
	return []any{v}
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}
