package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

func TestLedgerCountsWhatLeftTooSoonUnderEachCeiling(t *testing.T) {
	s := parse(t, "horizon: 1m", "clients: 2", "owner: {ceiling: 100ms, initial: 100ms}", "provider:", exact)
	l := sim.NewLedger(s, "reckless", 1)
	for _, sent := range []struct {
		at      time.Duration
		ceiling int
	}{
		{0, 0}, {1, 1}, // not the same ceiling
		{100 * time.Millisecond, 0},   // just in time
		{200*time.Millisecond - 1, 0}, // a nanosecond too soon
		{200 * time.Millisecond, 1},
		{201 * time.Millisecond, 1}, // far too soon
	} {
		l.Sent(sent.at, sent.ceiling)
	}
	oracle, err := sim.NewOracle(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := provider.New(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	if r := l.Result(oracle, m); r.CeilingViolations != 2 || r.Law != "reckless" {
		t.Errorf("%d violations under law %s, want 2 under reckless", r.CeilingViolations, r.Law)
	}
}

// A client of another make: one attempt every two seconds, whatever comes back.
func ExampleLedger() {
	s, err := scenario.Parse("steady.yaml", []byte(steady))
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := provider.New(s, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	oracle, err := sim.NewOracle(s, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	l := sim.NewLedger(s, "every two seconds", 1)
	for now := time.Duration(0); now < s.Horizon; now += 2 * time.Second {
		l.Sent(now, 0)
		l.Arrived(now, 0, m.Arrive(now, 0, 1, 80*time.Millisecond), now)
	}
	m.Advance(s.Horizon)
	r := l.Result(oracle, m)
	fmt.Println(r.Admitted, *r.GoodputRatio, r.CeilingViolations)
	// Output:
	// 30 1 0
}
