package learn

import "time"

// penalty is that blocks last longer than any limit explains.
type penalty struct {
	length time.Duration // 0 means none
	blocks int
	short  int // blocks in a row that were shorter
}

func (p *penalty) on() bool { return p.length > 0 }

// wait is how long the first canary of a block waits.
func (p *penalty) wait() time.Duration {
	return time.Duration(float64(p.length) * penaltySlack)
}

// ended takes the length of a block in. Two short ones end the penalty.
func (p *penalty) ended(took time.Duration, refusals int) {
	if !p.on() {
		return
	}
	if took < p.length/2 {
		if p.short++; p.short >= 2 {
			*p = penalty{}
		}
		return
	}
	p.short = 0
	p.blocks++
	if refusals > 1 || took < p.length {
		p.length = took
	}
}

// keep is the part of the refused pace that is safe enough.
func (p *penalty) keep() float64 {
	return min(penaltyHigh, penaltyLow+0.04*float64(p.blocks))
}
