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

// parts are what is stored of a rate beside the account's.
type parts struct {
	Pools map[string]Pacing `json:"pools,omitempty"`
	Keys  map[string]Pacing `json:"keys,omitempty"`
}

// Parts are the pools and keys as a store keeps them; nil where a commit leaves them.
// What cannot be read back is left out.
func (p *Pacing) Parts() []byte {
	if p.Pools == nil && p.Keys == nil {
		return nil
	}
	b, err := json.Marshal(parts{readable(p.Pools), readable(p.Keys)})
	if err != nil { // a figure that JSON does not have
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

// SetParts is the other half of [Pacing.Parts]. What cannot be read counts as nothing.
func (p *Pacing) SetParts(stored []byte) {
	var s parts
	if len(stored) > 0 && json.Unmarshal(stored, &s) != nil {
		s = parts{}
	}
	p.Pools, p.Keys = s.Pools, s.Keys
}

// state is what a law starts from; ok is false for what no run has stored.
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

// otherKey is a credential beside the first.
type otherKey struct {
	name     string
	governor *headway.Governor
}

// belief is what a run knows of what the store holds of pools and keys.
type belief struct {
	stored Pacing    // as the run before left it, less what is stale
	saved  time.Time // when they were stored last
}

// saveParts is how often pools and keys are stored while a run lasts: they are many, and
// one that is a little old does.
const saveParts = 30 * time.Second

// warmStart restores what the last run learned. What cannot be used is reported and
// forgotten; it is never an error.
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

// fresh are those that are recent enough to start from.
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

// restorePools restores the pools of a governor and says how many.
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

// learned is what the next run may start from; nil while nothing is known. Whole has it
// hold the pools and keys, too, however short a time ago they were stored.
func (r *execution) learned(at time.Time, whole bool) *Pacing {
	if r.governor.Snapshot().Rate == nil {
		return nil
	}
	p := pacingOf(r.governor.Learned(), at)
	if b := &r.belief; whole || at.Sub(b.saved) >= saveParts {
		b.saved = at
		p.Pools, p.Keys = learnedPools(r.governor, b.stored.Pools, at), r.learnedKeys(at)
		if len(p.Pools)+len(p.Keys)+len(b.stored.Pools)+len(b.stored.Keys) == 0 {
			p.Pools, p.Keys = nil, nil // there were none, and there are none
		}
	}
	return &p
}

// learnedKeys is what the keys after the first have learned, and what others had that the
// connection no longer names, as long as it is not stale.
func (r *execution) learnedKeys(at time.Time) map[string]Pacing {
	all := maps.Clone(r.belief.stored.Keys)
	for _, k := range r.others {
		if k.governor.Snapshot().Rate == nil {
			continue // what the run before left stays
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

// learnedPools is what the pools of a governor have learned. One that this run has not
// used is as old as it was.
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
