package learn

import (
	"testing"
	"time"
)

// Some providers send milliseconds instead of seconds. One canary finds out.
func TestAnImplausibleWaitIsTested(t *testing.T) {
	for _, tt := range []struct {
		name  string
		waits []time.Duration // in the first refusals of blocks
		truth float64         // their divisor
		last  time.Duration   // the time without an attempt in the last block
		tried int             // canaries that were refused
		unit  float64         // stored for a warm start
	}{
		{"almost a day is believed", []time.Duration{24*time.Hour - sec}, 1, 24*time.Hour - sec, 0, 0},
		{"so is a day", []time.Duration{24 * time.Hour}, 1, 24 * time.Hour, 0, 0},
		{"30 hours cost a canary, and another after a day", []time.Duration{30 * time.Hour}, 1, 30 * time.Hour, 2, 1},
		{"but one alone", []time.Duration{20*time.Hour + 17*sec, 21*time.Hour + 17*sec}, 1, 21*time.Hour + 17*sec, 1, 1},
		{"and little if it has another unit", []time.Duration{48*time.Hour + 17*sec}, millisPerSecond, 190_098 * ms, 0, millisPerSecond},
		{"however long it is", []time.Duration{1000*time.Hour + 17*sec}, millisPerSecond, 3_960_018 * ms, 0, millisPerSecond},
		{"those after it cost what they mean", []time.Duration{48*time.Hour + 17*sec, 300 * sec}, millisPerSecond, 300 * ms, 0, millisPerSecond},
		{"an hour and a half is believed", []time.Duration{90 * time.Minute}, 1, 90 * time.Minute, 0, 0},
		{"any number of seconds is, if penalties are as long", []time.Duration{877 * sec}, 1, 877 * sec, 0, 0},
		{"a longer one that no window explains costs a canary", []time.Duration{4217 * sec}, 1, 4217 * sec, 1, 1},
		{"but one alone, too", []time.Duration{4217 * sec, 5003 * sec}, 1, 5003 * sec, 1, 1},
		{"or little, if it has another unit", []time.Duration{4217 * sec}, millisPerSecond, 4638 * ms, 0, millisPerSecond},
		{"as do those after it", []time.Duration{4217 * sec, 93 * sec}, millisPerSecond, 93 * ms, 0, millisPerSecond},
		{"after two that can be believed it is believed", []time.Duration{48 * time.Minute, sec, 20*time.Hour + 17*sec}, 1, 20*time.Hour + 17*sec, 0, 0},
		{"unless it is far longer", []time.Duration{sec, 17 * time.Minute, 20*time.Hour + 17*sec}, 1, 20*time.Hour + 17*sec, 1, 1},
		{"twelve hours and ten minutes may have another unit", []time.Duration{21 * sec, 12 * sec, 43_800 * sec}, millisPerSecond, 43_800 * ms * 11 / 10, 0, millisPerSecond},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		now, tried, block := time.Duration(0), 0, time.Duration(0)
		for _, wait := range tt.waits {
			now += time.Hour
			l.Sent(now, 1)
			l.Observe(Outcome{Sent: now, Now: now, Class: Refused, RetryAfter: wait})
			began, over := now, now+time.Duration(float64(wait)/tt.truth)
			for l.Waiting() {
				now = max(now+l.Believed(wait-time.Duration(float64(now-began)*tt.truth)), l.Hold(now, 1))
				l.Sent(now, 1)
				o := Outcome{Sent: now, Now: now, Class: Admitted}
				if now < over {
					tried++
					o.Class, o.RetryAfter = Refused, time.Duration(float64(over-now)*tt.truth)
				}
				l.Observe(o)
			}
			block = now - began
		}
		if off := block - tt.last; off < 0 || off > sec+tt.last/50 || tried != tt.tried || l.Store().WaitUnit != tt.unit {
			t.Errorf("%s: nothing goes for %v, want %v; %d canaries refused, want %d; unit %v, want %v",
				tt.name, block, tt.last, tried, tt.tried, l.Store().WaitUnit, tt.unit)
		}
	}
}

