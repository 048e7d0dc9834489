package sim_test

import (
	"fmt"
	"os"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
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

// rows is a load whose figures can be worked out: ten batches of 2 s, two at a
// time.
const rows = `
name: rows
workload: {kind: bulk, rows: 1000}
provider:
  latency: {p50: 0s}
  batch: {per_row: 20ms, max_rows: 100}
  hint: 2
`

func ExampleRunBulk() {
	s, err := scenario.Parse("rows.yaml", []byte(rows))
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := sim.RunBulk(s, sim.Options{Law: sim.BulkHint, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Acknowledged, r.Owed, r.ElapsedS, r.RowsPerS, r.ParallelismMax)
	// Output:
	// 1000 0 12 83.333 2
}

func ExampleCompareBulk() {
	s, err := scenario.Parse("rows.yaml", []byte(rows))
	if err != nil {
		fmt.Println(err)
		return
	}
	results, err := sim.CompareBulk([]*scenario.Scenario{s}, []string{"fixed:1", "fixed:5"}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := sim.WriteBulkTable(os.Stdout, results); err != nil {
		fmt.Println(err)
	}
	// Output:
	// scenario  law      rows/s  elapsed  batches  throttled  thr/1000  mean  max  retry-after  longest  owed  ended
	// rows      fixed:1    50.0     20 s       10          0      0.00  1.00    1          0 s      0 s     0  whole
	// rows      fixed:5   250.0      4 s       10          0      0.00  5.00    5          0 s      0 s     0  whole
}
