package estimate

import "github.com/headway-go/headway/quota"

// Learned is what an [Estimator] learned of one model from the provider's figures.
type Learned struct {
	// Input is the provider's count of a prompt by ours, from [MinRatio] to [MaxRatio].
	Input float64 `json:"input"`
	// Output is the mean of an answer, in tokens.
	Output float64 `json:"output"`
	// Inputs and Outputs are how many calls taught them, as far as that still counts.
	Inputs  int `json:"inputs"`
	Outputs int `json:"outputs"`
}

// Learned gives what was learned, by model. How a model's prompts weigh is left
// out: the next prompts teach it again.
func (e *Estimator) Learned() map[string]Learned {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make(map[string]Learned, len(e.models))
	for name, m := range e.models {
		all[name] = Learned{Input: m.ratio, Output: m.output, Inputs: m.inputs, Outputs: m.outputs}
	}
	return all
}

// Restore takes over what another estimator had learned. Models that this one has
// learned of itself are left alone, and so is what is out of its bounds.
func (e *Estimator) Restore(all map[string]Learned) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, l := range all {
		if len(name) > MaxModel || len(e.models) >= MaxModels || e.models[name] != nil || !l.valid() {
			continue
		}
		m := e.meet(name)
		m.ratio, m.output = l.Input, l.Output
		m.shownRatio, m.shownOutput = m.ratio, m.output
		m.inputs, m.outputs = min(l.Inputs, memory-1), min(l.Outputs, memory-1)
	}
}

func (l Learned) valid() bool {
	return l.Input >= MinRatio && l.Input <= MaxRatio && l.Output >= 0 && l.Output <= quota.MaxTokens &&
		l.Inputs >= 0 && l.Outputs >= 0
}
