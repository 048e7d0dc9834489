package learn

import "time"

// A provider may have a longer limit behind a short one: 2,000 in ten minutes behind 100 in ten
// seconds, or a window behind a limit on attempts in flight. Whoever keeps to the short one has it
// nearly full at any time, also when the longer one refuses. What tells them apart is how long
// the block lasts.

// outlasted finds another cause for a block that has lasted until an instant, if the blamed window
// is known well and cannot have been full for so long. If no window was blamed, but some are known
// well, the cause is longer than these.
func (l *Law) outlasted(until time.Duration) {
	b := &l.block
	if l.penalty.on() || isFlight(b.blamed) {
		return
	}
	if w, ok := b.blamed.(*window); ok {
		if w.sure() && until >= w.over(b) {
			b.acquit()
			l.blameLonger(w)
		}
		return
	}
	longer := false
	for _, x := range l.limits {
		if w, ok := x.(*window); ok && w.sure() {
			if until < w.over(b) {
				return
			}
			longer = true
		}
	}
	if longer {
		b.from = l.since
		b.count = l.h.between(attempts, b.from, b.began)
	}
}

// over returns when a window cannot be full any more, however large it is, since nothing went in a block.
func (w *window) over(b *block) time.Duration { return b.began + w.high + w.high/4 + firstCanary }

// blameLonger blames a longer window than one, if one was nearly full when the block began.
func (l *Law) blameLonger(than *window) {
	b, v := &l.block, l.look()
	b.from = l.since
	for _, x := range l.limits {
		w, ok := x.(*window)
		if !ok || w.high <= than.high {
			continue
		}
		f := refusal{sent: b.began, now: b.noticed, cost: b.cost, opened: max(l.began, w.released)}
		f.cycle = v.h.between(attempts, f.opened, f.sent)
		if w.fullness(v, f) >= nearlyFull {
			b.from = f.opened
			b.blame(v, w, f)
			break
		}
	}
	b.count = v.h.between(attempts, b.from, b.began)
}

// outlastsFlight reports whether a block is too long for a limit in flight: a canary was refused for long
// while hardly anything else was in flight, or a long wait was advertised, and was right.
func (l *Law) outlastsFlight(b *block) bool {
	if b.refusals == 1 {
		return b.long() && b.exact && !b.doubted
	}
	others := l.out.others(b.lastRefused)
	return b.long() && others >= 0 && others <= max(0, hardlyFlying*l.out.others(b.began))
}

// endedWith reports whether a block that is too long for a limit in flight ended when the window does.
func (l *Law) endedWith(v *view, w *window, b *block) bool {
	if !l.outlastsFlight(b) {
		return false
	}
	_, _, agrees := w.bracket(v, b)
	return agrees
}

// isKnown reports whether a limit is a window that more than one block supports.
func isKnown(x limit) bool {
	w, ok := x.(*window)
	return ok && !w.lone
}
