package sim

import "github.com/headway-go/headway/internal/sim/scenario"

// Compare runs every scenario under every law with one seed: the results are in
// the order of the scenarios, and within a scenario in that of the laws. The
// oracle is asked once a scenario. The first error ends it.
func Compare(scenarios []*scenario.Scenario, laws []string, seed uint64) ([]Result, error) {
	results := make([]Result, 0, len(scenarios)*len(laws))
	for _, s := range scenarios {
		p, err := NewPlayer(s, seed)
		if err != nil {
			return nil, err
		}
		for _, law := range laws {
			r, err := p.Run(law)
			if err != nil {
				return nil, err
			}
			results = append(results, r)
		}
	}
	return results, nil
}
