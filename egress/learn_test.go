package egress_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/estimate"
)

// tells is a provider that tells the same figures of every call.
func tells(input, output int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, input, output, input+output)
	})
}

// repeat sends a body some times and gives the log of the last.
func (x *rig) repeat(t *testing.T, times int, path, body string) egress.CallLog {
	t.Helper()
	for range times {
		if a, text, err := x.ask(t, http.MethodPost, path, body); err != nil || a.StatusCode != http.StatusOK {
			t.Fatal(a, text, err)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.calls[len(x.calls)-1]
}

const (
	chatPath  = "/p/v1/chat/completions"
	wordsOnly = `{"model":"m","messages":[{"role":"user","content":"What is this?"}]}`
	withImage = `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},` +
		`{"type":"image_url","image_url":{"url":"https://example.org/a.png","detail":"low"}}]}]}`
)

func TestImagesTeachNothingOfTheText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A hundred tokens for the image and some for four words of text.
		transport, _ := serveOn(t, tells(130, 5))
		x := newRig(t, provider.OpenAI, transport, nil)
		first := x.repeat(t, 1, chatPath, wordsOnly).Estimated.Input
		x = newRig(t, provider.OpenAI, transport, nil)
		image := x.repeat(t, 20, chatPath, withImage)
		if image.Estimated.Input != first+85 {
			t.Errorf("with an image %d tokens are expected, want %d more than %d", image.Estimated.Input, 85, first)
		}
		if got := x.repeat(t, 1, chatPath, wordsOnly).Estimated.Input; got != first {
			t.Errorf("after images %d tokens are expected of the text, want %d as before", got, first)
		}
		if got := x.repeat(t, 60, chatPath, wordsOnly).Estimated.Input; got <= 2*first {
			t.Errorf("after text %d tokens are expected of the text, want more than %d: the provider said %d", got, 2*first, 130)
		}
		x.settled(t)
	})
}

func TestOutputIsExpectedForEachChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const choices = `,"n":3,"messages":[]}`
		transport, _ := serveOn(t, tells(10, 300))
		x := newRig(t, provider.OpenAI, transport, nil)
		if got := x.repeat(t, 1, chatPath, `{"model":"m"`+choices).Estimated.Output; got != 3*estimate.DefaultOutput {
			t.Errorf("at first %d are expected of three answers, want %d", got, 3*estimate.DefaultOutput)
		}
		if got := x.repeat(t, 200, chatPath, `{"model":"m"`+choices).Estimated.Output; got != 300 {
			t.Errorf("at last %d are expected of three answers, want 300", got)
		}
		if got := x.repeat(t, 1, chatPath, `{"model":"m","messages":[]}`).Estimated.Output; got != 100 {
			t.Errorf("%d are expected of one answer, want 100", got)
		}
		if got := x.repeat(t, 1, chatPath, `{"model":"m","max_tokens":20`+choices).Estimated.Output; got != 60 {
			t.Errorf("%d are expected of three answers of 20 at most, want 60", got)
		}
		x.settled(t)
	})
}

func TestEmbeddingsHaveNoOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, _ := serveOn(t, tells(2, 0))
		x := newRig(t, provider.OpenAI, transport, nil)
		c := x.repeat(t, 1, "/p/v1/embeddings", `{"model":"m","input":"some words"}`)
		if c.Estimated.Output != 0 || c.Estimated.Input == 0 || c.Used.Input != 2 {
			t.Errorf("expected are %+v, used %+v", c.Estimated, c.Used)
		}
		if got := x.repeat(t, 1, chatPath, `{"model":"other","messages":[]}`).Estimated.Output; got != estimate.DefaultOutput {
			t.Errorf("of a chat %d are expected, want %d", got, estimate.DefaultOutput)
		}
		x.settled(t)
	})
}
