package agent_test

import (
	"fmt"
	"time"

	"github.com/headway-go/headway/agent"
	"github.com/headway-go/headway/quota"
)

// Three agents share 30 calls a minute of one model, and each would like to
// decide every four seconds: 45 a minute. Their burst runs out, the model is
// throttled, they slow down, the budget recovers, they return in steps. Time is
// virtual here; in a program each agent has a [agent.Loop] instead.
func Example() {
	const model, base = "small", 4 * time.Second
	governor, err := quota.New(quota.Config{
		Models: map[string]quota.Model{model: {Limits: quota.Limits{CallsPerMinute: 30, Burst: 4}}},
	}, time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
	if err != nil {
		fmt.Println(err)
		return
	}
	names := []string{"planner", "coder", "critic"}
	var agents []*agent.Pacer
	for _, name := range names {
		p, err := agent.New(agent.Config{Base: base, Scope: quota.Scope{Agent: name, Model: model}})
		if err != nil {
			fmt.Println(err)
			return
		}
		agents = append(agents, p)
	}

	cycles := make([]int, len(names))
	for now := time.Duration(0); now < time.Minute; now += 100 * time.Millisecond {
		governor.Advance(now)
		for i, p := range agents {
			if p.Due(now) > 0 {
				continue
			}
			p.Begin(now)
			cycles[i]++
			d := governor.Approve(now, quota.Request{Model: model, InputTokens: 100})
			if !d.Approved {
				p.Backoff(now, d.RetryIn)
				continue
			}
			if _, err := governor.RecordUsage(now, d.Permit, quota.Usage{Input: 100}); err != nil {
				fmt.Println(err)
			}
		}
		events, _ := governor.TakeEvents(nil)
		for _, e := range events {
			for _, p := range agents {
				p.Observe(now, e)
			}
			if e.Type == quota.EventThrottle || e.Type == quota.EventResume {
				fmt.Printf("%-5v %v\n", now, e)
			}
		}
		if past := now + 100*time.Millisecond; past%(10*time.Second) == 0 {
			fmt.Printf("%-5v cycles %v, interval %v\n", past, cycles, agents[0].Interval(now))
			clear(cycles)
		}
	}
	// Output:
	// 8s    rate:throttle model small THROTTLED
	// 10s   cycles [3 3 3], interval 8s
	// 12s   rate:resume model small
	// 20s   cycles [1 1 1], interval 7s
	// 30s   cycles [2 2 2], interval 5s
	// 36.1s rate:throttle model small THROTTLED
	// 40s   cycles [2 2 2], interval 8s
	// 40.1s rate:resume model small
	// 50s   cycles [1 1 1], interval 7s
	// 1m0s  cycles [2 2 2], interval 5s
}

// Hints say how to need less in a cycle, the interval how often to begin one.
func ExamplePacer() {
	p, err := agent.New(agent.Config{Base: 10 * time.Second, Scope: quota.Scope{Model: "small"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	p.Observe(0, quota.Event{Type: quota.EventSoftPressure, Scope: quota.Scope{Model: "small"}, Utilization: 0.85, WindowMS: 60_000})
	fmt.Println(p.Interval(0), p.Hint(0).Names())
	p.Observe(0, quota.Event{Type: quota.EventThrottle, Scope: quota.Scope{Model: "small"}})
	fmt.Println(p.Interval(0))
	p.Observe(time.Minute, quota.Event{Type: quota.EventResume, Scope: quota.Scope{Model: "small"}})
	fmt.Println(p.Interval(time.Minute), p.Interval(70*time.Second), p.Interval(80*time.Second))
	// Output:
	// 10s [shrink_planning_depth compress_context]
	// 20s
	// 20s 15s 10s
}
