package learn

import (
	"fmt"
	"math"
	"time"
)

// Kind is a kind of limit.
type Kind string

// The kinds.
const (
	Unknown Kind = ""
	Rate    Kind = "rate"
	Window  Kind = "window"
	Flight  Kind = "flight"
)

// Found is a held limit, for display and storage.
type Found struct {
	Kind Kind `json:"kind"`
	// Unit is 0 for attempts, 1 for cost, 2 for seconds of work.
	Unit uint8 `json:"unit,omitempty"`
	// Size is the size of a window, a number of attempts in flight, or the attempts a second that
	// a rate is known to allow.
	Size float64 `json:"size"`
	// High is the upper bound of a rate, in attempts a second.
	High float64 `json:"high,omitempty"`
	// Window is the length of a window; 0 for other kinds.
	Window time.Duration `json:"window_ns,omitempty"`
	// Counted reports that the provider counts a window in periods, so that its units return evenly.
	Counted bool `json:"even,omitempty"`
	// Confidence is from 0, a guess, to 1.
	Confidence float64 `json:"confidence"`
	// Advertised reports that responses name the limit, as Name. Refills reports that its
	// units return one by one, and Slides that each returns one window length after its
	// use. These are not stored.
	Advertised bool   `json:"-"`
	Name       string `json:"-"`
	Refills    bool   `json:"-"`
	Slides     bool   `json:"-"`
}

// Stored is the state for a warm start.
type Stored struct {
	Found   []Found       `json:"found,omitempty"`
	Penalty time.Duration `json:"penalty_ns,omitempty"`
	// WaitUnit is the divisor of advertised waits, 1 or 1000; 0 if unknown.
	WaitUnit float64 `json:"wait_unit,omitempty"`
	// Trip is the round trip of a refusal. Time beyond it in a response is work.
	Trip time.Duration `json:"trip_ns,omitempty"`
}

// show updates the reported interval; only a success shortens it.
func (l *Law) show(mayShorten bool) {
	d := time.Duration(min(max(l.sustained(), float64(l.cfg.Ceiling)), float64(l.cfg.Slowest)))
	if !mayShorten {
		d = max(d, l.shown)
	}
	l.shown = d
}

// Binding returns the limit that delays most, advertised or learned; its kind is Unknown if
// there is none.
func (l *Law) Binding() Found {
	var b Found
	v := l.look()
	slowestOf := 0.0
	for _, x := range l.limits {
		if ns := x.interval(v); ns > slowestOf {
			slowestOf, b = ns, found(v, x)
		}
	}
	for i := range l.headers {
		if ns := l.headers[i].interval(); ns > slowestOf {
			slowestOf, b = ns, l.headers[i].found()
		}
	}
	return b
}

// Limits appends the held limits and the advertised ones.
func (l *Law) Limits(to []Found) []Found {
	v := l.look()
	for _, x := range l.limits {
		to = append(to, found(v, x))
	}
	for i := range l.headers {
		if t := &l.headers[i]; t.at >= 0 && !t.gone {
			to = append(to, l.headers[i].found())
		}
	}
	return to
}

// Use is how much of a limit is in use.
type Use struct {
	Used float64       // in the limit's unit; negative if unknown
	Free time.Duration // when there is room for an attempt of mean cost; never if an answer decides
}

// Uses appends how much of each limit of [Law.Limits] is in use now, in the same order.
func (l *Law) Uses(now time.Duration, to []Use) []Use {
	v := l.look()
	v.now = max(v.now, now)
	for _, x := range l.limits {
		u := Use{Used: -1, Free: x.free(v, v.mean[cost])}
		switch x := x.(type) {
		case *flight:
			u.Used = float64(v.flying)
		case *window:
			u.Used = x.used(v, x.unit, v.now, x.length(v.now))
		}
		to = append(to, u)
	}
	for i := range l.headers {
		if t := &l.headers[i]; t.at >= 0 && !t.gone {
			to = append(to, t.use(v))
		}
	}
	return to
}

// use returns how much is in use by the newest response and what was sent since.
func (t *advertised) use(v *view) Use {
	need := t.need(v.mean[cost])
	u := Use{Used: max(0, t.quota-t.left+t.spent), Free: v.now}
	passed := v.now >= t.whole || t.whole <= t.at
	switch {
	case t.quota <= 0:
		return Use{Used: -1, Free: v.now}
	case t.shape == sliding && t.known().longest > 0:
		u.Used = t.others + t.share*v.h.used(t.unit(), v.now, t.length())
		if u.Used+need > t.quota {
			u.Free = max(v.now, t.slide(v, need))
		}
	case passed:
		u.Used = 0
	case t.shape == bucket && t.slow > 0:
		u.Used = max(0, u.Used-t.slow*(v.now-t.at).Seconds())
		u.Free += seconds((u.Used + need - t.quota) / t.slow)
	case u.Used+need > t.quota:
		u.Free = t.whole
	}
	u.Used = min(u.Used, t.quota)
	return u
}

// found returns the limit for display.
func (t *advertised) found() Found {
	f := Found{
		Kind: Window, Unit: uint8(t.unit()), Size: t.quota, Window: t.window, Confidence: 1 / (1 + t.wrong),
		Advertised: true, Name: t.name, Refills: t.shape == bucket, Slides: t.shape == sliding,
	}
	if t.shape != bucket {
		f.Window = t.length()
	}
	return f
}

