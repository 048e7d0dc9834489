package estimate

import (
	"iter"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"

	"github.com/headway-go/headway/quota"
)

const (
	// readBytes is how much of a prompt the tokenizer reads. It takes 60 ns a
	// byte of English, 200 ns of base64, and of some white space the square, 0.6
	// ms for these: more would dominate what a proxy adds to a call, and gains
	// little on the weight.
	readBytes = 1024
	// minRead is how little of that is no longer worth sharing.
	minRead = 128
	// weighedBytes is how much of a prompt is weighed byte by byte. Of what
	// follows it is one block in blockStep.
	weighedBytes = 256 << 10
	blockBytes   = 4 << 10
	blockStep    = 8
	// partTokens are what an API puts around each part of a prompt, and
	// callTokens around the whole: three and a role, and three that begin the
	// answer, as OpenAI's cookbook counts.
	partTokens = 4
	callTokens = 3
	// maxCorrection is how far what was read corrects the weight of the rest,
	// either way.
	maxCorrection = 2
)

// count is one prompt's.
type count struct {
	codec tokenizer.Codec
	parts int64
	bytes int64 // so far
	// What was read, in tokens and, as its weight, in hundredths.
	read, readWeight int64
	left             int // bytes to read yet
	// What was weighed of the first weighedBytes, and of what follows: the weight,
	// the bytes that have it, and all bytes.
	weight, farWeight, farWeighed, far int64
}

// countOf takes a whole prompt. Without a codec it is only weighed.
func countOf(codec tokenizer.Codec, parts iter.Seq[string]) *count {
	c := &count{codec: codec}
	if codec != nil {
		c.left = readBytes
	}
	for part := range parts {
		c.add(part)
	}
	return c
}

// weighed is how many tokens the prompt is by its weight alone.
func (c *count) weighed() float64 {
	sum := float64(c.weight)
	if c.farWeighed > 0 {
		sum += float64(c.farWeight) * float64(c.far) / float64(c.farWeighed)
	}
	return sum / 100
}

// text is about how many tokens the prompt is: those that were read, and the
// weight of the rest, corrected by what was read or, when nothing was, by the
// correction that is given.
func (c *count) text(correction float64) float64 {
	if c.readWeight > 0 {
		correction = min(max(float64(c.read)*100/float64(c.readWeight), 1.0/maxCorrection), maxCorrection)
	}
	return float64(c.read) + max(c.weighed()-float64(c.readWeight)/100, 0)*correction
}

// framed adds to a prompt's text what an API puts around it.
func (c *count) framed(text float64) int64 {
	if c.parts == 0 {
		return 0
	}
	return int64(min(text+float64(c.parts*partTokens+callTokens)+0.5, quota.MaxTokens))
}

// add takes the next part.
func (c *count) add(part string) {
	c.parts++
	switch {
	case len(part) <= c.left:
		c.readTokens(part)
	case c.left >= minRead:
		// How it begins and how it goes on, and leave as much to what follows,
		// which may be of another kind.
		n := c.left / 4
		c.readTokens(window(part, 0, n))
		c.readTokens(window(part, max(n, len(part)/2), n))
	}
	if near := weighedBytes - c.bytes; near > 0 {
		n := min(int(near), len(part))
		c.weight += weigh(part[:n])
		c.bytes += int64(n)
		part = part[n:]
	}
	for len(part) > 0 {
		n := min(blockBytes-int(c.bytes%blockBytes), len(part))
		if c.bytes/blockBytes%blockStep == 0 {
			c.farWeight += weigh(part[:n])
			c.farWeighed += int64(n)
		}
		c.far += int64(n)
		c.bytes += int64(n)
		part = part[n:]
	}
}

// readTokens has the tokenizer read a text.
func (c *count) readTokens(text string) {
	n, err := c.codec.Count(text)
	if err != nil {
		return
	}
	c.left -= len(text)
	c.read += int64(n)
	c.readWeight += weigh(text)
}

// window is part of a text, of whole characters and at most so many bytes.
func window(text string, from, length int) string {
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	to := min(from+length, len(text))
	for to > from && to < len(text) && !utf8.RuneStart(text[to]) {
		to--
	}
	return text[from:to]
}

// vocabulary gives a tokenizer, which the first call loads; nil if it is not one
// that is compiled in.
type vocabulary func() tokenizer.Codec

var (
	o200k  = vocabularyOf(tokenizer.O200kBase)
	cl100k = vocabularyOf(tokenizer.Cl100kBase)
)

func vocabularyOf(e tokenizer.Encoding) vocabulary {
	return sync.OnceValue(func() tokenizer.Codec {
		codec, err := tokenizer.Get(e)
		if err != nil {
			return nil
		}
		_, _ = codec.Count("The first text takes longer than those after it.")
		return codec
	})
}

// olderModels are the beginnings of OpenAI's names that use cl100k_base, where no
// longer one of newerModels fits.
var (
	olderModels = []string{"gpt-4", "gpt-3.5", "gpt-35", "text-embedding-", "ft:gpt-4", "ft:gpt-3.5"}
	newerModels = []string{"gpt-4o", "gpt-4.1", "gpt-4.5", "ft:gpt-4o", "ft:gpt-4.1"}
)

// of gives the vocabulary of a model. That of the newer OpenAI models stands in
// for all that are not known.
func of(model string) vocabulary {
	model = strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	if begins(model, olderModels) && !begins(model, newerModels) {
		return cl100k
	}
	return o200k
}

func begins(model string, names []string) bool {
	for _, name := range names {
		if strings.HasPrefix(model, name) {
			return true
		}
	}
	return false
}

// Load loads the vocabularies of the models, so that the first call does not wait
// for them; without models, that of all but OpenAI's older ones.
func Load(models ...string) {
	if len(models) == 0 {
		o200k()
	}
	for _, m := range models {
		of(m)()
	}
}