func TestUsualWindowsExplainALongWait(t *testing.T) {
	const now = 1234 * sec
	for _, tt := range []struct {
		name string
		wait time.Duration
		want bool
	}{
		{"whole minutes", 17 * time.Minute, true},
		{"an hour", time.Hour, true},
		{"more than an hour in minutes", 61 * time.Minute, false},
		{"in quarters of an hour", 75 * time.Minute, true},
		{"a day", 24 * time.Hour, true},
		{"a day by a date", 24*time.Hour + sec - ms, true},
		{"and more", 24*time.Hour + sec + ms, false},
		{"days", 48 * time.Hour, false},
		{"thousands of seconds, which may be milliseconds", 5000 * sec, false},
		{"and are quarters of an hour, too", 18_000 * sec, false},
		{"or minutes", 3000 * sec, false},
		{"until an hour of the clock, as with the day of another time zone", 13*time.Hour - 400*sec - now, true},
		{"until a quarter of one", 13*time.Hour - 15*time.Minute - 400*sec - now, false},
		{"until half past an hour, which no window ends with that is so long", 90*time.Minute - 400*sec - now, false},
		{"minutes by a date, which has whole seconds", 17*time.Minute - 600*ms, true},
		{"until an hour after the first attempt", time.Hour + 100*sec - now, true},
		{"until a day after the last release", 24*time.Hour + 507*sec - now, true},
		{"until the clock strikes", 2*time.Hour - 400*sec - now + 3*sec, true},
		{"neither", 4217 * sec, false},
		{"an hour after the first attempt, and some seconds", time.Hour + 105*sec - now, true},
		{"and some more", time.Hour + 105*sec + ms - now, false},
		{"some seconds after the clock strikes", 2*time.Hour - 395*sec - now, true},
		{"some more", 2*time.Hour - 395*sec + ms - now, false},
		{"ten", 2*time.Hour - 390*sec - now, false},
		{"whole minutes and a second", 17*time.Minute + sec, false},
		{"whole minutes but for a second", 17*time.Minute - sec, false},
		{"minutes by a date, a little later", 17*time.Minute + sec - ms, true},
		{"and more than that", 17*time.Minute + sec + ms, false},
		{"whole minutes but for a second and a half", 17*time.Minute - 1500*ms, false},
		{"about a quarter of an hour", 15*time.Minute + 3*sec, true},
	} {
		l := Law{view: view{phase: 400 * sec}, began: 100 * sec, freed: 507 * sec}
		if got := l.ends(now, tt.wait); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAWaitThatABurstLengthenedIsNotAllBelieved(t *testing.T) {
	for _, tt := range []struct {
		name  string
		waits []time.Duration
		want  time.Duration
	}{
		{"each refusal of a burst has a longer one", []time.Duration{266 * sec, 613 * sec, 1409 * sec, 3051 * sec}, penaltyLongest},
		{"it is no longer than a penalty", []time.Duration{266 * sec, 613 * sec}, 613 * sec},
		{"it ends with the hour", []time.Duration{266 * sec, time.Hour - 12*sec}, time.Hour - 12*sec},
		{"waits are known to be seconds", []time.Duration{266 * sec, 3051 * sec}, 3051 * sec},
		{"the rest of one that is in milliseconds", []time.Duration{20_711 * sec, 20_611 * sec, 20_511 * sec}, 22562100 * time.Microsecond},
		{"responses that overtook others", []time.Duration{20_711 * sec, 20_511 * sec, 20_611 * sec}, 22672100 * time.Microsecond},
		{"a quarter longer", []time.Duration{20_000*sec + 11*sec, 25_013*sec + 750*ms}, 27515125 * time.Microsecond},
		{"more than that", []time.Duration{20_000*sec + 11*sec, 25_014 * sec}, penaltyLongest},
		{"than the shortest of them", []time.Duration{20_011 * sec, 18_011 * sec, 23_011 * sec}, penaltyLongest},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: 24 * time.Hour})
		if tt.name == "waits are known to be seconds" {
			l.named.unit = 1
		}
		now := 10 * sec
		for range tt.waits {
			l.Sent(now, 1)
		}
		for _, wait := range tt.waits {
			now += 100 * ms
			l.Observe(Outcome{Sent: 10 * sec, Now: now, Class: Refused, RetryAfter: wait, Estimate: 1})
		}
		last := tt.waits[len(tt.waits)-1]
		if got := l.Believed(last); got != tt.want {
			t.Errorf("%s: %v of %v is believed, want %v", tt.name, got, last, tt.want)
		}
		if got := l.Hold(now, 1) - now; got < tt.want-sec || got > tt.want+2*sec {
			t.Errorf("%s: the next attempt in %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Attempts are refused for 5 s, each with a wait of one second, and then those that follow at once are not.
func TestCanariesThatAreRefusedAtTheEndOfAWaitAreCounted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		waits []time.Duration // that the refusals advertise
		short int             // once the canary after the last of them was refused, and once one was admitted
		after int
	}{
		{"none", []time.Duration{0}, 0, 0},
		{"one", []time.Duration{sec}, 1, 1},
		{"two", []time.Duration{sec, 9 * sec}, 2, 2},
		{"what is left of the first wait is no new one", []time.Duration{10 * sec, 9 * sec, 8 * sec}, 2, 2},
		{"one that may have another unit", []time.Duration{48*time.Hour + 17*sec}, 0, 0},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		now := time.Duration(0)
		send := func(class Class, wait time.Duration) {
			now = max(now, l.Hold(now, 1))
			l.Sent(now, 1)
			l.Observe(Outcome{Sent: now, Now: now, Class: class, RetryAfter: wait, Estimate: 1, Cost: 1})
		}
		for _, wait := range append(tt.waits, 0) {
			send(Refused, wait)
		}
		if l.named.short != tt.short {
			t.Errorf("%s: %d canaries were refused at the end of a wait, want %d", tt.name, l.named.short, tt.short)
		}
		if send(Admitted, 0); l.named.short != tt.after {
			t.Errorf("%s: %d once a canary was admitted, want %d", tt.name, l.named.short, tt.after)
		}
		l.penalty = penalty{} // else it waits longer
		send(Refused, sec)
		if send(Admitted, 0); l.named.short != 0 {
			t.Errorf("%s: %d once one was admitted at the end of a wait, want none", tt.name, l.named.short)
		}
	}
}

// A doubted wait was refused when its canary went, 100 s after the refusal.
func TestADoubtedWaitThatIsRight(t *testing.T) {
	const day, past = 24 * time.Hour, 31 * 24 * time.Hour / 1000 * 11 / 10
	odd := func(asked, tried time.Duration) waits { return waits{odd: true, asked: asked, tried: tried} }
	for _, tt := range []struct {
		name        string
		before      waits
		wait        time.Duration // that the canary's refusal advertises
		unit        float64
		tried, next time.Duration // what a canary waits for at least, and how long until the next one goes
	}{
		{"as much less is left as time has passed", odd(31*day, 0), 31*day - 100*sec, 1, 0, 31*day - 100*sec},
		{"a little less", odd(31*day, 0), 31*day - 50*sec, 1, 0, 31*day - 50*sec},
		{"as much as before, so it may have been cut", odd(31*day, 0), 31 * day, 0, 2 * past, 2 * past},
		{"almost", odd(31*day, 0), 31*day - 49*sec, 0, 2 * (past - 53900*time.Microsecond), 2 * (past - 53900*time.Microsecond)},
		{"the second time, too", odd(31*day, 2*past), 31 * day, 0, 4 * past, 4 * past},
		{"the next canary would go after a day", odd(31*day, day/2), 31 * day, 1, day / 2, 31 * day},
		{"far less, as in another unit", odd(31*day, 0), 30 * day, 0, 0, 30 * day / 1000 * 11 / 10},
		{"twice as much less", odd(31*day, 0), 31*day - 200*sec, 1, 0, 31*day - 200*sec},
		{"a day is not cut", odd(day, 0), day, 1, 0, day},
		{"nor of another unit", odd(day, 0), day / 2, 1, 0, day / 2},
	} {
		w := tt.before
		w.denied(100*sec, tt.wait)
		want := tt.before
		want.unit, want.tried, want.asked, want.askedAt = tt.unit, tt.tried, tt.wait, 100*sec
		if got := w.believed(tt.wait); w != want || got != tt.next {
			t.Errorf("%s: %+v, %v is believed; want %+v, %v", tt.name, w, got, want, tt.next)
		}
	}
}

func TestWhichWaitsAreBelieved(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after waits
		wait          time.Duration // of the first refusal of a block
		believed      time.Duration
	}{
		{"a plausible wait", waits{}, waits{sane: 1, longest: sec}, sec, sec},
		{"a shorter one says nothing", waits{}, waits{}, sec - 1, sec - 1},
		{"a shorter one than before", waits{sane: 1, longest: 2 * sec}, waits{sane: 2, longest: 2 * sec}, sec, sec},
		{"after two plausible ones a long one is believed", waits{sane: 2, longest: 2000 * sec}, waits{sane: 3, longest: 24 * time.Hour}, 24 * time.Hour, 24 * time.Hour},
		{"though it is odd", waits{sane: 2, longest: 2000 * sec, odd: true}, waits{sane: 3, longest: 24 * time.Hour, odd: true}, 24 * time.Hour, 24 * time.Hour},
		{"after one such an odd one is not", waits{sane: 1, longest: 2000 * sec, odd: true}, waits{sane: 1, longest: 2000 * sec, odd: true}, 24 * time.Hour, 95040 * ms},
		{"nor is one that is far longer", waits{sane: 2, longest: 1439 * sec, odd: true}, waits{sane: 2, longest: 1439 * sec, odd: true}, 24 * time.Hour, 95040 * ms},
		{"a day", waits{}, waits{sane: 1, longest: 24 * time.Hour}, 24 * time.Hour, 24 * time.Hour},
		{"an odd quarter of an hour", waits{odd: true}, waits{odd: true, sane: 1, longest: penaltyLongest}, penaltyLongest, penaltyLongest},
		{"an odd one that is longer", waits{odd: true}, waits{odd: true}, 2000 * sec, 2200 * ms},
		{"which is hardly longer", waits{odd: true}, waits{odd: true}, 901 * sec, sec},
		{"in milliseconds", waits{unit: millisPerSecond, odd: true}, waits{unit: millisPerSecond, odd: true, sane: 1, longest: 2000 * sec}, 2000 * sec, 2 * sec},
		{"in milliseconds, as the next will be", waits{unit: millisPerSecond, sane: 1}, waits{unit: millisPerSecond, sane: 2, longest: 2000 * sec}, 2000 * sec, 2 * sec},
		{"a burst has lengthened it", waits{lengthened: true, unit: 1}, waits{lengthened: true, unit: 1, sane: 1, longest: 2000 * sec}, 2000 * sec, penaltyLongest},
	} {
		w := tt.before
		tt.after.asked = tt.wait
		if w.heard(0, tt.wait); w.always() != (tt.after.sane > 1) {
			t.Errorf("%s: all refusals have waits: %v", tt.name, w.always())
		}
		if w != tt.after || w.believed(tt.wait) != tt.believed {
			t.Errorf("%s: %+v, %v is believed; want %+v, %v", tt.name, w, w.believed(tt.wait), tt.after, tt.believed)
		}
	}
	if w := (waits{sane: 9, silent: 1}); w.always() {
		t.Error("all refusals have waits, though one had none")
	}
}

// An owner allows an hour. What is left of a wait that was cut is no advertised instant at which a limit ends.
func TestNoWaitIsObservedForLongerThanTheOwnerAllows(t *testing.T) {
	for _, tt := range []struct {
		name  string
		allow time.Duration
		wait  time.Duration
		holds time.Duration // for how long nothing goes
		exact bool
	}{
		{"a shorter one", time.Hour, 30 * time.Minute, 30 * time.Minute, true},
		{"as long a one", time.Hour, time.Hour, time.Hour, true},
		{"a longer one", time.Hour, 3 * time.Hour, time.Hour, false},
		{"by default a day", 0, 23 * time.Hour, 23 * time.Hour, true},
		{"of two days, once it is known to be right", 0, 48 * time.Hour, 24 * time.Hour, false},
		{"if the owner allows as much, all of it", 48 * time.Hour, 48 * time.Hour, 48 * time.Hour, true},
		{"no more", 48 * time.Hour, 48*time.Hour + 1, 48 * time.Hour, false},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour, MaxWait: tt.allow})
		l.named.unit = 1
		l.Sent(sec, 1)
		l.Observe(Outcome{Sent: sec, Now: sec, Class: Refused, RetryAfter: tt.wait, Estimate: 1})
		if got := l.Hold(sec, 1) - sec; got != tt.holds || l.Believed(tt.wait) != tt.holds || l.block.exact != tt.exact {
			t.Errorf("%s: nothing goes for %v, %v is believed, advertised instant %v; want %v, %v", tt.name, got, l.Believed(tt.wait), l.block.exact, tt.holds, tt.exact)
		}
	}
}
