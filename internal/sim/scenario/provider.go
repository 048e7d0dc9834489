package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/configfile"
)

func provider(root mapping, horizon time.Duration, kind WorkloadKind) Provider {
	p := Provider{
		Latency:  latency(mapping{}),
		Throttle: Throttle{Status: DefaultStatus, RetryAfter: RetryNone, Headers: HeadersNone},
	}
	m, ok := root.section("provider",
		"latency", "batch", "hint", "limits", "pools", "throttle", "penalty", "suspend", "strangers", "changes", "faults")
	if !ok {
		return p
	}
	if l, ok := m.section("latency", "p50", "p99", "uplink_p50", "uplink_p99"); ok {
		l.require("p50")
		p.Latency = latency(l)
	}
	p.Batch, p.Hint = batch(m, kind)
	for _, n := range m.list("limits") {
		if l, ok := limit(n); ok {
			p.Limits = append(p.Limits, l)
		}
	}
	p.Pools = pools(m, kind)
	if t, ok := m.section("throttle", "status", "retry_after", "retry_after_factor", "retry_after_constant", "headers", "counts_rejected"); ok {
		p.Throttle = Throttle{
			RetryAfterFactor:   t.number("retry_after_factor", 0, 1e-6, 1e6, false),
			RetryAfterConstant: t.duration("retry_after_constant", 0, time.Millisecond, MaxHorizon),

			Status:         t.integer("status", DefaultStatus, 400, 599),
			RetryAfter:     word(t, "retry_after", RetryNone, RetrySeconds, RetryMillis, RetryDate, RetryExact, RetryNone),
			Headers:        word(t, "headers", HeadersNone, HeadersNone, HeadersGitHub, HeadersOpenAI, HeadersAnthropic, HeadersIETF),
			CountsRejected: t.boolean("counts_rejected"),
		}
		if p.Throttle.RetryAfter == RetryNone {
			t.refuse("needs a retry_after other than none", "retry_after_factor", "retry_after_constant")
		}
	}
	if len(p.Pools) > 0 && p.Throttle.Headers != HeadersNone {
		m.Fail("pools", "do not go with throttle.headers, which would have to say whose limit they are about")
	}
	p.Penalty = penalty(m)
	if s, ok := m.section("suspend", "throttles", "within"); ok {
		s.require("throttles", "within")
		p.Suspend = &Suspend{
			Throttles: s.integer("throttles", 1, 1, 1_000_000),
			Within:    s.duration("within", 0, time.Millisecond, MaxHorizon),
		}
	}
	if s, ok := m.section("strangers", "rate", "on", "off"); ok {
		s.require("rate")
		s.together("on", "off")
		p.Strangers = &Strangers{
			Rate: s.rate("rate"),
			On:   s.duration("on", 0, time.Millisecond, MaxHorizon),
			Off:  s.duration("off", 0, time.Millisecond, MaxHorizon),
		}
	}
	p.Changes = changes(m, horizon, kind)
	p.Faults = faults(m, horizon)
	return p
}

// pools reads the pools.
func pools(root mapping, kind WorkloadKind) []Pool {
	if kind == Bulk {
		root.refuse("does not belong to workload kind bulk", "pools")
		return nil
	}
	var list []Pool
	for _, n := range root.list("pools") {
		m, ok := only(n, "name", "share", "limits")
		if !ok {
			continue
		}
		m.require("name")
		p := Pool{Name: m.text("name", maxName), Share: m.number("share", 1, 0, 1e6, true)}
		if strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") != "" {
			m.Want("name", "letters, digits, '-', '_', '.' and '/'")
		}
		if slices.ContainsFunc(list, func(o Pool) bool { return o.Name == p.Name }) {
			m.Fail("name", "is that of a pool before it")
		}
		for _, n := range m.list("limits") {
			l, ok := limit(n)
			if ok && l.Kind == Slowdown {
				n.Fail("is a slowdown, which is the account's; want it under provider.limits")
				continue
			}
			if ok {
				p.Limits = append(p.Limits, l)
			}
		}
		list = append(list, p)
	}
	return list
}

