package provider

import "time"

// Advance brings changes and strangers up to now, as every other method does.
func (m *Model) Advance(now time.Duration) { m.advance(now) }

// advance lets time pass: changes and strangers in the order of their instants.
func (m *Model) advance(now time.Duration) {
	if m.strangers.next > now && m.NextChange() > now {
		m.now = max(m.now, now)
		return
	}
	for {
		change := m.NextChange()
		at := min(change, m.strangers.next)
		if at > now {
			break
		}
		m.now = max(m.now, at)
		if change == at {
			m.factor *= m.changes[m.change].Scale
			m.change++
			m.rescale()
			continue
		}
		m.stranger()
		m.nextStranger()
	}
	m.now = max(m.now, now)
}

func (m *Model) rescale() {
	for i := range m.limits {
		m.limits[i].scale(m.now, m.factor)
	}
	for i := range m.knees {
		m.knees[i].scale(m.factor)
	}
}

// stranger lets one stranger arrive at m.now.
func (m *Model) stranger() {
	st := &m.strangers
	v, ok := m.faults()
	if !ok {
		st.counts.Failed++
		return
	}
	d := st.demand
	d.held = stretch(d.busy, v.Slow*m.arrived())
	if at, _ := m.worst(d); at > m.now {
		st.counts.Throttled++
		m.reject(d)
		return
	}
	st.counts.Admitted++
	m.take(d)
}

func (m *Model) nextStranger() {
	st := &m.strangers
	gap := max(1, time.Duration(exponential(&st.rng)*st.mean))
	for st.on > 0 && gap > st.until-st.next { // the rest of it falls into the next stretch
		gap -= st.until - st.next
		st.next = later(st.until, m.lasts(st.off))
		st.until = later(st.next, m.lasts(st.on))
	}
	st.next = later(st.next, gap)
}

// lasts draws how long strangers are on, or off.
func (m *Model) lasts(mean float64) time.Duration {
	return max(1, time.Duration(exponential(&m.strangers.rng)*mean))
}

// later is a sum that saturates.
func later(at, by time.Duration) time.Duration {
	if by > Never-at {
		return Never
	}
	return at + by
}

// NextStranger is the instant of the next stranger; [Never] without any.
func (m *Model) NextStranger() time.Duration { return m.strangers.next }

// NextChange is the instant of the next change of the limits; [Never] after the last.
func (m *Model) NextChange() time.Duration {
	if m.change < len(m.changes) {
		return m.changes[m.change].At
	}
	return Never
}
