package sim

import (
	"cmp"
	"errors"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/sim/fit"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// Options say how a scenario is run.
type Options struct {
	// Law is the control law by name, one of control.Names. Default
	// control.DefaultLaw.
	Law string
	// Seed decides everything that is left to chance. 0 is a seed like any other.
	Seed uint64
	// Trace keeps what a plot needs, in [Result.Trace].
	Trace bool
	// OnAttempt is called with each attempt that reaches the provider, in the order in
	// which they do; nil is not.
	OnAttempt func(fit.Attempt)
}

// Player runs one scenario with one seed under any number of laws. It asks the oracle
// only once.
type Player struct {
	s      *scenario.Scenario
	seed   uint64
	oracle *Oracle
}

// NewPlayer asks the oracle. The scenario must come from scenario.Parse.
func NewPlayer(s *scenario.Scenario, seed uint64) (*Player, error) {
	oracle, err := NewOracle(s, seed)
	if err != nil {
		return nil, err
	}
	return &Player{s: s, seed: seed, oracle: oracle}, nil
}

// Oracle is what the clairvoyant client is admitted.
func (p *Player) Oracle() *Oracle { return p.oracle }

// Run is [Run] under a law, with the player's seed.
func (p *Player) Run(law string) (Result, error) {
	return run(p.s, Options{Law: law, Seed: p.seed}, p.oracle)
}

// Run plays a scenario, which must come from scenario.Parse or scenario.Load.
// It is an error when the law is unknown, when the scenario cannot be modelled
// and when it takes more than [MaxAttempts].
func Run(s *scenario.Scenario, o Options) (Result, error) {
	oracle, err := NewOracle(s, o.Seed)
	if err != nil {
		return Result{}, err
	}
	return run(s, o, oracle)
}

func run(s *scenario.Scenario, o Options, oracle *Oracle) (Result, error) {
	o.Law = cmp.Or(o.Law, control.DefaultLaw)
	ledger := NewLedger(s, o.Law, o.Seed)
	if o.Trace {
		ledger.KeepTrace()
	}
	e, err := newEngine(s, o.Law, o.Seed, ledger)
	if err != nil {
		return Result{}, err
	}
	e.onAttempt = o.OnAttempt
	if err := e.run(); err != nil {
		return Result{}, err
	}
	r := ledger.Result(oracle, e.model)
	r.Blocks, r.BlocksPushed = e.model.Blocks()
	if b := e.belief(); b.Kind != control.Unknown {
		r.Belief = &Belief{Kind: b.Kind.String(), Limit: round(b.Limit, 4), WindowS: seconds(b.Window), Confidence: round(b.Confidence, 4)}
	}
	return r, nil
}

// belief is what the law of the first line believes; unknown if it has no belief.
func (e *engine) belief() control.Belief {
	if g, ok := e.lines[0].pacer.(*governed); ok {
		return g.Belief()
	}
	return control.Belief{}
}

var errNoScenario = errors.New("sim: no scenario")