// batch reads the fields that only the provider of a bulk workload has.
func batch(m mapping, kind WorkloadKind) (b *Batch, hint int) {
	if kind != Bulk {
		m.refuse(fmt.Sprintf("belongs to workload kind bulk, not to %s", kind), "batch", "hint")
		return nil, 0
	}
	m.require("batch")
	hint = m.integer("hint", 0, 1, MaxPlaces)
	s, ok := m.section("batch", "overhead", "per_row", "max_rows", "spread", "knee", "shared_knee")
	if !ok {
		return nil, hint
	}
	s.require("per_row")
	return &Batch{
		Overhead:   s.duration("overhead", 0, 0, MaxLatency),
		PerRow:     s.duration("per_row", 0, time.Microsecond, time.Minute),
		MaxRows:    s.integer("max_rows", DefaultBatchRows, 1, 1<<20),
		Spread:     s.number("spread", 0, 0, 3, false),
		Knee:       s.integer("knee", 0, 1, MaxPlaces),
		SharedKnee: s.integer("shared_knee", 0, 1, MaxPlaces*MaxClients),
	}, hint
}

// latency reads the section, or returns the defaults for the zero mapping.
func latency(m mapping) Latency {
	l := Latency{P50: m.duration("p50", DefaultLatency, 0, MaxLatency)}
	l.P99 = m.duration("p99", l.P50, 0, MaxLatency)
	l.UplinkP50 = m.duration("uplink_p50", l.P50/10, 0, MaxLatency)
	l.UplinkP99 = m.duration("uplink_p99", max(2*l.UplinkP50, 0), 0, MaxLatency)
	check := func(name, base string, p50, p99 time.Duration) {
		switch {
		case p99 < p50:
			m.Fail(name, "is %s; want at least %s, which is %s", short(p99), base, short(p50))
		case p50 == 0 && p99 > 0:
			m.Fail(name, "is %s, which is impossible for a lognormal latency whose %s is 0s", short(p99), base)
		}
	}
	if m.Has("p99") {
		check("p99", "p50", l.P50, l.P99)
	}
	if m.Has("uplink_p99") {
		check("uplink_p99", "uplink_p50", l.UplinkP50, l.UplinkP99)
	}
	if m.Has("uplink_p50") && l.UplinkP50 > l.P50 {
		m.Fail("uplink_p50", "is %s; want at most p50, which is %s", short(l.UplinkP50), short(l.P50))
	}
	return l
}

// fields lists the fields of each kind of limit, the required ones first.
var fields = []struct {
	kind               Kind
	required, optional []string
}{
	{TokenBucket, []string{"rate"}, []string{"burst"}},
	{FixedWindow, []string{"limit", "window"}, []string{"align"}},
	{SlidingWindow, []string{"limit", "window"}, []string{"approximate"}},
	{Concurrency, []string{"limit"}, nil},
	{CostWindow, []string{"limit", "window"}, nil},
	{BusyTime, []string{"limit", "window"}, nil},
	{Slowdown, []string{"knee", "factor"}, nil},
}

func limit(n *configfile.Node) (Limit, bool) {
	all := []string{"kind", "rate", "burst", "limit", "window", "align", "approximate", "knee", "factor"}
	m, ok := only(n, all...)
	if !ok {
		return Limit{}, false
	}
	m.require("kind")
	kind := word(m, "kind", "", TokenBucket, FixedWindow, SlidingWindow, Concurrency, CostWindow, BusyTime, Slowdown)
	if kind == "" {
		return Limit{}, false
	}
	before := m.File().Failed()
	checkFields(m, kind, all[1:])
	if m.File().Failed() > before {
		return Limit{}, false
	}
	l := Limit{Kind: kind}
	window := func() time.Duration { return m.duration("window", 0, time.Millisecond, MaxHorizon) }
	switch kind {
	case TokenBucket:
		l.Rate = m.rate("rate")
		l.Burst = m.integer("burst", 1, 1, MaxCount)
		if fill := float64(l.Burst) * float64(l.Rate.Interval()); fill > float64(MaxFill) {
			m.Fail("burst", "is %d, which at %s would take more than %s to fill", l.Burst, l.Rate, short(MaxFill))
		}
	case FixedWindow:
		l.Count = m.integer("limit", 0, 1, MaxCount)
		l.Window = window()
		l.Align = word(m, "align", AlignEpoch, AlignEpoch, AlignFirst)
	case SlidingWindow:
		l.Count = m.integer("limit", 0, 1, MaxCount)
		l.Window = window()
		l.Approximate = m.boolean("approximate")
	case Concurrency:
		l.Count = m.integer("limit", 0, 1, MaxCount)
	case CostWindow:
		l.Units = m.number("limit", 0, 0, 1e12, true)
		l.Window = window()
	case BusyTime:
		l.Busy = m.duration("limit", 0, time.Millisecond, 1000*MaxHorizon)
		l.Window = window()
	case Slowdown:
		l.Knee = m.rate("knee")
		if l.Knee.Count > 0 && l.Knee.PerSecond() < 1 {
			m.Fail("knee", "is %s; want at least 1/s, since arrivals of the last second are counted", l.Knee)
		}
		l.Factor = m.number("factor", 0, 1, 1000, false)
	}
	return l, m.File().Failed() == before
}

