package headway_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/reason"
)

func TestAPermitSaysWhatItWaitedFor(t *testing.T) {
	ok := headway.Outcome{Class: reason.OK}
	for _, tt := range []struct {
		name   string
		config headway.Config
		first  headway.Outcome
		want   headway.Wait
	}{
		{"the owner's ceiling", headway.Config{Law: "aimd", Initial: 250 * time.Millisecond}, ok,
			headway.Wait{Reason: reason.Pacing, Bound: reason.BoundCeiling}},
		{"a law on its way to the ceiling", headway.Config{Law: "aimd", Initial: time.Second}, ok,
			headway.Wait{Reason: reason.Pacing, Bound: reason.BoundLearning}},
		{"a law that the provider has slowed down", headway.Config{Law: "aimd", Initial: 250 * time.Millisecond},
			headway.Outcome{Class: reason.Throttled}, headway.Wait{Reason: reason.Pacing, Bound: reason.BoundLimit}},
		{"Retry-After", headway.Config{Law: "aimd"}, headway.Outcome{Class: reason.Throttled, RetryAfter: time.Minute},
			headway.Wait{Reason: reason.Cooldown, Bound: reason.BoundCooldown}},
		{"no answer yet", headway.Config{}, headway.Outcome{}, headway.Wait{Reason: reason.ConservativeStart, Bound: reason.BoundLearning}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.config.Tolerance = -1
				g := newGovernor(t, tt.config)
				first := acquire(t, g)
				if first.Wait() != (headway.Wait{}) {
					t.Fatalf("the first attempt waited for %+v", first.Wait())
				}
				first.Settle(tt.first)
				p := acquire(t, g)
				if p.Wait() != tt.want {
					t.Errorf("the second attempt waited for %+v, want %+v", p.Wait(), tt.want)
				}
				p.Settle(ok)
				time.Sleep(time.Hour)
				if p = acquire(t, g); p.Wait() != (headway.Wait{}) {
					t.Errorf("an attempt after an hour waited for %+v", p.Wait())
				}
			})
		})
	}
}
