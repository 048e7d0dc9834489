package control

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/reason"
)

// Whatever a law believes, an outcome that is not a success lets the next attempt
// go no sooner than it might have gone without it. That the place of the attempt
// is free, that the outcome everything waited for is there, and that a first
// response has come at all, is not a speeding up.
func TestNoErrorLetsTheNextAttemptGoSooner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := Params{
			Ceiling: time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "ceiling")),
			Initial: time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(10*time.Second)).Draw(t, "initial")),
		}.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		law, err := New(rapid.SampledFrom(Names()).Draw(t, "law"), &p)
		if err != nil {
			t.Fatal(err)
		}
		type flight struct{ sent, answer time.Duration }
		var out []flight
		now, last, answered := time.Duration(0), -time.Hour, false
		// A provider with a bucket, as slow as its draw, that fails at times.
		rate := rapid.Float64Range(0.2, 50).Draw(t, "rate")
		burst := rapid.Float64Range(1, 20).Draw(t, "burst")
		latency := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(3*time.Second)).Draw(t, "latency"))
		tokens, filled := burst, time.Duration(0)
		next := func() time.Duration {
			return max(law.Hold(now, 1), last+law.Spacing())
		}
		errors := []reason.Class{reason.Unknown, reason.Rejected, reason.Failed, reason.Lost}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if at := next(); len(out) == 0 || at <= out[0].answer && len(out) < 8 {
				now = max(now, at)
				if at == Never {
					t.Fatal("nothing is under way, and nothing may go")
				}
				law.Sent(now, 1)
				last = now
				out = append(out, flight{now, now + latency})
				continue
			}
			f := out[0]
			out = out[1:]
			now = max(now, f.answer)
			o := Observation{Sent: f.sent, Now: now, Class: reason.OK, Estimate: 1, Cost: 1}
			tokens, filled = min(burst, tokens+rate*(now-filled).Seconds()), now
			if tokens < 1 {
				o.Class = reason.Throttled
			} else {
				tokens--
			}
			if rapid.IntRange(0, 3).Draw(t, "error") == 0 {
				o.Class = rapid.SampledFrom(errors).Draw(t, "class")
			}
			before := next()
			if law.Belief().Kind == Concurrency {
				before = now // its place is free either way
			}
			law.Observe(o)
			after := next()
			if !o.Class.Success() && !o.Class.Throttle() && answered && before != Never && after < before {
				t.Fatalf("at %v a %v let the next attempt go at %v, and not at %v", now, o.Class, after, before)
			}
			answered = answered || o.Class != reason.Unknown && o.Class != reason.Lost
		}
	})
}
