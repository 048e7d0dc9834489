package api

import (
	"cmp"
	"slices"

	"github.com/headway-go/headway/collect"
)

// known is a rate, and the run whose trace may know more of it.
type known struct {
	Rate
	run string
}

// merged puts what is stored and what is live together, in order of names. A
// live connection is shown as it is now.
func merged(stored []collect.ConnectionStatus, live map[string]Live) []known {
	all := make([]known, 0, len(stored)+len(live))
	for _, c := range stored {
		m := known{Rate: Rate{Connection: c.Name, Source: Stored, Running: c.Holder != "", Pacing: c.Pacing}}
		if c.LastRun != nil {
			m.run = c.LastRun.ID
		}
		if l, ok := live[c.Name]; ok {
			m.live(l)
			delete(live, c.Name)
		}
		all = append(all, m)
	}
	for name, l := range live {
		m := known{Rate: Rate{Connection: name}}
		m.live(l)
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b known) int { return cmp.Compare(a.Connection, b.Connection) })
	return all
}

func (m *known) live(l Live) {
	m.Source, m.Running, m.Rate.Rate, m.Live = l.Source, true, l.Rate, &l.Snapshot
	m.Circuits, m.BoundBy = l.Circuits, l.BoundBy
}
