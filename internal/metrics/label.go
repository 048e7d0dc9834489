package metrics

import (
	"strings"
	"sync"
)

// The bounds of labels from outside, for each provider.
const (
	MaxModels  = 100
	MaxTenants = 100
	// Others stands for what came after the bound was reached.
	Others = "other"
)

// bound lets the first few values of a label through.
type bound struct {
	limit int

	mu     sync.RWMutex
	known  map[string]struct{}
	folded uint64
}

func newBound(limit int) *bound { return &bound{limit: limit, known: map[string]struct{}{}} }

// label is the value itself while there is room, or Others.
func (b *bound) label(v string) string {
	v = strings.ToValidUTF8(v, "\uFFFD") // any other is a panic of the client library
	b.mu.RLock()
	_, ok := b.known[v]
	full := len(b.known) >= b.limit
	b.mu.RUnlock()
	if ok {
		return v
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.known[v]; ok {
		return v
	}
	if full || len(b.known) >= b.limit {
		b.folded++
		return Others
	}
	b.known[v] = struct{}{}
	return v
}

// lost is how often a value got no label of its own.
func (b *bound) lost() uint64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.folded
}

// perProvider bounds a label for each provider apart. There are as many as the
// configuration names.
type perProvider struct {
	limit int

	mu sync.Mutex
	of map[string]*bound
}

func newPerProvider(limit int) *perProvider {
	return &perProvider{limit: limit, of: map[string]*bound{}}
}

func (p *perProvider) label(provider, v string) string {
	p.mu.Lock()
	b := p.of[provider]
	if b == nil {
		b = newBound(p.limit)
		p.of[provider] = b
	}
	p.mu.Unlock()
	return b.label(v)
}

func (p *perProvider) lost() (n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.of {
		n += b.lost()
	}
	return n
}
