package fleet

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// atCeiling allows ten attempts a second from the start.
var atCeiling = pacing.Config{Law: "aimd", Ceiling: 100 * ms, Initial: 100 * ms, Tolerance: -1}

func TestMembersShareOnePace(t *testing.T) {
	for _, members := range []int{1, 2, 4, 16} {
		w := newWorld(t)
		w.join(members, atCeiling)
		w.run(30 * time.Second)
		if n := len(w.sent); n < 290 || n > 301 {
			t.Errorf("%d members sent %d attempts in 30 s, want about 300", members, n)
		}
		if n := most(w.sent, time.Second); n > 11 {
			t.Errorf("%d members sent %d attempts in a second, at most 10 are allowed", members, n)
		}
		if j := w.jain(2*time.Second, 30*time.Second); j < 0.98 {
			t.Errorf("the shares of %d members have a fairness of %.3f", members, j)
		}
	}
}

func TestSharesFollowDemand(t *testing.T) {
	w := newWorld(t)
	w.join(3, atCeiling)
	few := w.nodes[0]
	few.waiting = 0
	for range 20 {
		few.waiting++ // one a second: less than its share
		w.run(time.Second)
	}
	if n := len(few.sent); n < 19 {
		t.Errorf("the member with one attempt a second made %d in 20 s", n)
	}
	for _, n := range w.nodes[1:] {
		if got := len(n.sent); got < 85 || got > 95 {
			t.Errorf("a member with more attempts made %d of the remaining 180, want about 90", got)
		}
	}
}

func TestSlowestCeilingHolds(t *testing.T) {
	w := newWorld(t)
	w.join(1, atCeiling)
	slow := atCeiling
	slow.Ceiling, slow.Initial = 500*ms, 500*ms
	w.join(1, slow)
	w.run(20 * time.Second)
	if n := most(w.sent[2:], 5*time.Second); n > 11 {
		t.Errorf("%d attempts in 5 s, and the slower member's owner allows 10", n)
	}
	w.nodes[1].die()
	from := w.now + time.Second
	w.run(10 * time.Second)
	if n := between(w.sent, from, w.now); n < 85 {
		t.Errorf("%d attempts in 9 s after it was gone, want 90", n)
	}
}

// A refusal of one member delays all of them.
func TestRefusalHoldsAll(t *testing.T) {
	w := newWorld(t)
	w.join(4, atCeiling)
	w.refuses = func(at time.Duration) (time.Duration, bool) {
		return 3 * time.Second, at >= 5*time.Second && at < 8*time.Second
	}
	w.run(7990 * ms)
	if w.refused > 4 {
		t.Errorf("%d attempts were refused, and the first asked for a rest of 3 s", w.refused)
	}
	w.run(10 * time.Second)
	if n := between(w.sent, 8*time.Second, w.now); n < 30 {
		t.Errorf("%d attempts in the 10 s after it", n)
	}
}

// The attempt that shows whether a refusal still holds is of a member that can report its outcome.
func TestAMemberThatIsCutOffDoesNotHoldTheOthersBack(t *testing.T) {
	w := newWorld(t)
	w.join(8, pacing.Config{Law: "cycle", Ceiling: 50 * ms, Initial: 50 * ms})
	w.run(20 * time.Second)
	w.nodes[0].cut = true
	w.run(5 * time.Second) // it is silent now
	until := w.now + 300*ms
	w.refuses = func(at time.Duration) (time.Duration, bool) { return time.Second, at < until }
	w.run(5 * time.Second)
	from := w.now
	w.run(10 * time.Second)
	n := 0
	for _, other := range w.nodes[1:] {
		n += between(other.sent, from, w.now)
	}
	if n < 50 {
		t.Errorf("the others made %d attempts in 10 s, five seconds after refusals for one second", n)
	}
}

// Members wait for what holds longest: not for the ceiling, which a slower rate is far from.
func TestWaitsHaveTheLongestBound(t *testing.T) {
	w := newWorld(t)
	w.join(2, pacing.Config{Law: "aimd", Ceiling: 20 * ms, Initial: 200 * ms, Step: time.Microsecond})
	w.run(time.Second)
	for range 200 {
		w.run(step)
		for i, n := range w.nodes {
			if d := n.core.Ask(w.now, pacing.Attempt{}); d.Bound == reason.BoundCeiling {
				t.Fatalf("at %v member %d waits for the ceiling: %+v", w.now, i, d)
			}
		}
	}
}

