package llm

import (
	"fmt"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim/serve"
)

const (
	// pieceTokens is how much text a chunk of a stream has, at most.
	pieceTokens = 4
	// cacheFrom is the shortest prompt that a cache holds, cacheStep what its
	// part in the cache is a multiple of.
	cacheFrom = 1024
	cacheStep = 128
)

// answer is what a call is answered, computed from the seed and the call alone,
// apart from the time.
type answer struct {
	call
	id       string // 16 hexadecimal digits
	cached   int    // tokens of the prompt that were read from a cache
	written  int    // tokens of the prompt that were written to one
	thoughts int    // tokens
	output   int    // tokens of text
	cut      bool   // the caller's bound ended it
	text     string
	at       time.Time
}

// answer computes the answer to a call.
func (a *API) answer(c call, at time.Time) *answer {
	draw := func(salt, n uint64) int { return int(mix(mix(a.seed^c.digest)+salt) % n) }
	out := &answer{call: c, id: fmt.Sprintf("%016x", mix(a.seed^c.digest)), at: at}
	out.output = (a.mean+1)/2 + draw(1, uint64(a.mean))
	if strings.Contains(c.model, "thinking") {
		out.thoughts = (out.output + 1) / 2
	}
	if c.most > 0 && out.thoughts+out.output > c.most {
		out.cut = true
		out.thoughts = min(out.thoughts, c.most/2)
		out.output = c.most - out.thoughts
	}
	if held := c.tokens / 2 / cacheStep * cacheStep; c.tokens >= cacheFrom {
		if draw(2, 2) == 0 {
			out.cached = held
		} else {
			out.written = held
		}
	}
	var b strings.Builder
	b.Grow(out.output * bytesPerToken)
	for i := range out.output {
		b.WriteString(lexicon[draw(16+uint64(i), uint64(len(lexicon)))])
		if i == out.output-1 && !out.cut {
			b.WriteByte('.')
		} else {
			b.WriteByte(' ')
		}
	}
	out.text = b.String()
	return out
}

// generated is what the provider counts as output.
func (a *answer) generated() int { return a.thoughts + a.output }

// asked is what the prompt used.
func (a *answer) asked() serve.Usage {
	return serve.Usage{Input: int64(a.tokens), Cached: int64(a.cached)}
}

// lexicon has words of three letters: with the space after it each is a token.
var lexicon = strings.Fields(`and any are ask axe bay bed bit box bus but can cap car cow cut day did dim dry
	due ear eat end eve far few fit fly fog for fox gap get got had has hat her hid him his hop how ice ink its
	jam jar joy key kit law lay led let lid lit log lot low map may men met mix mud new nor not now oak odd off
	old one our out own pad pay pen pit ran raw red rid rim row run sad sat saw sea see set she shy sit six sky
	sun tea ten the tie tin too top try two use van vow war was way wet who why win yes yet you`)

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
