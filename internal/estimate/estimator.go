package estimate

import (
	"iter"
	"math"
	"sync"

	"github.com/headway-go/headway/quota"
)

const (
	// DefaultOutput is the output that is expected of a model that nothing is
	// known of, in tokens.
	DefaultOutput = 256
	// MaxModels is how many models an [Estimator] remembers; the one that was
	// used least recently makes place.
	MaxModels = 1024
	// MaxModel is the longest name of a model that it remembers, in bytes.
	MaxModel = 256
	// MinRatio and MaxRatio bound what is learned of a model's input: by the
	// provider's figures, and of the weight of its prompts.
	MinRatio, MaxRatio = 0.25, 4.0
	// memory is over how many calls is averaged.
	memory = 16
	// The tokenizer takes longer than all else that a proxy does for a call. So it
	// reads the first readFirst prompts of a model, which teach how its prompts
	// weigh, and then one in readEvery to see whether they still do. When one is
	// off by more than surprise, either way, it begins anew.
	readFirst, readEvery = memory, 64
	surprise             = 1.25
	// minTaught is the shortest prompt that teaches this, in tokens: the
	// weight of a few words says little.
	minTaught = 32
)

// Estimator estimates calls and learns from them, by model. Its methods are safe
// for concurrent use.
type Estimator struct {
	mu     sync.Mutex
	models map[string]*model
	clock  uint64 // counts uses
}

// model is what was learned of one.
type model struct {
	ratio, output   float64
	inputs, outputs int // how many calls taught it, up to memory
	used            uint64
	// shownRatio and shownOutput are what Learn last said had moved.
	shownRatio, shownOutput float64
	// correction is what makes of a prompt's weight what the tokenizer would have
	// counted: the mean over what was read since it began, or over the memory.
	correction float64
	corrected  int // how many prompts taught it after the first, up to memory
	read       int // how many were read, up to readFirst
	weighed    int // how many since then were not
}

// New makes an estimator that has learned nothing. It loads nothing; see [Load].
func New() *Estimator { return &Estimator{models: make(map[string]*model)} }

// Input estimates the input tokens of a prompt, from 0 to [quota.MaxTokens]: it
// is [Estimator.Scale] of [Estimator.Raw]. A caller that learns should call those
// two, because [Estimator.Learn] wants what Raw gave.
func (e *Estimator) Input(model string, parts iter.Seq[string]) int64 {
	return e.Scale(model, e.Raw(model, parts))
}

// Raw counts a prompt without what was learned of the model's ratio, from 0 to
// [quota.MaxTokens]. The parts are its messages and what else is text, each as
// the model will read it; a few tokens are added for each. Without parts it is 0.
//
// The tokenizer reads the prompts of models that [Estimator.Learn] was given
// nothing of, the first 16 of others, and then one in 64; the rest are weighed,
// corrected by what those before them taught. Either way it is the same
// quantity, as Learn wants it.
func (e *Estimator) Raw(model string, parts iter.Seq[string]) int64 {
	if parts == nil {
		return 0
	}
	correction, trusted := e.trust(model)
	if trusted {
		c := countOf(nil, parts)
		return c.framed(c.text(correction))
	}
	c := countOf(of(model)(), parts)
	text := c.text(1)
	e.correct(model, text, c.weighed())
	return c.framed(text)
}

// trust gives the correction for a prompt that need not be read; false for one
// that has to be.
func (e *Estimator) trust(model string) (correction float64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.use(model)
	if m == nil || m.read < readFirst {
		return 0, false
	}
	if m.weighed++; m.weighed >= readEvery {
		m.weighed = 0
		return 0, false
	}
	return m.correction, true
}

// correct takes a prompt that was read: its tokens, and what it weighs.
func (e *Estimator) correct(model string, text, weighed float64) {
	if weighed < minTaught {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.use(model)
	if m == nil {
		return // whoever makes up names fills no memory
	}
	seen := min(max(text/weighed, MinRatio), MaxRatio)
	off := seen / m.correction
	surprised := m.read == readFirst && (off > surprise || off < 1/surprise)
	if m.read == 0 || surprised {
		m.correction, m.corrected, m.read = seen, 0, 1
		return
	}
	m.correction = learn(m.correction, seen, &m.corrected)
	m.read = min(m.read+1, readFirst)
}

// Scale applies to a raw count what was learned of the model.
func (e *Estimator) Scale(model string, raw int64) int64 {
	if raw <= 0 {
		return 0
	}
	ratio := 1.0
	e.mu.Lock()
	if m := e.use(model); m != nil {
		ratio = m.ratio
	}
	e.mu.Unlock()
	return int64(min(max(math.Round(float64(raw)*ratio), 1), quota.MaxTokens))
}

// Output gives the output that is expected, in tokens: what the model gave on
// average, or [DefaultOutput]; at most maxTokens, unless that is 0 or less.
func (e *Estimator) Output(model string, maxTokens int64) int64 {
	expected := float64(DefaultOutput)
	e.mu.Lock()
	if m := e.use(model); m != nil {
		expected = m.output
	}
	e.mu.Unlock()
	n := int64(math.Round(expected))
	if maxTokens > 0 {
		n = min(n, maxTokens)
	}
	return n
}

// Learn takes the provider's figures of one call. Estimated.Input is what
// [Estimator.Raw] gave for it, without [Estimator.Scale] and without images or
// sound; 0, as for a call that had those, teaches nothing of the input. The rest
// of estimated is not used. Figures that are not valid are ignored. moved is true
// when estimates of the model differ by a quarter from what they were when it was
// true last, or at first.
func (e *Estimator) Learn(model string, estimated, actual quota.Usage) (moved bool) {
	if len(model) > MaxModel || actual.Validate() != nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.use(model)
	if m == nil {
		m = e.meet(model)
	}
	m.output = learn(m.output, float64(actual.Output), &m.outputs)
	if estimated.Input > 0 && actual.Input > 0 {
		ratio := float64(actual.Input) / float64(estimated.Input)
		m.ratio = learn(m.ratio, min(max(ratio, MinRatio), MaxRatio), &m.inputs)
	}
	if !far(m.ratio, m.shownRatio, 0) && !far(m.output, m.shownOutput, 1) {
		return false
	}
	m.shownRatio, m.shownOutput = m.ratio, m.output
	return true
}

// far reports whether two figures differ by more than a quarter of the smaller one
// and more than a minimum.
func far(a, b, minimum float64) bool { return max(a, b)-min(a, b) > max(min(a, b)/4, minimum) }

// learn moves an average towards what was seen: at first as the mean of what was
// assumed and all that was seen, then over the memory.
func learn(average, seen float64, times *int) float64 {
	*times = min(*times+1, memory-1)
	return average + (seen-average)/float64(*times+1)
}

// use gives a model that is known; nil for another. It needs the lock.
func (e *Estimator) use(name string) *model {
	m := e.models[name]
	if m != nil {
		e.clock++
		m.used = e.clock
	}
	return m
}

// meet makes place for a new model. It needs the lock.
func (e *Estimator) meet(name string) *model {
	if len(e.models) >= MaxModels {
		oldest, since := "", uint64(math.MaxUint64)
		for name, m := range e.models {
			if m.used < since {
				oldest, since = name, m.used
			}
		}
		delete(e.models, oldest)
	}
	e.clock++
	m := &model{ratio: 1, output: DefaultOutput, used: e.clock, shownRatio: 1, shownOutput: DefaultOutput}
	e.models[name] = m
	return m
}