// The member that was refused waits as long as the others: the server's law may doubt a wait of three
// hours and find that it is over after some seconds. If the server ends with the report, the member
// keeps to the wait itself.
func TestARefusedMemberTakesTheWaitAsTheServerDoes(t *testing.T) {
	for name, dies := range map[string]bool{"the server doubts it": false, "the server ends": true} {
		w := newWorld(t)
		w.join(3, pacing.Config{Law: "cycle", Ceiling: 100 * ms, Initial: 100 * ms})
		refused := time.Duration(0)
		w.refuses = func(at time.Duration) (time.Duration, bool) {
			if at < 5*time.Second || refused > 0 {
				return 0, false
			}
			refused = at
			return 10_901 * time.Second, true
		}
		for refused == 0 {
			w.run(step)
		}
		who := slices.IndexFunc(w.nodes, func(n *node) bool { return n.sent[len(n.sent)-1] == refused })
		w.run(latency)
		if dies { // before the news of it
			w.kill()
			w.run(5 * time.Second)
			w.start()
		}
		w.run(time.Minute)
		for i, n := range w.nodes {
			if went := between(n.sent, refused+30*time.Second, w.now) > 0; went == dies {
				t.Errorf("%s: member %d, of which %d was refused, goes on: %v", name, i, who, went)
			}
		}
	}
}

// Members that were not refused know how long the refusal holds and why, so they can decline
// to wait.
func TestRefusalIsKnownToAll(t *testing.T) {
	w := newWorld(t)
	w.join(2, atCeiling)
	once := true
	w.refuses = func(at time.Duration) (time.Duration, bool) {
		if at < 5*time.Second || !once {
			return 0, false
		}
		once = false
		return 10 * time.Minute, true
	}
	w.run(6 * time.Second)
	for i, n := range w.nodes {
		d := n.core.Ask(w.now, pacing.Attempt{Ready: w.now})
		if left := d.At - w.now; d.OK || d.Reason != reason.Cooldown || left < 9*time.Minute || left > 10*time.Minute {
			t.Errorf("member %d: %+v with %v left, want a rest of ten minutes", i, d, left)
		}
		if why := n.core.Pressure(d); why != reason.RateLimited.Reason() {
			t.Errorf("member %d rests for %v", i, why)
		}
	}
}

func TestKilledMembersShareComesBack(t *testing.T) {
	w := newWorld(t)
	w.join(4, atCeiling)
	w.run(10*time.Second + 3*step)
	w.nodes[0].die()
	from := w.now
	w.run(10 * time.Second)
	if n := between(w.sent, from, from+Lease); n < 18 {
		t.Errorf("%d attempts within the lease after a member was killed, want 20", n)
	}
	if n := between(w.sent, from+Lease, w.now); n < 78 {
		t.Errorf("%d attempts in the 8 s after that, want 80", n)
	}
	for p := range w.server.groups["credential"].tickets {
		if p.member == w.nodes[0].member {
			t.Error("a permit of the killed member is still out")
		}
	}
}

func TestServerAwayAndBack(t *testing.T) {
	w := newWorld(t)
	w.join(4, atCeiling)
	w.run(10 * time.Second)
	w.kill()
	from := w.now
	w.run(60 * time.Second)
	if n := between(w.sent, from, w.now); n < 540 || n > 601 {
		t.Errorf("%d attempts in the minute without a server, want nearly 600", n)
	}
	if j := w.jain(from, w.now); j < 0.98 {
		t.Errorf("the shares without a server have a fairness of %.3f", j)
	}
	w.start()
	from = w.now
	w.run(20 * time.Second)
	if n := between(w.sent, from, w.now); n < 180 {
		t.Errorf("%d attempts in the 20 s after it was back, want 200", n)
	}
	if n := most(w.sent, time.Second); n > 12 {
		t.Errorf("%d attempts in one second, at most 10 are allowed", n)
	}
	for _, n := range w.nodes {
		if len(n.turns) != 2 || n.turns[0] != "away" || n.turns[1] != "back" {
			t.Errorf("a member said %q, want away and back", n.turns)
		}
	}
}