func found(v *view, x limit) Found {
	switch x := x.(type) {
	case *rate:
		low := x.carried()
		high := max(low, x.high)
		return Found{Kind: Rate, Size: low, High: high, Confidence: max(0, 2-high/low)}
	case *flight:
		return Found{Kind: Flight, Size: x.size, Confidence: 0.8}
	case *window:
		return Found{
			Kind: Window, Unit: uint8(x.unit), Size: x.size[x.unit], Window: x.length(v.now), Counted: x.counted,
			Confidence: (1 - 0.5/float64(1+x.hits)) * float64(x.low) / float64(x.high),
		}
	}
	return Found{}
}

// Store returns the held limits. Advertised limits are not stored, since the next response
// reports them.
func (l *Law) Store() Stored {
	s := Stored{Penalty: min(l.penalty.length, maxSilence), WaitUnit: l.named.unit, Trip: time.Duration(l.trip)}
	v := l.look()
	for _, x := range l.limits {
		if w, ok := x.(*window); ok && w.lone {
			continue // a guess
		}
		s.Found = append(s.Found, found(v, x))
	}
	return s
}

// Restore restores stored limits, before anything was sent. They must come from
// [Law.Store]; otherwise Restore returns an error and changes nothing. The interval is
// clamped to the ceiling and the initial one, and no rate is slower than it.
func (l *Law) Restore(s Stored, interval time.Duration) error {
	return l.start(s, interval, 1/l.cfg.Initial.Seconds())
}

// Resume is Restore for a state that was in use until now: rates may be slower than the initial
// interval.
func (l *Law) Resume(s Stored, interval time.Duration) error { return l.start(s, interval, 0) }

// start restores stored limits. Rates that are slower than slow, in attempts a second, are raised to it.
func (l *Law) start(s Stored, interval time.Duration, slow float64) error {
	if len(s.Found) > maxLimits {
		return fmt.Errorf("%d limits are stored, must be at most %d", len(s.Found), maxLimits)
	}
	if s.Penalty < 0 || s.Penalty > maxSilence {
		return fmt.Errorf("penalty is %v, must be from 0 to %v", s.Penalty, maxSilence)
	}
	if u := s.WaitUnit; u != 0 && u != 1 && u != millisPerSecond {
		return fmt.Errorf("wait unit is %v, must be 0, 1 or %v", u, millisPerSecond)
	}
	if s.Trip < 0 || s.Trip > maxTrip {
		return fmt.Errorf("trip is %v, must be from 0 to %v", s.Trip, maxTrip)
	}
	var limits []limit
	for i, f := range s.Found {
		x, err := l.restored(f, slow)
		if err != nil {
			return fmt.Errorf("stored limit %d: %w", i, err)
		}
		limits = append(limits, x)
	}
	l.limits, l.penalty.length, l.meanLong, l.named.unit = limits, s.Penalty, s.Penalty, s.WaitUnit
	l.trip = float64(s.Trip)
	l.shown = min(max(interval, l.cfg.Ceiling), l.cfg.Initial)
	l.ramp.every = float64(l.shown)
	return nil
}

// Assume starts from published limits, like [Law.Restore] from stored ones. They are mostly
// right, so they are not tested before a refusal. The round trip is not known yet.
func (l *Law) Assume(found []Found) error {
	if err := l.Restore(Stored{Found: found, Penalty: l.penalty.length, WaitUnit: l.named.unit, Trip: time.Duration(l.trip)}, l.shown); err != nil {
		return err
	}
	for _, x := range l.limits {
		switch x := x.(type) {
		case *window:
			x.published, x.slack = true, x.high/assumedSlack
			l.expect(x.high)
		case *flight:
			x.testAfter = math.Inf(1)
		case *rate:
			x.counts = true
		}
	}
	return nil
}

func (l *Law) restored(f Found, slow float64) (limit, error) {
	const huge = 1e15
	in := func(x, low, high float64) bool { return x >= low && x <= high }
	if !in(f.Size, slowest, huge) || !in(f.Confidence, 0, 1) {
		return nil, fmt.Errorf("size is %v and confidence %v", f.Size, f.Confidence)
	}
	switch f.Kind {
	case Rate:
		if !in(f.High, f.Size, huge) {
			return nil, fmt.Errorf("high is %v, must be from %v", f.High, f.Size)
		}
		low := max(f.Size, slow)
		return newRate(l.clock, low, max(low, f.High)), nil
	case Flight:
		size := max(1, math.Floor(f.Size))
		return &flight{size: size, proven: size, testAfter: firstTest}, nil
	case Window:
		if f.Unit >= uint8(units) || f.Window <= 0 || f.Window > 2*maxSilence {
			return nil, fmt.Errorf("window is %v of unit %d", f.Window, f.Unit)
		}
		w := &window{unit: unit(f.Unit), low: f.Window, high: f.Window, raise: 1, testAfter: 1, off: doubtUnit, hits: sureHits, counted: f.Counted}
		w.size[w.unit] = f.Size
		return w, nil
	case Unknown:
	}
	return nil, fmt.Errorf("kind is %q, must be one of rate, flight, window", f.Kind)
}
