package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headway-go/headway/internal/configfile"
)

// options configure how a scenario file is read.
var options = configfile.Options{What: "scenario", Want: "a name and perhaps workload and provider", MaxBytes: MaxSize}

// maxName is the maximum length of a scenario's name.
const maxName = 64

// Load reads a scenario file. Errors in its content are a [*configfile.Error].
func Load(path string) (*Scenario, error) {
	src, err := configfile.Load(path, options)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	return Parse(path, src)
}

// Parse parses a scenario. name stands for the file in errors, which are all of type
// [*configfile.Error]. Parse does not panic, whatever the bytes.
func Parse(name string, src []byte) (*Scenario, error) {
	root, file := configfile.Parse(name, src, options)
	s := parse(root)
	if err := file.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

func parse(root *configfile.Node) *Scenario {
	m, ok := only(root, "name", "description", "horizon", "clients", "fleet", "owner", "workload", "provider")
	if !ok {
		return nil
	}
	m.require("name")
	s := &Scenario{
		Name:        m.text("name", maxName),
		Description: m.text("description", 4096),
		Horizon:     m.duration("horizon", DefaultHorizon, time.Second, MaxHorizon),
		Clients:     m.integer("clients", DefaultClients, 1, MaxClients),
		Owner:       owner(m),
		Workload:    workload(m),
	}
	s.Fleet, s.Link = fleet(m, s.Horizon, s.Clients)
	if s.Name != "" && !ValidName(s.Name) {
		m.Want("name", "lower-case letters, digits, '-', '_' and '.'")
	}
	s.Provider = provider(m, s.Horizon, s.Workload.Kind)
	if s.Workload.Kind == Bulk {
		m.refuse("does not belong to workload kind bulk, whose users are workload.users and which no interval paces", "clients", "fleet", "owner")
		if s.Provider.Batch == nil && !m.Has("provider") {
			m.Fail("provider", "is missing; want a mapping with a batch for workload kind %s", Bulk)
		}
	}
	return s
}

// ValidName reports whether a scenario may have a name: 1 to 64 lower-case letters, digits,
// '-', '_' and '.'.
func ValidName(name string) bool {
	return name != "" && len(name) <= maxName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// fleet reads a bool, or the link of a fleet.
func fleet(root mapping, horizon time.Duration, clients int) (bool, *Link) {
	if n := root.Node().Get("fleet"); n == nil || n.Kind != configfile.Table {
		return root.boolean("fleet"), nil
	}
	m, ok := root.section("fleet", "trip", "faults")
	if !ok {
		return true, nil
	}
	m.require("trip")
	l := &Link{Trip: m.duration("trip", 0, time.Microsecond, time.Second)}
	for _, n := range m.list("faults") {
		m, ok := only(n, "at", "for", "kind", "clients")
		if !ok {
			continue
		}
		m.require("at", "for", "kind")
		f := LinkFault{
			At: m.duration("at", 0, 0, horizon), For: m.duration("for", 0, time.Millisecond, MaxHorizon),
			Kind: word(m, "kind", Away, Away, Cut),
		}
		if f.Kind == Cut {
			m.require("clients")
			f.Clients = m.integer("clients", 1, 1, clients)
		} else {
			m.refuse("belongs to kind cut, not to away", "clients")
		}
		if n := len(l.Faults); n > 0 && f.At < l.Faults[n-1].At+l.Faults[n-1].For {
			m.Fail("at", "is before the end of the fault before; want faults one after the other")
		}
		l.Faults = append(l.Faults, f)
	}
	return true, l
}

func owner(root mapping) Owner {
	o := Owner{Ceiling: DefaultCeiling, Initial: DefaultInitial}
	if m, ok := root.section("owner", "ceiling", "initial", "start", "windows"); ok {
		o.Ceiling = m.duration("ceiling", o.Ceiling, time.Microsecond, 24*time.Hour)
		o.Initial = m.duration("initial", o.Initial, time.Microsecond, 24*time.Hour)
		for _, n := range m.list("windows") {
			if w := span(n, 0, time.Second, 24*time.Hour); w > 0 {
				o.Windows = append(o.Windows, w)
			}
		}
		o.Passive = word(m, "start", startConservative, startConservative, startPassive) == startPassive
	}
	o.Initial = max(o.Initial, o.Ceiling)
	return o
}

func workload(root mapping) Workload {
	w := Workload{Kind: Backlog, MaxInFlight: DefaultMaxInFlight, Cost: Cost{Mean: DefaultCostMean, Estimate: 1}}
	m, ok := root.section("workload", "kind", "rate", "burst", "active", "pause", "max_in_flight", "cost", "rows", "users")
	if !ok {
		return w
	}
	w.Kind = word(m, "kind", Backlog, Backlog, Open, Bulk)
	w.Rate = m.rate("rate")
	if w.Kind == Open {
		m.require("rate")
	} else {
		m.refuse(fmt.Sprintf("belongs to workload kind open, not to %s", w.Kind), "burst")
	}
	if w.Kind == Bulk {
		m.refuse("belongs to workload kind open, not to bulk", "rate")
		return bulk(m, w)
	}
	w.Burst = m.integer("burst", 0, 1, MaxCount)
	m.together("active", "pause")
	w.Active = m.duration("active", 0, time.Second, MaxHorizon)
	w.Pause = m.duration("pause", 0, time.Second, MaxHorizon)
	m.refuse(fmt.Sprintf("belongs to workload kind bulk, not to %s", w.Kind), "rows", "users")
	w.MaxInFlight = m.integer("max_in_flight", w.MaxInFlight, 1, MaxCount)
	if c, ok := m.section("cost", "mean", "spread", "estimate", "error"); ok {
		w.Cost.Mean = c.number("mean", w.Cost.Mean, 0, 1e9, true)
		w.Cost.Spread = c.number("spread", 0, 0, 3, false)
		w.Cost.Estimate = c.number("estimate", 1, 0, 1e6, true)
		w.Cost.Error = c.number("error", 0, 0, 3, false)
	}
	return w
}

// bulk reads the fields of a bulk workload.
func bulk(m mapping, w Workload) Workload {
	m.require("rows")
	w.Rows = m.integer("rows", 0, 1, MaxRows)
	w.Users = m.integer("users", DefaultUsers, 1, MaxClients)
	w.MaxInFlight = m.integer("max_in_flight", w.MaxInFlight, 1, MaxPlaces)
	m.refuse("does not belong to workload kind bulk", "active", "pause")
	m.refuse("does not belong to workload kind bulk, where a batch costs one for each row", "cost")
	return w
}

// mapping is a mapping of the file whose keys were checked against a list. The zero mapping
// has no fields. Its methods return a field's value, or a default if the field is absent or
// wrong.
type mapping struct{ *configfile.Section }

// only reads a node as a mapping with only the named fields. ok is false if it is absent or
// not a mapping.
func only(n *configfile.Node, fields ...string) (m mapping, ok bool) {
	m.Section = n.Section()
	m.Only(fields...)
	return m, m.Section != nil
}

// wants says what is expected in place of a missing field.
var wants = map[string]string{
	"name": "a text", "rate": "a rate such as 10/s or 600/min", "knee": "a rate such as 10/s",
	"kind": "the kind", "batch": "a mapping with per_row", "rows": "a whole number", "throttles": "a whole number",
	"limit": "a number, or a duration for busy_time", "scale": "a number", "factor": "a number",
}

const wantDuration = "a duration with a unit, such as 250ms, 15m, 1h30m or 1d"

// require reports missing fields.
func (m mapping) require(fields ...string) {
	for _, f := range fields {
		bound, ok := wants[f]
		if !ok {
			bound = wantDuration
		}
		m.Require(f, bound)
	}
}

// refuse reports fields that are present.
func (m mapping) refuse(why string, fields ...string) {
	for _, f := range fields {
		if m.Has(f) {
			m.Fail(f, "%s", why)
		}
	}
}

// together reports two fields of which only one is present.
func (m mapping) together(a, b string) {
	if m.Has(a) != m.Has(b) {
		m.Fail(a, "and %s go together", b)
	}
}

// section reads a field as a mapping; ok is false if it is absent or not a mapping.
func (m mapping) section(field string, fields ...string) (mapping, bool) {
	return only(m.Take(field), fields...)
}

// list reads a field as a list of at most MaxListed elements.
func (m mapping) list(field string) []*configfile.Node {
	all := m.List(field)
	if len(all) > MaxListed {
		m.Fail(field, "has %d entries; want at most %d", len(all), MaxListed)
		return nil
	}
	return all
}

func (m mapping) text(field string, limit int) (s string) {
	if m.Text(field, &s); utf8.RuneCountInString(s) > limit {
		m.Fail(field, "is longer than %d characters", limit)
		return ""
	}
	return s
}

func (m mapping) boolean(field string) (on bool) {
	m.Bool(field, &on)
	return on
}

// word reads one of a fixed set of words.
func word[T ~string](m mapping, field string, otherwise T, allowed ...T) T {
	words, order := make(map[string]T, len(allowed)), make([]string, len(allowed))
	for i, a := range allowed {
		words[string(a)], order[i] = a, string(a)
	}
	configfile.Choice(m.Section, field, &otherwise, words, order...)
	return otherwise
}

func (m mapping) integer(field string, otherwise, low, high int) int {
	configfile.Int(m.Section, field, &otherwise, low, high)
	return otherwise
}

// number reads a finite number. low is allowed unless open is set.
func (m mapping) number(field string, otherwise, low, high float64, open bool) float64 {
	n := m.Take(field)
	if n == nil {
		return otherwise
	}
	bound := "at least"
	if open {
		bound = "above"
	}
	v, ok := n.Float()
	if !ok || v < low || v > high || open && v == low {
		n.Want(fmt.Sprintf("a number %s %g and at most %g", bound, low, high))
		return otherwise
	}
	return v
}

// duration reads a duration from low to high, inclusive.
func (m mapping) duration(field string, otherwise, low, high time.Duration) time.Duration {
	if n := m.Take(field); n != nil {
		return span(n, otherwise, low, high)
	}
	return otherwise
}

// span reads a node as a duration.
func span(n *configfile.Node, otherwise, low, high time.Duration) time.Duration {
	d, err := ParseDuration(scalar(n))
	switch {
	case err != nil:
		n.Want(wantDuration)
	case d < low || d > high:
		n.Want(fmt.Sprintf("from %s to %s", short(low), short(high)))
	default:
		return d
	}
	return otherwise
}

func (m mapping) rate(field string) Rate {
	n := m.Take(field)
	if n == nil {
		return Rate{}
	}
	r, err := ParseRate(scalar(n))
	if err != nil {
		n.Fail("%s: %v", n.Is(), err)
	}
	return r
}

// scalar returns the text of a word or number; "" for anything else.
func scalar(n *configfile.Node) string {
	if slices.Contains([]configfile.Kind{configfile.Text, configfile.Integer, configfile.Number}, n.Kind) {
		return n.Written
	}
	return ""
}