// What a new server knows of members before it decides how long it listens, and whether it
// reserves shares for those that do not come.
func TestFirstMinuteOfAServer(t *testing.T) {
	for name, c := range map[string]struct {
		before        int           // members of a server that died with one of them
		prepare       func(*Server) // before anyone joins
		lease, minute [2]int        // attempts in the first lease, in the rest of the minute
	}{
		"it may have had a predecessor":      {0, func(*Server) {}, [2]int{0, 0}, [2]int{575, 581}},
		"it had none":                        {0, func(s *Server) { s.Unpreceded(0) }, [2]int{19, 21}, [2]int{575, 581}},
		"a member may be alive and not come": {3, func(*Server) {}, [2]int{10, 14}, [2]int{370, 400}},
		"that member is known to be dead":    {3, func(s *Server) { s.Bereave(1) }, [2]int{10, 14}, [2]int{570, 581}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server = New(0)
			if c.before == 0 {
				c.prepare(w.server)
				w.join(2, atCeiling)
			} else {
				w.join(c.before, atCeiling)
				w.run(10 * time.Second)
				w.nodes[0].die()
				w.kill()
				w.start()
				c.prepare(w.server)
			}
			from := w.now
			w.run(time.Minute)
			if n := between(w.sent, from, from+Lease); n < c.lease[0] || n > c.lease[1] {
				t.Errorf("%d attempts in the first lease, want %d to %d", n, c.lease[0], c.lease[1])
			}
			if n := between(w.sent, from+Lease, w.now); n < c.minute[0] || n > c.minute[1] {
				t.Errorf("%d attempts in the rest of the minute, want %d to %d", n, c.minute[0], c.minute[1])
			}
			if n := most(w.sent, time.Second); n > 12 {
				t.Errorf("%d attempts in one second, at most 10 are allowed", n)
			}
		})
	}
}

// A member that waits while the server is away makes no attempts in that time.
func TestClosedWhileAway(t *testing.T) {
	w := newWorld(t)
	w.join(2, atCeiling)
	for _, n := range w.nodes {
		n.core.Join("other", true)
	}
	w.run(5 * time.Second)
	w.kill()
	from := w.now
	w.run(60 * time.Second)
	if n := between(w.sent, from, w.now); n > 0 {
		t.Errorf("%d attempts without a server", n)
	}
	w.start()
	w.run(Lease + 5*time.Second)
	if n := between(w.sent, from, w.now); n < 40 {
		t.Errorf("%d attempts in the 5 s after it was back and had listened", n)
	}
}

// A burst that was used is not repeated by members that lost the server, nor by a server
// that restarted.
func TestSpentWindowIsNotSpentTwice(t *testing.T) {
	w := newWorld(t)
	const limit, window = 60, 20 * time.Second
	var admitted []time.Duration
	w.refuses = func(at time.Duration) (time.Duration, bool) {
		if between(admitted, at-window+1, at+1) >= limit {
			return 0, true
		}
		admitted = append(admitted, at)
		return 0, false
	}
	w.join(4, pacing.Config{Ceiling: 10 * ms, Initial: 100 * ms})
	w.run(5 * time.Minute)
	if w.refused > 20 {
		t.Errorf("%d refusals in the first five minutes", w.refused)
	}
	before := w.refused
	for i := range 6 {
		w.run(time.Duration(i) * 3 * time.Second)
		w.kill()
		from := w.now
		w.run(time.Minute)
		if n := between(admitted, from, w.now); n < 90 {
			t.Errorf("%d came through in a minute without a server, 180 are allowed", n)
		}
		w.start()
		w.run(time.Minute)
	}
	if n := w.refused - before; n > 12 {
		t.Errorf("%d refusals over six times without a server", n)
	}
}

// A new server reserves the share of each member of the previous one that it does not hear,
// also where others have joined since, and where it hears of the missing ones late.
func TestNewServerReservesTheSharesOfTheMissing(t *testing.T) {
	for name, cut := range map[string][]int{"one is cut": {0}, "two are cut": {0, 1}, "all are cut": {0, 1, 2}} {
		w := newWorld(t)
		w.join(3, atCeiling)
		w.run(5 * time.Second)
		w.kill()
		for _, i := range cut {
			w.nodes[i].cut = true
		}
		w.run(time.Second)
		w.start()
		w.join(2, atCeiling)
		w.run(Lease + time.Second)
		w.nodes[2].cut = false // the others stay cut off
		w.run(2 * time.Second)
		from := w.now
		w.run(10 * time.Second)
		if n := between(w.sent, from, w.now); n < 90 || n > 101 {
			t.Errorf("%s: %d attempts in 10 s, 100 are allowed", name, n)
		}
		for _, n := range w.nodes {
			n.cut = false
		}
		w.run(Lease)
		from = w.now
		w.run(10 * time.Second)
		if n := between(w.sent, from, w.now); n < 98 || n > 101 {
			t.Errorf("%s: %d attempts in 10 s when all are back, 100 are allowed", name, n)
		}
	}
}

