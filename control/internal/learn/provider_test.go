package learn

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// provider responds with the headers of one limit, of any size and shape.
type provider struct {
	shape  shape
	units  float64
	length time.Duration // of a window; for a bucket, the time to fill
	round  time.Duration // of resets
	named  bool          // with names like a bucket's
	stated bool          // resets are durations with a unit
	alike  bool          // too much like another shape to tell
	whole  time.Duration // when a bucket is full or a window ends
	sent   []time.Duration
}

// arrives handles an attempt at now. It returns the reported limit and whether the attempt
// is admitted.
func (p *provider) arrives(now time.Duration) (Fact, bool) {
	used, reset, ok := 0.0, time.Duration(0), false
	switch p.shape {
	case bucket:
		each := time.Duration(float64(p.length) / p.units)
		p.whole = max(p.whole, now)
		if ok = p.whole+each <= now+p.length; ok {
			p.whole += each
		}
		reset = p.whole - now
		used = math.Ceil(float64(reset) / float64(each))
	case fixed:
		if now >= p.whole {
			p.whole, p.sent = now+p.length, nil
		}
		if ok = float64(len(p.sent)) < p.units; ok {
			p.sent = append(p.sent, now)
		}
		used, reset = float64(len(p.sent)), p.whole-now
	case sliding:
		for len(p.sent) > 0 && p.sent[0]+p.length <= now {
			p.sent = p.sent[1:]
		}
		if ok = float64(len(p.sent)) < p.units; ok {
			p.sent = append(p.sent, now)
		}
		used, reset = float64(len(p.sent)), p.sent[len(p.sent)-1]+p.length-now
	}
	reset = (reset + p.round - 1) / p.round * p.round
	return Fact{Name: "requests", Refills: p.named, Quota: p.units, Remaining: p.units - used, Window: -1, Reset: reset, Precise: p.stated}, ok
}

// holds runs the law against a provider. there and back are the latencies of request and
// response.
func (p *provider) holds(l *Law, there, back, until time.Duration) (admitted, refused int) {
	for now := time.Duration(0); ; {
		now = max(now+ms, l.Hold(now, 1))
		if !l.Answered() {
			now += sec
		}
		if now >= until {
			return admitted, refused
		}
		l.Sent(now, 1)
		f, ok := p.arrives(now + there)
		o := Outcome{Sent: now, Now: now + there + back, Class: Admitted, Estimate: 1, Cost: 1}
		if admitted++; !ok {
			o.Class = Refused
			admitted, refused = admitted-1, refused+1
		}
		l.Advertise(now, o.Now, !ok, f)
		l.Observe(o)
		now = o.Now
	}
}

// nth returns one of the limits, or nil for -1.
func nth(limits []limit, i int) limit {
	if i < 0 {
		return nil
	}
	return limits[i]
}

// held describes the limits that a law holds.
func held(l *Law) string {
	var all []string
	for _, x := range l.limits {
		switch x := x.(type) {
		case *rate:
			all = append(all, fmt.Sprintf("%.2f-%.2f/s", x.low, x.high))
		case *flight:
			all = append(all, fmt.Sprintf("%g in flight", x.size))
		case *window:
			s := fmt.Sprintf("%.0f of unit %d in %.1fs-%.1fs", x.size[x.unit], x.unit, x.low.Seconds(), x.high.Seconds())
			if x.lone {
				s += " lone"
			}
			if x.clock > 0 {
				s += " by the clock"
			}
			all = append(all, s)
		}
	}
	return strings.Join(all, ", ")
}

// sentEvenly returns a history of n attempts, the last at now.
func sentEvenly(now, every time.Duration, n int) *history {
	h := &history{}
	for i := range n {
		h.add(now-time.Duration(n-1-i)*every, amounts{1, 1, 0})
	}
	return h
}

// bucketOf plays a law against a bucket.
func bucketOf(l *Law, rate float64, until time.Duration) (admitted, refused int) {
	return drive(l, until, bucketAt(rate, 10))
}

