package headway_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-go/headway"
)

func ExampleGovernor_Acquire() {
	g, err := headway.New(headway.Config{Name: "acme", Law: "aimd", Ceiling: 10 * time.Millisecond, Initial: 20 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		permit, err := g.Acquire(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		// ... send the request ...
		permit.Settle(headway.Outcome{Class: headway.OK})
	}
	fmt.Println(g.Snapshot().Rate.CurrentIntervalMS, "ms")
	// Output:
	// 10 ms
}

func ExampleGovernor_AcquireFor() {
	g, _ := headway.New(headway.Config{Name: "model", JitterMax: -1})
	permit, err := g.AcquireFor(context.Background(), headway.Request{Cost: 900}) // tokens, as estimated
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(permit.Settle(headway.Outcome{Class: headway.OK, Cost: 750})) // as used
	// Output:
	// true
}

func ExampleGovernor_TryAcquire() {
	g, _ := headway.New(headway.Config{Name: "acme"})
	if permit, err := g.TryAcquire(); err == nil {
		permit.Settle(headway.Outcome{Class: headway.Throttled, RetryAfter: time.Hour})
	}
	_, err := g.TryAcquire()
	if r, ok := errors.AsType[*headway.Refusal](err); ok {
		fmt.Println(r.Scope, r.Reason, time.Until(r.RetryAt).Round(time.Minute))
	}
	// Output:
	// acme rate_limited 1h0m0s
}

func ExamplePermit_Settle() {
	g, _ := headway.New(headway.Config{Law: "aimd", JitterMax: -1})
	permit, _ := g.TryAcquire()
	fmt.Println(permit.Settle(headway.Outcome{Class: headway.OK}))
	fmt.Println(permit.Settle(headway.Outcome{Class: headway.OK}))
	// Output:
	// true
	// false
}

func ExamplePermit_Cancel() {
	g, _ := headway.New(headway.Config{Law: "aimd", JitterMax: -1})
	permit, _ := g.TryAcquire()
	defer permit.Cancel() // does nothing once settled
	fmt.Println(g.Snapshot().InFlight)
	// Output:
	// 1
}

func ExampleGovernor_Snapshot() {
	g, _ := headway.New(headway.Config{Law: "aimd", JitterMax: -1})
	fmt.Println(g.Snapshot().Rate == nil) // unknown is unknown, not zero
	permit, _ := g.TryAcquire()
	permit.Settle(headway.Outcome{Class: headway.OK})
	fmt.Printf("%.1f a minute, at most %.0f\n", g.Snapshot().Rate.EffectiveRatePerMin, g.Snapshot().Rate.CeilingRatePerMin)
	// Output:
	// true
	// 66.7 a minute, at most 240
}

func ExampleGovernor_Unlimited() {
	g, _ := headway.New(headway.Config{Passive: true, Law: "aimd", JitterMax: -1})
	fmt.Println(g.Unlimited("")) // nothing is known of a limit
	permit, _ := g.TryAcquire()
	permit.Settle(headway.Outcome{Class: headway.Throttled})
	fmt.Println(g.Unlimited(""))
	// Output:
	// true
	// false
}

func ExampleGovernor_Restore() {
	recorded := time.Now().Add(-time.Hour) // when the state was stored
	if err := headway.Fresh(recorded, time.Now()); err != nil {
		fmt.Println(err)
		return
	}
	g, _ := headway.New(headway.Config{Law: "aimd"})
	err := g.Restore(headway.State{Law: "aimd", Version: 1, Interval: 400 * time.Millisecond})
	fmt.Println(err, g.Learned().Interval)
	// Output:
	// <nil> 400ms
}

func ExampleGovernor_Close() {
	g, _ := headway.New(headway.Config{Name: "acme"})
	g.Close()
	_, err := g.Acquire(context.Background())
	fmt.Println(err)
	// Output:
	// acme: closed
}

func ExampleConnections() {
	c, _ := headway.NewConnections[string](headway.Config{Name: "tenants", Law: "aimd", JitterMax: -1})
	permit, _ := c.For("a").TryAcquire()
	permit.Settle(headway.Outcome{Class: headway.Throttled})
	permit, _ = c.For("b").TryAcquire()
	permit.Settle(headway.Outcome{Class: headway.OK})
	fmt.Println(c.For("a").Learned().Interval, c.For("b").Learned().Interval)
	// Output:
	// 1s 900ms
}
