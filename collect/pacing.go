package collect

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
)

// parts is the encoding of a Pacing's pools and keys.
type parts struct {
	Pools map[string]Pacing `json:"pools,omitempty"`
	Keys  map[string]Pacing `json:"keys,omitempty"`
}

// Parts encodes the pools and keys for a store. It returns nil if both are nil, that is,
// if a commit leaves the stored ones. Values that cannot be encoded are left out.
func (p *Pacing) Parts() []byte {
	if p.Pools == nil && p.Keys == nil {
		return nil
	}
	b, err := json.Marshal(parts{readable(p.Pools), readable(p.Keys)})
	if err != nil { // a number that JSON cannot represent
		return []byte("{}")
	}
	return b
}

func readable(all map[string]Pacing) map[string]Pacing {
	kept := make(map[string]Pacing, len(all))
	for name, p := range all {
		if !json.Valid(p.State) && p.State != nil || math.IsNaN(p.IntervalMS) || math.IsInf(p.IntervalMS, 0) {
			continue
		}
		p.Pools, p.Keys = readable(p.Pools), nil
		kept[name] = p
	}
	return kept
}

// SetParts decodes the result of [Pacing.Parts]. If that fails, pools and keys are nil.
func (p *Pacing) SetParts(stored []byte) {
	var s parts
	if len(stored) > 0 && json.Unmarshal(stored, &s) != nil {
		s = parts{}
	}
	p.Pools, p.Keys = s.Pools, s.Keys
}

// state returns the state that a control law starts from; ok is false if the interval is
// not one that a run can have stored.
func (p *Pacing) state() (s control.State, ok bool) {
	if p.IntervalMS <= 0 || math.IsNaN(p.IntervalMS) || p.IntervalMS > float64(control.StaleAfter.Milliseconds()) {
		return s, false
	}
	return control.State{
		Law: p.Law, Version: p.Version, Data: p.State,
		Interval: time.Duration(p.IntervalMS * float64(time.Millisecond)),
	}, true
}

func pacingOf(s control.State, at time.Time) Pacing {
	return Pacing{
		Version: s.Version, Law: s.Law, State: s.Data, RecordedAt: at,
		IntervalMS: float64(s.Interval) / float64(time.Millisecond),
	}
}

// otherKey is a credential after the first.
type otherKey struct {
	name     string
	governor *headway.Governor
}

// belief holds the pools and keys that the run before has stored.
type belief struct {
	stored Pacing    // without stale entries
	saved  time.Time // when this run last stored pools and keys
}

// saveParts is the minimum time between two commits with pools and keys. They may be
// many, and may be a little out of date.
const saveParts = 30 * time.Second

// warmStart restores the rates that the last run learned. A stored rate that cannot be
// used is reported by an event and ignored.
func (r *execution) warmStart(p *Pacing) {
	if p == nil {
		return
	}
	note := "restored"
	if err := control.Fresh(p.RecordedAt, time.Now(), control.StaleAfter); err != nil {
		note = "discarded_stale_or_undated"
	} else if s, ok := p.state(); !ok {
		note = "discarded_unreadable"
	} else if err := r.governor.Restore(s); err != nil {
		note = "discarded_unreadable"
	} else {
		r.warm = true
	}
	r.emit(event.Event{Type: event.WarmStart, Note: note})
	r.belief.stored = Pacing{Pools: fresh(p.Pools), Keys: fresh(p.Keys)}
	restored := restorePools(r.governor, r.belief.stored.Pools)
	for _, k := range r.others {
		one := r.belief.stored.Keys[k.name]
		if s, ok := one.state(); ok && k.governor.Restore(s) == nil {
			restored++
		}
		restored += restorePools(k.governor, one.Pools)
	}
	if restored > 0 {
		r.emit(event.Event{Type: event.WarmStart, Note: "restored_pools", Count: int64(restored)})
	}
}

// fresh returns the rates that are recent enough to start from.
func fresh(all map[string]Pacing) map[string]Pacing {
	kept := make(map[string]Pacing, len(all))
	for name, p := range all {
		if control.Fresh(p.RecordedAt, time.Now(), control.StaleAfter) == nil {
			p.Pools = fresh(p.Pools)
			kept[name] = p
		}
	}
	return kept
}

// restorePools restores the pools of a governor and returns how many it restored.
func restorePools(g *headway.Governor, all map[string]Pacing) int {
	states := make(map[string]control.State, len(all))
	for name, p := range all {
		if s, ok := p.state(); ok {
			states[name] = s
		}
	}
	g.RestorePools(states)
	return len(states)
}

// learned returns the rate to store for the next run, or nil while it is unknown. Pools
// and keys are included if whole is set or saveParts has passed since they were stored.
func (r *execution) learned(at time.Time, whole bool) *Pacing {
	if r.governor.Snapshot().Rate == nil {
		return nil
	}
	p := pacingOf(r.governor.Learned(), at)
	if b := &r.belief; whole || at.Sub(b.saved) >= saveParts {
		b.saved = at
		p.Pools, p.Keys = learnedPools(r.governor, b.stored.Pools, at), r.learnedKeys(at)
		if len(p.Pools)+len(p.Keys)+len(b.stored.Pools)+len(b.stored.Keys) == 0 {
			p.Pools, p.Keys = nil, nil // nothing to store and nothing stored
		}
	}
	return &p
}

// learnedKeys returns the rates of the keys after the first. It keeps stored rates of keys
// that the connection no longer names, unless they are stale.
func (r *execution) learnedKeys(at time.Time) map[string]Pacing {
	all := maps.Clone(r.belief.stored.Keys)
	for _, k := range r.others {
		if k.governor.Snapshot().Rate == nil {
			continue // keep the stored rate
		}
		p := pacingOf(k.governor.Learned(), at)
		p.Pools = learnedPools(k.governor, r.belief.stored.Keys[k.name].Pools, at)
		if all == nil {
			all = make(map[string]Pacing, len(r.others))
		}
		all[k.name] = p
	}
	return all
}

// learnedPools returns the rates of a governor's pools. A pool that this run has not used
// keeps its stored RecordedAt.
func learnedPools(g *headway.Governor, before map[string]Pacing, at time.Time) map[string]Pacing {
	all := make(map[string]Pacing)
	for name, s := range g.LearnedPools() {
		p := pacingOf(s, at)
		if was, ok := before[name]; ok && p.IntervalMS == was.IntervalMS && bytes.Equal(p.State, was.State) {
			p = was
		}
		all[name] = p
	}
	for _, used := range g.Snapshot().Pools {
		if p, ok := all[used.Name]; ok {
			p.RecordedAt = at
			all[used.Name] = p
		}
	}
	return all
}