// checkFields reports missing fields of a kind, and fields that it does not have.
func checkFields(m mapping, kind Kind, all []string) {
	for _, f := range fields {
		if f.kind != kind {
			continue
		}
		m.require(f.required...)
		for _, name := range all {
			if m.Has(name) && !slices.Contains(f.required, name) && !slices.Contains(f.optional, name) {
				m.Fail(name, "does not belong to limit kind %s", kind)
			}
		}
	}
}

func penalty(root mapping) *Penalty {
	m, ok := root.section("penalty", "base", "factor", "max", "forgive", "fixed")
	if !ok {
		return nil
	}
	m.require("base")
	p := &Penalty{
		Base:    m.duration("base", 0, time.Millisecond, MaxHorizon),
		Factor:  m.number("factor", DefaultPenaltyGrows, 1, 1000, false),
		Forgive: m.duration("forgive", DefaultForgive, 0, MaxHorizon),
		Fixed:   m.boolean("fixed"),
	}
	p.Max = m.duration("max", max(DefaultPenaltyMax, p.Base), time.Millisecond, MaxHorizon)
	if p.Max < p.Base {
		m.Fail("max", "is %s; want at least base, which is %s", short(p.Max), short(p.Base))
	}
	return p
}

func changes(root mapping, horizon time.Duration, kind WorkloadKind) []Change {
	var list []Change
	total, last := 1.0, time.Duration(-1)
	for _, n := range root.list("changes") {
		m, ok := only(n, "at", "over", "scale", "hint", "knee")
		if !ok {
			continue
		}
		m.require("at")
		switch {
		case kind != Bulk:
			m.require("scale")
			m.refuse(fmt.Sprintf("belongs to workload kind bulk, not to %s", kind), "hint", "knee")
		case m.Has("over"):
			m.Fail("over", "does not belong to workload kind %s", Bulk)
		case !m.Has("hint") && !m.Has("knee") && !m.Has("scale"):
			m.Fail("scale", "is missing; want at least one of scale, hint and knee")
		}
		before := m.File().Failed()
		c := Change{
			At: m.duration("at", 0, 0, horizon), Over: m.duration("over", 0, DriftSteps*time.Millisecond, MaxHorizon), Scale: m.number("scale", 1, 0, 1000, true),
			Hint: m.integer("hint", 0, 1, MaxPlaces), Knee: m.integer("knee", 0, 1, MaxPlaces),
		}
		if !m.Has("at") || m.File().Failed() > before {
			continue
		}
		if c.At <= last {
			m.Fail("at", "is %s; want later than the change before it, at %s", short(c.At), short(last))
		}
		if total *= c.Scale; total < 1e-3 || total > 1e3 {
			m.Fail("scale", "makes the changes so far multiply to %g; want from 0.001 to 1000", total)
			total = 1
		}
		last = c.At + c.Over
		list = append(list, c)
	}
	return list
}

func faults(root mapping, horizon time.Duration) []Fault {
	var list []Fault
	for _, n := range root.list("faults") {
		m, ok := only(n, "at", "for", "kind", "share")
		if !ok {
			continue
		}
		m.require("at", "for", "kind")
		f := Fault{
			At:   m.duration("at", 0, 0, horizon),
			For:  m.duration("for", 0, time.Millisecond, MaxHorizon),
			Kind: word(m, "kind", "", Outage, Slow, Reset, Overload),
		}
		if f.Kind == Overload {
			m.require("share")
			f.Share = m.number("share", 0, 0, 1, true)
		} else {
			m.refuse("belongs to kind overload", "share")
		}
		list = append(list, f)
	}
	return list
}
