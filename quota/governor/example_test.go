package governor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

func small(l quota.Limits) quota.Config {
	return quota.Config{Models: map[string]quota.Model{"small": {Limits: l}}}
}

func ExampleGovernor_Approve() {
	g, err := governor.New(governor.Options{Config: small(quota.Limits{CallsPerMinute: 1, MaxDailyTokens: 1000})})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = g.Close() }()
	d, err := g.Approve(quota.Request{Model: "small", InputTokens: 200, OutputTokens: 400})
	if err != nil {
		fmt.Println(err)
		return
	}
	// ... the call is made here ...
	fmt.Println(g.RecordUsage(d.Permit, quota.Usage{Input: 210, Output: 90}))
	fmt.Println("left today:", *g.Snapshot().Models["small"].DailyTokensRemaining)

	_, err = g.Approve(quota.Request{Model: "small", InputTokens: 200})
	denial, _ := errors.AsType[*quota.Denial](err)
	fmt.Println(denial.Code, denial.Scope)
	// Output:
	// true <nil>
	// left today: 700
	// RATE_THROTTLED model small
}

func ExampleGovernor_ApproveWait() {
	g, _ := governor.New(governor.Options{Config: small(quota.Limits{CallsPerMinute: 6000, Burst: 1})})
	defer func() { _ = g.Close() }()
	for range 3 {
		d, err := g.ApproveWait(context.Background(), quota.Request{Model: "small"})
		fmt.Println(d.Approved, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// true <nil>
}

func ExampleGovernor_Subscribe() {
	g, _ := governor.New(governor.Options{Config: small(quota.Limits{CallsPerMinute: 6000, Burst: 1})})
	defer func() { _ = g.Close() }()
	resumed := make(chan quota.Event, 1)
	defer g.Subscribe(func(e quota.Event) {
		if e.Type == quota.EventResume {
			resumed <- e
		}
	})()
	for range 2 {
		_, _ = g.Approve(quota.Request{Model: "small"})
	}
	select { // nobody asks
	case e := <-resumed:
		fmt.Println(e)
	case <-time.After(time.Minute):
		fmt.Println("never called")
	}
	// Output:
	// rate:resume model small
}

func ExampleGovernor_UpdateConfig() {
	g, _ := governor.New(governor.Options{Config: small(quota.Limits{CallsPerMinute: 60, Burst: 1})})
	defer func() { _ = g.Close() }()
	fmt.Println(g.UpdateConfig([]byte(`{"models":{"small":{"burst":-1}}}`)))
	fmt.Println(g.UpdateConfig([]byte(`{"models":{"small":{"burst":5}}}`)))
	fmt.Println(*g.Snapshot().Models["small"].CallsRemaining)
	// Output:
	// quota: models.small.burst is -1, must be from 0 to 1000000000 (RATE_INVALID_CONFIG)
	// <nil>
	// 5
}

// With a file the day's use survives a restart.
func ExampleOpenFile() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for range 2 {
		file, err := governor.OpenFile(filepath.Join(dir, "quota.json"))
		if err != nil {
			fmt.Println(err)
			return
		}
		c := small(quota.Limits{MaxDailyCalls: 1})
		c.DayZone, c.LoadZone = "UTC", time.LoadLocation
		g, _ := governor.New(governor.Options{Config: c, Store: file})
		_, err = g.Approve(quota.Request{Model: "small"})
		denial, refused := errors.AsType[*quota.Denial](err)
		if refused {
			fmt.Println(denial.Code)
		} else {
			fmt.Println("approved")
		}
		_ = g.Close()
		_ = file.Close()
	}
	// Output:
	// approved
	// RATE_HARD_LIMIT
}
