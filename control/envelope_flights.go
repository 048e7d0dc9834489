package control

import "time"

// flight is an attempt that was sent.
type flight struct {
	at     time.Duration
	cost   float64
	others int // under way when it was sent
}

// flights are the attempts that were sent last.
type flights struct {
	ring [32]flight
	n    int
}

func (f *flights) add(x flight) {
	f.ring[f.n%len(f.ring)] = x
	f.n++
}

// after is what was sent from the instant on, as far as it is remembered.
func (f *flights) after(sent time.Duration) (n, cost float64) {
	for i := 1; i <= min(f.n, len(f.ring)); i++ {
		x := f.ring[(f.n-i)%len(f.ring)]
		if x.at < sent {
			break
		}
		n++
		cost += x.cost
	}
	return max(1, n), cost
}

// others is how many others were under way when an attempt was sent.
func (f *flights) others(sent time.Duration) float64 {
	var x flight
	for i := 1; i <= min(f.n, len(f.ring)); i++ {
		if x = f.ring[(f.n-i)%len(f.ring)]; x.at <= sent {
			break
		}
	}
	return float64(x.others)
}