// A member that connects again to the same server is not taken for one of another server.
func TestMemberThatConnectsAgainCostsNoShare(t *testing.T) {
	w := newWorld(t)
	w.join(2, atCeiling)
	w.run(3 * time.Second)
	n := w.nodes[0]
	w.server.Gone(w.now, n.member)
	n.lose(w.now + 100*ms)
	w.run(Lease)
	from := w.now
	w.run(10 * time.Second)
	if n := between(w.sent, from, w.now); n < 98 {
		t.Errorf("%d attempts in 10 s, 100 are allowed", n)
	}
}

// Members and servers die, stop or are cut off. Attempts exceed the ceiling at most by those
// that were under way, and no member starves.
func TestNeverOverTheLimit(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(t)
		w.join(rapid.IntRange(1, 6).Draw(r, "members"), atCeiling)
		killed := false
		for range rapid.IntRange(1, 6).Draw(r, "events") {
			w.run(time.Duration(rapid.IntRange(1, 120).Draw(r, "tenths")) * 100 * ms)
			n := w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(r, "member")]
			switch rapid.SampledFrom([]string{"die", "pause", "cut", "heal", "join", "kill", "start"}).Draw(r, "what") {
			case "die":
				n.die()
			case "pause":
				n.paused = true
			case "cut":
				n.cut = true
			case "heal":
				n.paused, n.cut = false, false
			case "join":
				if w.server != nil {
					w.join(1, atCeiling)
				}
			case "kill":
				w.kill()
				killed = true // shares of missing members are reserved for a minute
			case "start":
				if w.server == nil {
					w.start()
				}
			}
			w.reach()
		}
		w.run(5 * time.Second)
		slack := 2 + len(w.nodes)
		for _, window := range []time.Duration{time.Second, 5 * time.Second} {
			if got, limit := most(w.sent, window), int(window/(100*ms)); got > limit+slack {
				r.Errorf("%d attempts in %v, %d are allowed", got, window, limit)
			}
		}
		for _, n := range w.nodes {
			n.paused, n.cut = false, false
		}
		if w.server == nil {
			w.start()
		}
		w.run(2 * Lease) // until all members are connected
		from := w.now
		w.run(10 * time.Second)
		alive := 0
		for i, n := range w.nodes {
			if n.dead {
				continue
			}
			alive++
			if between(n.sent, from, w.now) == 0 {
				r.Errorf("member %d sent nothing in 10 s", i)
			}
		}
		if got := between(w.sent, from, w.now); alive > 0 && got < 90 && !killed {
			r.Errorf("%d attempts in 10 s when all was well, 100 are allowed", got)
		}
	})
}

// crowd returns a world whose provider has a limit that the members know.
func crowd(t testing.TB, members, limit int, window time.Duration) *world {
	w := newWorld(t)
	w.grain = ms
	w.join(members, pacing.Config{Passive: true})
	for _, n := range w.nodes {
		n.waiting = 0
		if err := n.core.Assume(0, "", []control.Limit{{Kind: control.SlidingWindow, Size: float64(limit), Window: window}}); err != nil {
			t.Fatal(err)
		}
	}
	from, through := 0, []time.Duration(nil)
	w.refuses = func(at time.Duration) (time.Duration, bool) {
		for from < len(through) && through[from] <= at-window {
			from++
		}
		if len(through)-from >= limit {
			return 0, true
		}
		through = append(through, at)
		return 0, false
	}
	return w
}

// With permits ahead of need members send far fewer messages, and no more attempts. Where a
// limit is known they hold few such permits.
func TestAheadOfNeed(t *testing.T) {
	for name, c := range map[string]struct {
		limit int
		share float64 // maximum fraction of the messages without such permits
	}{"nothing is held back": {0, 0.4}, "a limit": {5000, 0.7}} {
		sent, asked, before, refused := [2]int{}, [2]int{}, 0, 0
		for i, narrow := range []bool{true, false} {
			w := newWorld(t)
			if c.limit > 0 {
				w = crowd(t, 2, c.limit, 10*time.Second)
			} else {
				w.join(2, pacing.Config{Passive: true})
			}
			w.narrow, w.grain = narrow, ms
			for _, n := range w.nodes {
				n.waiting, n.often = 0, 5*ms
				if c.limit > 0 {
					n.often = 2 * ms
				}
			}
			w.run(30 * time.Second) // until the limit is found
			for _, n := range w.nodes {
				n.waiting, n.often, n.due = 0, 5*ms, w.now
			}
			w.run(10 * time.Second)
			before, refused = w.asked, w.refused
			from := w.now
			w.run(10 * time.Second)
			sent[i], asked[i] = between(w.sent, from, w.now), w.asked-before
			if narrow != (w.ahead == 0) || w.refused > refused {
				t.Errorf("%s: %d permits ahead of need, %d were refused", name, w.ahead, w.refused-refused)
			}
		}
		if d := sent[0] - sent[1]; d < -10 || d > 10 {
			t.Errorf("%s: %d were sent without permits ahead, %d with them", name, sent[0], sent[1])
		}
		if share := float64(asked[1]) / float64(asked[0]); share > c.share {
			t.Errorf("%s: %d messages in 10 s, %d without permits ahead", name, asked[1], asked[0])
		}
	}
}