// drive plays a law with an endless backlog. Responses take 20 ms.
func drive(l *Law, until time.Duration, admits func(time.Duration) bool) (admitted, refused int) {
	return driveWaits(l, until, ms, admits, func(time.Duration) time.Duration { return 0 })
}

// driveWaits is drive with at least a ceiling between attempts, and with what refusals ask for.
func driveWaits(l *Law, until, ceiling time.Duration, admits func(time.Duration) bool, wait func(time.Duration) time.Duration) (admitted, refused int) {
	now := time.Duration(0)
	for now < until {
		now = max(now+ceiling, l.Hold(now, 1))
		if !l.Answered() {
			now += sec
		}
		if now >= until {
			break
		}
		l.Sent(now, 1)
		o := Outcome{Sent: now, Now: now + 20*ms, Class: Admitted, Estimate: 1, Cost: 1}
		if admits(now) {
			admitted++
		} else {
			o.Class, o.RetryAfter = Refused, wait(now)
			refused++
		}
		l.Observe(o)
	}
	return admitted, refused
}

// driveSlow plays a law with an endless backlog, of which at most 128 attempts are in flight.
// Refusals come after 100 ms, other answers after half of a time to three halves of it.
func driveSlow(l *Law, until, answer time.Duration, admits func(time.Duration) bool) (admitted, refused int) {
	return driveCrowd(l, until, answer, 100*ms, 128, func(now time.Duration, _ int) Class { return classOf(admits(now)) })
}

func classOf(admitted bool) Class {
	if admitted {
		return Admitted
	}
	return Refused
}

// driveCrowd is driveSlow with refusals after another time and another number in flight, where a provider sees how
// many others it works on.
func driveCrowd(l *Law, until, answer, refusal time.Duration, most int, class func(now time.Duration, others int) Class) (admitted, refused int) {
	var flying []Outcome // in the order of their answers
	others := 0
	last := -sec
	for n := uint64(1); ; {
		now := never
		if len(flying) < most {
			now = max(last+ms, l.Hold(max(last, 0), 1))
			if !l.Answered() {
				now = max(now, last+sec)
			}
		}
		if len(flying) > 0 && flying[0].Now <= now { // an answer may change when the next one goes
			if l.Observe(flying[0]); flying[0].Class == Admitted {
				others--
			}
			last, flying = max(last, flying[0].Now-ms), flying[1:]
			continue
		}
		if now >= until {
			return admitted, refused
		}
		l.Sent(now, 1)
		n, last = n*0x9e3779b97f4a7c15+1, now
		o := Outcome{Sent: now, Now: now + answer/2 + time.Duration(n>>40)*answer>>24, Class: class(now, others), Estimate: 1, Cost: 1}
		if o.Class == Admitted {
			admitted++
			others++
		} else {
			o.Now = now + refusal
			refused++
		}
		at, _ := slices.BinarySearchFunc(flying, o.Now, func(x Outcome, t time.Duration) int { return cmp.Compare(x.Now, t) })
		flying = slices.Insert(flying, at, o)
	}
}

const (
	ms  = time.Millisecond
	sec = time.Second
)

// played returns the history and the blocks of a client that sends at changing paces and,
// after a refusal, probes each second.
func played(until time.Duration, pace func(time.Duration) time.Duration, admits func(time.Duration) bool) (*history, []block) {
	h, blocks := &history{}, []block(nil)
	var b *block
	a := amounts{1, 1, 0}
	for now := 25 * sec; now < until; {
		switch ok := admits(now); {
		case ok && b != nil:
			b.release = now
			blocks, b = append(blocks, *b), nil
			h.add(now, a)
		case ok:
			h.add(now, a)
		case b != nil:
			b.lastRefused = now
			b.refusals++
		default:
			b = &block{began: now, noticed: now, lastRefused: now, refusals: 1, pace: 10}
		}
		if b != nil {
			now += sec
		} else {
			now += pace(now)
		}
	}
	return h, blocks
}

