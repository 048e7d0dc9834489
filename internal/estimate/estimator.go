// Package estimate says, before a call to a language model, about how many
// tokens it will use: what a budget reserves until the provider's own figures
// are there.
//
// [Estimator.Raw] counts the prompt. The real tokenizer reads a kilobyte of
// it; all of it is weighed by the kinds of bytes that follow each other,
// with a table fitted to that tokenizer, so that base64, CJK and code are not
// mistaken for English, and the tokens of what was read correct the weight of
// the rest. Once that was done for some prompts of a model, the tokenizer reads
// one in 64, and the others are weighed, with the correction that those taught;
// when one that is read is off by a quarter, it reads the next ones again.
//
// [Estimator.Scale] applies what [Estimator.Learn] was taught by the model's
// calls: models of other makers count otherwise, and every API adds something of
// its own. [Estimator.Input] is both in one, for callers that do not learn.
// [Estimator.Output] expects what the model gave on average.
//
// Do not use it to bill or to cut a prompt to a model's context: it is within
// some percent of the truth, not the truth. It knows nothing of images and sound;
// the caller adds those.
//
// An Estimator is safe for concurrent use. Nothing reads a clock. The first
// count with a vocabulary loads it, which takes some 30 ms and 6 MB once in a
// process; [Load] does that ahead. Work is bounded: a count takes about 7 µs for
// 100 bytes of English, 70 µs for a kilobyte, 0.2 ms for 100 kB and 1.5 ms for
// 10 MB where the tokenizer reads, and a microsecond a kilobyte where it does not.
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
	// off by more than surprise, either way, it begins again.
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
		return // made-up names fill no memory
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

// The kinds of bytes.
const (
	blank = iota
	newline
	lower
	upper
	digit
	sign  // other ASCII
	lead2 // first of a character of two bytes
	lead3
	lead4
	trail // not first
	kinds
)

var kindOf = func() (table [256]uint8) {
	for i := range table {
		switch c := byte(i); {
		case c == ' ' || c == '\t':
			table[i] = blank
		case c == '\n' || c == '\r':
			table[i] = newline
		case 'a' <= c && c <= 'z':
			table[i] = lower
		case 'A' <= c && c <= 'Z':
			table[i] = upper
		case '0' <= c && c <= '9':
			table[i] = digit
		case c < 0x80:
			table[i] = sign
		case c < 0xC0:
			table[i] = trail
		case c < 0xE0:
			table[i] = lead2
		case c < 0xF0:
			table[i] = lead3
		default:
			table[i] = lead4
		}
	}
	return table
}()

// weights are how many hundredths of a token a byte adds, by the kind of the byte
// before it and its own. They are a least-squares fit, none below 3, to what
// o200k_base makes of prose in a dozen languages and scripts, of code in several
// languages, JSON, YAML, HTML, base64, hexadecimal digits and random signs: there
// the sum is mostly within 5 % of the tokens, and within 35 % in all of them.
var weights = [kinds][kinds]uint8{
	blank:   {4, 51, 38, 34, 171, 120, 3, 3, 60, 30},
	newline: {54, 20, 16, 81, 20, 85, 92, 246, 34, 30},
	lower:   {46, 250, 4, 100, 68, 105, 3, 179, 30, 30},
	upper:   {37, 97, 14, 3, 213, 170, 250, 30, 30, 30},
	digit:   {3, 167, 128, 250, 27, 106, 30, 30, 30, 30},
	sign:    {3, 3, 58, 18, 133, 3, 50, 112, 47, 30},
	lead2:   {30, 30, 30, 30, 30, 30, 30, 30, 30, 3},
	lead3:   {30, 30, 30, 30, 30, 30, 30, 30, 30, 3},
	lead4:   {30, 30, 30, 30, 30, 30, 30, 30, 30, 126},
	trail:   {3, 250, 84, 36, 30, 3, 41, 60, 75, 3},
}

// weigh gives about how many hundredths of a token a text is.
func weigh(text string) int64 {
	var sum int64
	last := newline
	for i := range len(text) {
		kind := int(kindOf[text[i]])
		sum += int64(weights[last][kind])
		last = kind
	}
	return sum
}
