package sim_test

import (
	"slices"
	"testing"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/fit"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// pooled has two models of 60 and 300 a minute, and one without a limit of its own,
// under a limit of the account that all together reach.
const pooled = `name: pooled
horizon: 1h
owner: {ceiling: 20ms, initial: 200ms}
provider:
  throttle: {retry_after: seconds}
  limits: [{kind: sliding_window, limit: 900, window: 1m}]
  pools:
    - {name: small, limits: [{kind: token_bucket, rate: 60/min, burst: 5}]}
    - {name: large, share: 2, limits: [{kind: token_bucket, rate: 300/min, burst: 10}]}
    - {name: free}
`

func TestEachPoolReachesItsOwnLimit(t *testing.T) {
	s, err := scenario.Parse("pooled.yaml", []byte(pooled))
	if err != nil {
		t.Fatal(err)
	}
	var all []fit.Attempt
	r := run(t, s, sim.Options{Law: control.DefaultLaw, Seed: 1, OnAttempt: func(a fit.Attempt) { all = append(all, a) }})
	t.Logf("%s", jsonOf(t, r))
	if r.GoodputRatio == nil || *r.GoodputRatio < 0.9 || r.CeilingViolations > 0 {
		t.Errorf("goodput %v", show(r.GoodputRatio))
	}
	sum := int64(0)
	for i, p := range r.Pools {
		sum += p.Admitted
		if i < 2 && (p.GoodputRatio == nil || *p.GoodputRatio < 0.9) {
			t.Errorf("pool %s: %+v, goodput %v", p.Name, p, show(p.GoodputRatio))
		}
	}
	if sum != r.Admitted {
		t.Errorf("%d admitted in pools, %d in all", sum, r.Admitted)
	}
	if len(all) != int(r.Attempts) || !slices.ContainsFunc(all, func(a fit.Attempt) bool { return a.Pool == "small" }) {
		t.Errorf("%d attempts recorded of %d", len(all), r.Attempts)
	}
}

func TestAPoolsRefusalsLeaveTheOthersAlone(t *testing.T) {
	alone, err := scenario.Parse("a.yaml", []byte("name: a\nowner: {ceiling: 20ms, initial: 200ms}\nprovider:\n  pools: [{name: large, limits: [{kind: token_bucket, rate: 300/min, burst: 10}]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	beside, err := scenario.Parse("b.yaml", []byte("name: b\nowner: {ceiling: 20ms, initial: 200ms}\nprovider:\n  pools: [{name: large, limits: [{kind: token_bucket, rate: 300/min, burst: 10}]}, {name: small, limits: [{kind: fixed_window, limit: 20, window: 1m}]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	a := run(t, alone, sim.Options{Law: control.DefaultLaw, Seed: 2})
	b := run(t, beside, sim.Options{Law: control.DefaultLaw, Seed: 2})
	if float64(b.Pools[0].Admitted) < 0.97*float64(a.Pools[0].Admitted) {
		t.Errorf("large has %d beside small, %d alone", b.Pools[0].Admitted, a.Pools[0].Admitted)
	}
}

func TestTheInformedClientKnowsPools(t *testing.T) {
	s, err := scenario.Parse("pooled.yaml", []byte(pooled))
	if err != nil {
		t.Fatal(err)
	}
	p, err := sim.NewPlayer(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := p.Informed()
	if err != nil {
		t.Fatal(err)
	}
	if r.GoodputRatio == nil || *r.GoodputRatio < 0.95 || r.Throttled > 60 {
		t.Errorf("goodput %v, %d throttled, %+v", show(r.GoodputRatio), r.Throttled, r.Pools)
	}
}