// fixedOf admits size attempts between two fixed instants: by the clock or, with first,
// from the first attempt after the last window.
func fixedOf(size int, length time.Duration, first bool) func(time.Duration) bool {
	admits, _ := fixedWaits(size, length, first)
	return admits
}

// fixedWaits is fixedOf with the rest of the window, in whole seconds.
func fixedWaits(size int, length time.Duration, first bool) (admits func(time.Duration) bool, rest func(time.Duration) time.Duration) {
	n, end := 0, time.Duration(0)
	admits = func(now time.Duration) bool {
		if now >= end {
			n, end = 0, now-now%length+length
			if first {
				end = now + length
			}
		}
		n++
		return n <= size
	}
	return admits, func(now time.Duration) time.Duration { return (end - now + sec - 1) / sec * sec }
}

// slidingOf admits size attempts in any period of a length.
func slidingOf(size float64, length time.Duration) func(time.Duration) bool {
	var h history
	return func(now time.Duration) bool {
		if h.used(attempts, now, length)+1 > size {
			return false
		}
		h.add(now, amounts{1, 1, 0})
		return true
	}
}

// countedOf admits as proxies do that count a window in periods, from the first attempt on:
// attempts of the period before leave it evenly. Refused attempts count.
func countedOf(size float64, length time.Duration) func(time.Duration) bool {
	began, prior, n := -length, 0.0, 0.0
	return func(now time.Duration) bool {
		switch since := now - began; {
		case since >= 2*length:
			began, prior, n = now, 0, 0
		case since >= length:
			began, prior, n = began+length, n, 0
		}
		n++
		return math.Floor(prior*float64(began+length-now)/float64(length)+n) <= size
	}
}

// bucketAt admits at a rate, with a burst.
func bucketAt(rate, burst float64) func(time.Duration) bool {
	tokens, filled := burst, time.Duration(0)
	return func(now time.Duration) bool {
		tokens, filled = min(burst, tokens+rate*(now-filled).Seconds()), now
		if tokens < 1 {
			return false
		}
		tokens--
		return true
	}
}

// wavering returns a slowly changing interval from 70 ms to 210 ms.
func wavering(now time.Duration) time.Duration {
	return 140*ms + time.Duration(70*math.Sin(now.Seconds()/3)*float64(ms))
}

// both admits what two limits admit.
func both(a, b func(time.Duration) bool) func(time.Duration) bool {
	return func(now time.Duration) bool {
		x, y := a(now), b(now)
		return x && y
	}
}

// climb simulates the climb of a rate until an attempt that the provider refuses, and the
// following block of one second.
func climb(r *rate, now time.Duration, refuse func(gap, now time.Duration) bool) time.Duration {
	gap := sec
	for range 100_000 {
		v := &view{now: r.due}
		gap, now = v.now-now, v.now
		if refuse(gap, now) {
			r.blame(v, refusal{sent: now, now: now})
			v.now += sec
			r.ended(v, v.now)
			return v.now
		}
		r.sent(v.now, 1)
	}
	return now
}

// play sends whatever the law allows until an instant, at least 10 ms apart, to a provider
// that responds within 20 ms, and counts the admitted attempts.
func play(l *Law, from, until time.Duration, refuses func(now time.Duration) bool) (admitted int) {
	for now := from; ; {
		now = max(now+ms, l.Hold(now, 1))
		if !l.Answered() && now < from+sec {
			now += sec
		}
		if now >= until {
			return admitted
		}
		l.Sent(now, 1)
		o := Outcome{Sent: now, Now: now + 20*ms, Class: Admitted, Estimate: 1, Cost: 1}
		if refuses(now) {
			o.Class = Refused
		} else {
			admitted++
		}
		l.Observe(o)
		now += 9 * ms // the ceiling
	}
}

// known returns the longest and the shortest reset, wherever they are counted from.
func known(longest, least time.Duration) resetRanges {
	return resetRanges{resetRange{longest, least}, resetRange{longest, least}}
}
