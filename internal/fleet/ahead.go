package fleet

import (
	"slices"
	"time"

	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// served settles what was served on permits that a member had ahead of need, and takes
// those back that it did not use: they count in no limit.
func (d *desk) served(now time.Duration, m *seat, in *pacing.ToServer) {
	for _, o := range in.Served {
		p := permit{m.number, o[0]}
		if t, ok := d.tickets[p]; ok {
			delete(d.tickets, p)
			t = d.core.Recount(now, t, now-time.Duration(min(o[1], uint64(maxWhole))))
			d.core.Settle(now, t, pacing.Outcome{Class: reason.OK})
			d.known, d.dirty = true, true
		}
	}
	for _, r := range in.Unused {
		for id := range min(r.N, pacing.MaxAhead) {
			p := permit{m.number, r.ID + id}
			if t, ok := d.tickets[p]; ok {
				delete(d.tickets, p)
				d.core.Unsend(t)
				d.paid -= d.interval()
			}
		}
	}
}

// stock is permits ahead of need that a member asked for, and what of them it has so far.
type stock struct {
	pacing.Run
	want  want
	asked uint64
	until time.Duration // then it gets what is there
}

// stockFor is how long a member waits for permits ahead of need.
const stockFor = 100 * time.Millisecond

// ahead notes that a member asks for permits ahead of need.
func (d *desk) ahead(now time.Duration, m *seat, w *pacing.Want) {
	if len(d.stocks) < maxStocks {
		d.stocks = append(d.stocks, &stock{
			Run: pacing.Run{ID: w.ID}, want: want{seat: m, pool: w.Pool, ready: now}, asked: w.Ahead, until: now + stockFor,
		})
	}
}

// maxStocks bounds them.
const maxStocks = 4 * maxWants

// fill admits permits ahead of need while nobody waits, one for each member in turn, and
// hands over what is complete. As soon as somebody waits members get what is there.
func (d *desk) fill(now time.Duration) {
	if len(d.stocks) == 0 {
		return
	}
	room := uint64(0)
	if d.queue.Len() == 0 {
		room = uint64(d.allowance(now))
	}
	for more := true; more; {
		more = false
		for _, s := range d.stocks {
			if s.N >= min(s.asked, room) || d.seats[s.want.seat.number] != s.want.seat {
				continue
			}
			t, decision := d.ask(now, &s.want)
			if !decision.OK {
				d.due = min(d.due, decision.At)
				continue
			}
			d.tickets[permit{s.want.seat.number, s.ID + s.N}] = t.Early()
			d.count(now)
			s.want.seat.use.count(now)
			s.N++
			more = true
		}
	}
	d.stocks = slices.DeleteFunc(d.stocks, func(s *stock) bool {
		done := s.N >= min(s.asked, room) || now >= s.until
		if done {
			s.want.seat.runs = append(s.want.seat.runs, s.Run)
		} else {
			d.due = min(d.due, s.until)
		}
		return done
	})
}

// allowance is how many permits each member may hold ahead. All of them at once pass no
// limit by more than one in a hundred, and an owner's ceiling not at all.
func (d *desk) allowance(now time.Duration) int {
	if now < max(d.server.listens, d.smooth) || d.ceiling > noCeiling {
		return 0
	}
	for _, m := range d.seats {
		if m.silent {
			return 0 // what it sends by itself is not known
		}
	}
	n, bounded := d.core.Spare()
	if bounded {
		n /= uint64(max(1, len(d.seats)))
	}
	return int(min(n, pacing.MaxAhead))
}
