package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/configfile"
)

// options are how a scenario file is read.
var options = configfile.Options{What: "scenario", Want: "a name and perhaps workload and provider", MaxBytes: MaxSize}

// Load reads a scenario file. Errors in its content are a [*configfile.Error].
func Load(path string) (*Scenario, error) {
	src, err := configfile.Load(path, options)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	return Parse(path, src)
}

// Parse reads a scenario. The name stands for the file in errors, which are
// all of type [*configfile.Error]. Bytes that are not a scenario are an error, never
// a panic.
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
		Name:        m.text("name", 64),
		Description: m.text("description", 4096),
		Horizon:     m.duration("horizon", DefaultHorizon, time.Second, MaxHorizon),
		Clients:     m.integer("clients", DefaultClients, 1, MaxClients),
		Fleet:       m.boolean("fleet"),
		Owner:       owner(m),
		Workload:    workload(m),
	}
	if strings.Trim(s.Name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		m.Want("name", "lower-case letters, digits, '-', '_' and '.'")
	}
	s.Provider = provider(m, s.Horizon, s.Workload.Kind)
	if s.Workload.Kind == Bulk {
		for _, field := range []string{"clients", "fleet", "owner"} {
			if m.Has(field) {
				m.Fail(field, "does not belong to workload kind %s, whose users are workload.users and which no interval paces", Bulk)
			}
		}
		if s.Provider.Batch == nil && !m.Has("provider") {
			m.Fail("provider", "is missing; want a mapping with a batch for workload kind %s", Bulk)
		}
	}
	return s
}

func owner(root mapping) Owner {
	o := Owner{Ceiling: DefaultCeiling, Initial: DefaultInitial}
	if m, ok := root.section("owner", "ceiling", "initial"); ok {
		o.Ceiling = m.duration("ceiling", o.Ceiling, time.Microsecond, 24*time.Hour)
		o.Initial = m.duration("initial", o.Initial, time.Microsecond, 24*time.Hour)
	}
	o.Initial = max(o.Initial, o.Ceiling)
	return o
}

func workload(root mapping) Workload {
	w := Workload{Kind: Backlog, MaxInFlight: DefaultMaxInFlight, Cost: Cost{Mean: DefaultCostMean}}
	m, ok := root.section("workload", "kind", "rate", "burst", "active", "pause", "max_in_flight", "cost", "rows", "users")
	if !ok {
		return w
	}
	w.Kind = word(m, "kind", Backlog, Backlog, Open, Bulk)
	w.Rate = m.rate("rate")
	switch {
	case w.Kind == Open:
		m.require("rate")
	case w.Kind == Bulk && m.Has("rate"):
		m.Fail("rate", "belongs to workload kind open, not to %s", w.Kind)
	}
	if w.Kind != Open && m.Has("burst") {
		m.Fail("burst", "belongs to workload kind %s, not to %s", Open, w.Kind)
	}
	if w.Kind == Bulk {
		return bulk(m, w)
	}
	w.Burst = m.integer("burst", 0, 1, MaxCount)
	m.together("active", "pause")
	w.Active = m.duration("active", 0, time.Second, MaxHorizon)
	w.Pause = m.duration("pause", 0, time.Second, MaxHorizon)
	for _, field := range []string{"rows", "users"} {
		if m.Has(field) {
			m.Fail(field, "belongs to workload kind %s, not to %s", Bulk, w.Kind)
		}
	}
	w.MaxInFlight = m.integer("max_in_flight", w.MaxInFlight, 1, MaxCount)
	if c, ok := m.section("cost", "mean", "spread"); ok {
		w.Cost.Mean = c.number("mean", w.Cost.Mean, 0, 1e9, true)
		w.Cost.Spread = c.number("spread", 0, 0, 3, false)
	}
	return w
}

// bulk reads what a bulk workload has.
func bulk(m mapping, w Workload) Workload {
	m.require("rows")
	w.Rows = m.integer("rows", 0, 1, MaxRows)
	w.Users = m.integer("users", DefaultUsers, 1, MaxClients)
	w.MaxInFlight = m.integer("max_in_flight", w.MaxInFlight, 1, MaxPlaces)
	for _, field := range []string{"active", "pause"} {
		if m.Has(field) {
			m.Fail(field, "does not belong to workload kind %s", Bulk)
		}
	}
	if m.Has("cost") {
		m.Fail("cost", "does not belong to workload kind %s, where a batch costs one for each row", Bulk)
	}
	return w
}
