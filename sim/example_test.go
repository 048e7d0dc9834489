package sim_test

import (
	"fmt"
	"os"

	"github.com/headway-go/headway/sim"
	"github.com/headway-go/headway/sim/scenario"
)

// steady is a provider that admits one a second, and a client that may not go faster.
const steady = `
name: steady
horizon: 1m
owner: {ceiling: 2s, initial: 2s}
provider:
  latency: {p50: 100ms}
  limits:
    - {kind: token_bucket, rate: 1/s, burst: 5}
`

func ExampleRun() {
	s, err := scenario.Parse("steady.yaml", []byte(steady))
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := sim.Run(s, sim.Options{Law: "aimd", Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Admitted, r.Throttled, *r.GoodputRatio)
	// Output:
	// 30 0 1
}

func ExampleCompare() {
	s, err := scenario.Parse("steady.yaml", []byte(steady))
	if err != nil {
		fmt.Println(err)
		return
	}
	results, err := sim.Compare([]*scenario.Scenario{s}, []string{"aimd"}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range results {
		fmt.Println(r.Scenario, r.Law, r.Admitted)
	}
	// Output:
	// steady aimd 30
}

func ExampleNewOracle() {
	s, err := scenario.Parse("steady.yaml", []byte(steady))
	if err != nil {
		fmt.Println(err)
		return
	}
	o, err := sim.NewOracle(s, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(o.Admissions))
	// Output:
	// 30
}

func ExampleWriteTable() {
	known := 0.98
	err := sim.WriteTable(os.Stdout, []sim.Result{{Scenario: "steady", Law: "aimd", Admitted: 30, GoodputRatio: &known}})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// scenario  law   goodput  thr/1000  admitted  throttled  to 90 %  block  wait p50  wait p99  thr/change  harm  jain  failed
	// steady    aimd    0.980         -        30          0        -  0.0 s         -         -           -     -     -  no
}

func ExampleWriteSVG() {
	s, err := scenario.Parse("steady.yaml", []byte(steady))
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := sim.Run(s, sim.Options{Law: "aimd", Seed: 1, Trace: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := os.CreateTemp("", "*.svg")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.Remove(f.Name()) }()
	fmt.Println(sim.WriteSVG(f, r.Trace), f.Close())
	// Output:
	// <nil> <nil>
}
