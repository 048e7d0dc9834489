package estimate

import (
	"strings"
	"sync"

	"github.com/tiktoken-go/tokenizer"
)

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
