package provider

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// httpDate is the format of dates in HTTP header fields, always in UTC.
const httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"

// Quota is the rest of one limit.
type Quota struct {
	// Kind and Name are the limit's. Index is its position in the scenario.
	Kind  scenario.Kind
	Name  string
	Index int
	// Limit and Remaining are in requests, units of cost, or seconds of busy time.
	Limit, Remaining float64
	// Window is the limit's window, for a bucket the time to fill it, and zero for
	// concurrency.
	Window time.Duration
	// Reset is when it is completely free if nothing is used.
	Reset time.Duration
}

// Quotas appends the rest of each limit that can refuse, in the order of the scenario.
func (m *Model) Quotas(now time.Duration, to []Quota) []Quota {
	m.advance(now)
	for i := range m.limits {
		l := &m.limits[i]
		q := l.quota(m.now)
		q.Kind, q.Name, q.Index = l.kind, l.name, l.index
		to = append(to, q)
	}
	return to
}

// Field is one header field, with its name in canonical form.
type Field struct{ Name, Value string }

// Fields appends the header fields of the response v at the model's current instant:
// Retry-After in its style, and the limits in their dialect. Call it right after
// [Model.Arrive]. A reset has no fields.
func (m *Model) Fields(v Verdict, to []Field) []Field {
	if v.HasRetryAfter {
		to = append(to, m.retryField(v))
	}
	if v.Reset || v.Suspended || v.Status == 503 && !v.Throttled {
		return to
	}
	return m.style.fields(m, to)
}

func (m *Model) retryField(v Verdict) Field {
	switch m.cfg.Provider.Throttle.RetryAfter {
	case scenario.RetryMillis:
		return Field{"Retry-After-Ms", strconv.FormatInt(v.RetryAfter.Milliseconds(), 10)}
	case scenario.RetryExact:
		ms := float64(v.RetryAfter) / float64(time.Millisecond)
		return Field{"Retry-After-Ms", strconv.FormatFloat(ms, 'f', -1, 64)}
	case scenario.RetryDate:
		return Field{"Retry-After", m.wall(m.now + v.RetryAfter).Format(httpDate)}
	case scenario.RetrySeconds, scenario.RetryNone:
	}
	return Field{"Retry-After", strconv.FormatInt(int64(v.RetryAfter/time.Second), 10)}
}

// Wall returns the wall clock at the model's current instant.
func (m *Model) Wall() time.Time { return m.wall(m.now) }

func (m *Model) wall(at time.Duration) time.Time { return m.start.Add(at) }

// dialect records which limits the headers report; -1 means none.
type dialect struct {
	headers  scenario.Dialect
	requests int // the first that counts requests over time
	tokens   int // the first that counts cost
	names    []string
}

func newDialect(s *scenario.Scenario, limits []limit) *dialect {
	d := &dialect{headers: s.Provider.Throttle.Headers, requests: -1, tokens: -1}
	seen := make(map[scenario.Kind]int)
	for i := range limits {
		switch limits[i].kind {
		case scenario.TokenBucket, scenario.FixedWindow, scenario.SlidingWindow:
			if d.requests < 0 {
				d.requests = i
			}
		case scenario.CostWindow:
			if d.tokens < 0 {
				d.tokens = i
			}
		case scenario.Concurrency, scenario.BusyTime, scenario.Slowdown:
		}
		name := strings.ReplaceAll(string(limits[i].kind), "_", "-")
		if seen[limits[i].kind]++; seen[limits[i].kind] > 1 {
			name += "-" + strconv.Itoa(seen[limits[i].kind])
		}
		d.names = append(d.names, name)
	}
	return d
}

func (d *dialect) fields(m *Model, to []Field) []Field {
	switch d.headers {
	case scenario.HeadersNone:
		return to
	case scenario.HeadersIETF:
		return d.ietf(m, to)
	case scenario.HeadersGitHub:
		return d.github(m, to)
	case scenario.HeadersOpenAI:
		to = d.openai(m, to, "Requests", d.requests)
		return d.openai(m, to, "Tokens", d.tokens)
	case scenario.HeadersAnthropic:
		to = d.anthropic(m, to, "Requests", d.requests, 1)
		return d.anthropic(m, to, "Tokens", d.tokens, 1000)
	}
	return to
}

func whole(v float64) string { return strconv.FormatInt(int64(v), 10) }

// github reports only the primary limit, whichever limit refused.
func (d *dialect) github(m *Model, to []Field) []Field {
	if d.requests < 0 {
		return to
	}
	q := m.limits[d.requests].quota(m.now)
	reset := m.wall(q.Reset).Add(time.Second - 1).Unix()
	return append(to,
		Field{"X-Ratelimit-Limit", whole(q.Limit)},
		Field{"X-Ratelimit-Remaining", whole(q.Remaining)},
		Field{"X-Ratelimit-Used", whole(q.Limit - q.Remaining)},
		Field{"X-Ratelimit-Reset", strconv.FormatInt(reset, 10)},
		Field{"X-Ratelimit-Resource", "core"},
	)
}

func (d *dialect) openai(m *Model, to []Field, what string, i int) []Field {
	if i < 0 {
		return to
	}
	q := m.limits[i].quota(m.now)
	return append(to,
		Field{"X-Ratelimit-Limit-" + what, whole(q.Limit)},
		Field{"X-Ratelimit-Remaining-" + what, whole(q.Remaining)},
		Field{"X-Ratelimit-Reset-" + what, ceil(q.Reset-m.now, time.Millisecond).String()},
	)
}

// anthropic rounds the rest down to a multiple of unit.
func (d *dialect) anthropic(m *Model, to []Field, what string, i int, unit float64) []Field {
	if i < 0 {
		return to
	}
	q := m.limits[i].quota(m.now)
	prefix := "Anthropic-Ratelimit-" + what
	return append(to,
		Field{prefix + "-Limit", whole(q.Limit)},
		Field{prefix + "-Remaining", whole(math.Floor(q.Remaining/unit) * unit)},
		Field{prefix + "-Reset", m.wall(q.Reset).Add(time.Second - 1).Truncate(time.Second).Format(time.RFC3339)},
	)
}

// ietf reports every limit on requests, cost, or requests in flight.
func (d *dialect) ietf(m *Model, to []Field) []Field {
	var policy, state []string
	for i := range m.limits {
		l := &m.limits[i]
		q := l.quota(m.now)
		unit := ""
		switch l.kind {
		case scenario.CostWindow:
			unit = `;qu="tokens"`
		case scenario.Concurrency:
			unit = `;qu="concurrent-requests"`
		case scenario.BusyTime, scenario.Slowdown:
			continue
		case scenario.TokenBucket, scenario.FixedWindow, scenario.SlidingWindow:
		}
		p := fmt.Sprintf("%q;q=%s%s", d.names[i], whole(q.Limit), unit)
		s := fmt.Sprintf("%q;r=%s", d.names[i], whole(q.Remaining))
		if q.Window > 0 {
			p += ";w=" + strconv.FormatInt(int64(ceil(q.Window, time.Second)/time.Second), 10)
			s += ";t=" + strconv.FormatInt(int64(ceil(q.Reset-m.now, time.Second)/time.Second), 10)
		}
		policy, state = append(policy, p), append(state, s)
	}
	if len(policy) == 0 {
		return to
	}
	return append(to,
		Field{"Ratelimit-Policy", strings.Join(policy, ", ")},
		Field{"Ratelimit", strings.Join(state, ", ")},
	)
}