// However members use their permits ahead of need, attempts exceed those of the law alone by
// at most 1% of the limit.
func TestAheadPassesNoLimit(t *testing.T) {
	longtest.Draws(t, 10, 300)
	given := 0
	rapid.Check(t, func(r *rapid.T) {
		members := rapid.SampledFrom([]int{2, 4, 16}).Draw(r, "members")
		window := rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second}).Draw(r, "window")
		limit := rapid.IntRange(1600, 4000).Draw(r, "limit")
		demand := make([]float64, members+1)
		for i := range demand {
			demand[i] = rapid.Float64Range(1, 5).Draw(r, "demand")
		}
		type turn struct {
			after  time.Duration
			member int
			what   string
		}
		turns := make([]turn, rapid.IntRange(0, 4).Draw(r, "turns"))
		for i := range turns {
			turns[i] = turn{
				time.Duration(rapid.IntRange(1, 20).Draw(r, "tenths")) * 100 * ms, rapid.IntRange(0, members-1).Draw(r, "member"),
				rapid.SampledFrom([]string{"die", "idle", "haste", "join"}).Draw(r, "what"),
			}
		}
		play := func(narrow bool) int {
			w := crowd(t, members, limit, window)
			w.narrow = narrow
			start := func(n *node, demand float64) {
				n.waiting, n.due = 0, w.now
				n.often = time.Duration(demand * float64(members) * float64(window) / float64(limit))
			}
			for i, n := range w.nodes {
				start(n, demand[i])
			}
			w.run(10 * time.Second) // until the pace is found
			for _, e := range turns {
				n := w.nodes[e.member]
				switch e.what {
				case "die":
					n.die()
				case "idle":
					n.often, n.waiting = 0, 0
				case "haste":
					start(n, demand[e.member]/3)
				case "join":
					w.join(1, pacing.Config{Passive: true})
					start(w.nodes[len(w.nodes)-1], demand[members])
				}
				w.run(e.after)
			}
			w.run(window)
			if w.ahead > 0 {
				given++
			}
			return most(w.sent, window)
		}
		alone, got := play(true), play(false)
		if got > max(limit, alone)+limit/100 {
			r.Errorf("%d attempts in %v, %d are allowed and %d go without permits ahead", got, window, limit, alone)
		}
	})
	if t.Logf("%d times members had permits ahead of need", given); longtest.Long() && given == 0 {
		t.Error("nobody had a permit ahead of need")
	}
}

// Unused permits are returned within a beat and count against no limit. The permits of a
// killed member are settled within a lease.
func TestUnusedPermitsComeBack(t *testing.T) {
	w := crowd(t, 2, 5000, 10*time.Second)
	start := func(often time.Duration) {
		for _, n := range w.nodes {
			n.waiting, n.often, n.due = 0, often, w.now
		}
	}
	start(2 * ms)
	w.run(30 * time.Second) // until the limit is found
	start(5 * ms)
	w.run(5 * time.Second)
	d := w.server.groups["credential"]
	if len(d.tickets) <= 10 {
		t.Fatalf("%d permits are out", len(d.tickets))
	}
	start(0)
	w.run(300*ms + Beat + latency + 10*ms)
	if len(d.tickets) > 0 || d.core.InFlight() > 0 {
		t.Errorf("%d permits are out when nobody has used them, and %d attempts are under way", len(d.tickets), d.core.InFlight())
	}
	start(5 * ms)
	w.run(5 * time.Second)
	w.nodes[0].die()
	start(0)
	w.run(Lease + Beat)
	if len(d.tickets) > 0 {
		t.Errorf("%d permits are out a lease after a member was killed", len(d.tickets))
	}
}

// A limit of a day holds exactly, since no permits are granted ahead of need there.
func TestAheadOfADay(t *testing.T) {
	const limit = 3000
	w := crowd(t, 16, limit, 24*time.Hour)
	for _, n := range w.nodes {
		n.often = 20 * ms
	}
	w.run(20 * time.Second)
	if w.refused > 0 || len(w.sent) > limit {
		t.Errorf("%d attempts of %d a day, %d were refused", len(w.sent), limit, w.refused)
	}
}
