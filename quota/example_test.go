package quota_test

import (
	"fmt"
	"time"

	"github.com/headway-go/headway/quota"
)

var start = time.Date(2026, 3, 4, 23, 0, 0, 0, time.UTC)

func ExampleGovernor_Approve() {
	g, err := quota.New(quota.Config{
		Global: quota.Limits{CallsPerMinute: 600},
		Models: map[string]quota.Model{"small": {Limits: quota.Limits{CallsPerMinute: 60, Burst: 2}}},
	}, start)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		d := g.Approve(0, quota.Request{Model: "small", InputTokens: 200})
		if !d.Approved {
			fmt.Println(d.Reason, d.Code, d.Scope, d.RetryIn)
			continue
		}
		fmt.Println("approved")
	}
	// Output:
	// approved
	// approved
	// THROTTLED RATE_THROTTLED model small 1s
}

func ExampleGovernor_RecordUsage() {
	g, _ := quota.New(quota.Config{
		Models: map[string]quota.Model{"small": {Limits: quota.Limits{MaxDailyTokens: 1000}}},
	}, start)
	d := g.Approve(0, quota.Request{Model: "small", InputTokens: 200, OutputTokens: 400})
	left := func() int64 {
		s, _ := g.Inspect(0, quota.Scope{Model: "small"})
		return *s.DailyTokensRemaining
	}
	fmt.Println("reserved, left:", left())
	first, err := g.RecordUsage(0, d.Permit, quota.Usage{Input: 210, Output: 90})
	fmt.Println(first, err, "left:", left())
	first, err = g.RecordUsage(0, d.Permit, quota.Usage{Input: 210, Output: 90})
	fmt.Println(first, err, "left:", left())
	// Output:
	// reserved, left: 400
	// true <nil> left: 700
	// false <nil> left: 700
}

func ExampleGovernor_Cancel() {
	g, _ := quota.New(quota.Config{Models: map[string]quota.Model{"small": {Limits: quota.Limits{CallsPerMinute: 1}}}}, start)
	d := g.Approve(0, quota.Request{Model: "small"})
	fmt.Println(g.Cancel(0, d.Permit))
	fmt.Println(g.Approve(0, quota.Request{Model: "small"}).Approved)
	// Output:
	// true <nil>
	// true
}

func ExampleGovernor_Drain() {
	g, _ := quota.New(quota.Config{Models: map[string]quota.Model{"small": {Limits: quota.Limits{TokensPerMinute: 100}}}}, start)
	d := g.Approve(0, quota.Request{Model: "small", InputTokens: 10, OutputTokens: 20})
	for range 3 {
		_ = g.Drain(0, d.Permit, 15)
		s, _ := g.Inspect(0, quota.Scope{Model: "small"})
		fmt.Println(*s.TokensRemaining)
	}
	// Output:
	// 70
	// 60
	// 45
}

// A shell sets one timer for the next transition; nobody has to ask.
func ExampleGovernor_NextTransition() {
	g, _ := quota.New(quota.Config{Models: map[string]quota.Model{"small": {Limits: quota.Limits{CallsPerMinute: 60, Burst: 1}}}}, start)
	g.Approve(0, quota.Request{Model: "small"})
	g.Approve(0, quota.Request{Model: "small"})
	at, _ := g.NextTransition(0)
	g.Advance(at)
	events, _ := g.TakeEvents(nil)
	for _, e := range events {
		fmt.Println(e.Instant, e)
	}
	// Output:
	// 0s rate:throttle model small THROTTLED
	// 0s rate:adaptiveScale model small
	// 0s rate:denied model small RATE_THROTTLED
	// 1s rate:resume model small
}

// The pure part decides who goes next; the shell only waits.
func ExampleGovernor_Enqueue() {
	g, _ := quota.New(quota.Config{Models: map[string]quota.Model{"small": {Limits: quota.Limits{CallsPerMinute: 60, Burst: 1}}}}, start)
	g.Approve(0, quota.Request{Model: "small"})
	names := map[quota.Waiter]string{}
	for _, r := range []quota.Request{
		{Model: "small", Tenant: "a"}, {Model: "small", Tenant: "a"}, {Model: "small", Tenant: "b"}, {Model: "small", Tenant: "b", Priority: 1},
	} {
		w, _ := g.Enqueue(0, r, time.Minute)
		names[w] = fmt.Sprintf("%s with priority %d", r.Tenant, r.Priority)
	}
	for g.Waiting() > 0 {
		at, _ := g.NextTransition(0)
		for _, grant := range g.Grants(at, nil) {
			fmt.Println(at, names[grant.Waiter])
		}
	}
	// Output:
	// 1s b with priority 1
	// 2s a with priority 0
	// 3s a with priority 0
	// 4s b with priority 0
}

func ExampleGovernor_UpdateConfig() {
	g, _ := quota.New(quota.Config{Models: map[string]quota.Model{"small": {Limits: quota.Limits{CallsPerMinute: 60, Burst: 1}}}}, start)
	fmt.Println(g.UpdateConfig(0, []byte(`{"models":{"small":{"burst":-1}}}`)))
	fmt.Println(g.UpdateConfig(0, []byte(`{"models":{"small":{"burst":5}}}`)))
	fmt.Println(g.Config().Models["small"].Burst)
	// Output:
	// quota: models.small.burst is -1, must be from 0 to 1000000000 (RATE_INVALID_CONFIG)
	// <nil>
	// 5
}

// A crash at 23:00 does not hand out a second day's budget.
func ExampleGovernor_Restore() {
	c := quota.Config{Models: map[string]quota.Model{"small": {Limits: quota.Limits{MaxDailyTokens: 1000}}}}
	g, _ := quota.New(c, start)
	g.Approve(0, quota.Request{Model: "small", InputTokens: 900})
	kept := g.TakeChangedUse(0, nil) // into a store

	g, _ = quota.New(c, start.Add(time.Minute))
	_ = g.Restore(0, kept)
	d := g.Approve(0, quota.Request{Model: "small", InputTokens: 900})
	fmt.Println(d.Code, d.RetryIn)
	// Output:
	// RATE_HARD_LIMIT 59m0s
}

func ExampleGovernor_Forecast() {
	g, _ := quota.New(quota.Config{Models: map[string]quota.Model{"small": {Limits: quota.Limits{MaxDailyTokens: 10_000}}}}, start)
	for i := range 20 {
		g.Approve(time.Duration(i)*10*time.Second, quota.Request{Model: "small", InputTokens: 100})
	}
	for _, f := range g.Forecast(4*time.Minute, quota.Scope{Model: "small"}) {
		fmt.Println(f.Budget, f.Remaining, "of", f.Size, f.PerMinute, f.RunsOutIn, f.Early())
	}
	// Output:
	// dailyTokens 8000 of 10000 200 40m0s true
}

func ExampleDecision_Refusal() {
	g, _ := quota.New(quota.Config{Models: map[string]quota.Model{"small": {Limits: quota.Limits{CallsPerMinute: 1}}}}, start)
	g.Approve(0, quota.Request{Model: "small"})
	d := g.Approve(0, quota.Request{Model: "small"})
	fmt.Println(d.Refusal(start))
	// Output:
	// model small: pacing (retry at 2026-03-04T23:01:00Z): quota: model small: RATE_THROTTLED (THROTTLED), retry in 1m0s
}
