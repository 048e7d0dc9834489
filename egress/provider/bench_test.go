package provider_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headway-go/headway/egress/provider"
)

func chatBody(words int) []byte {
	return fmt.Appendf(nil, `{"model":"gpt-4o","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"%s"}],"max_tokens":256,"stream":true,"temperature":0.7}`,
		strings.Repeat("word ", words))
}

func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name string
		api  provider.API
		path string
		body []byte
	}{
		{"small", provider.OpenAI, "/v1/chat/completions", chatBody(20)},
		{"32KiB", provider.OpenAI, "/v1/chat/completions", chatBody(6500)},
		{"messages", provider.Anthropic, "/v1/messages", chatBody(20)},
		{"gemini", provider.Gemini, "/v1beta/models/gemini-2.5-flash:generateContent", []byte(`{"contents":[{"role":"user","parts":[{"text":"Hello there"}]}],"generationConfig":{"maxOutputTokens":64}}`)},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := builtin(b, c.api)
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Call("POST", c.path, c.body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTexts(b *testing.B) {
	body := chatBody(20)
	call, err := builtin(b, provider.OpenAI).Call("POST", "/v1/chat/completions", body)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for text := range call.Texts {
			n += len(text)
		}
		if n == 0 {
			b.Fatal("no text")
		}
	}
}

func BenchmarkForward(b *testing.B) {
	d := builtin(b, provider.OpenAI)
	src := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json"}, "User-Agent": {"OpenAI/Go"}, "Authorization": {"Bearer k"},
		"X-Stainless-Lang": {"go"}, "X-Stainless-Os": {"Linux"}, "X-Stainless-Arch": {"x64"}, "X-Stainless-Runtime": {"go"},
		"X-Stainless-Retry-Count": {"0"}, "X-Stainless-Package-Version": {"3"}, "X-Stainless-Runtime-Version": {"1"}, "Content-Length": {"9"},
	}
	dst := make(http.Header, len(src))
	b.ReportAllocs()
	for b.Loop() {
		clear(dst)
		d.Forward(dst, src)
	}
}

func BenchmarkRefuse(b *testing.B) {
	d := builtin(b, provider.OpenAI)
	w := discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		d.Refuse(w, provider.Refusal{Status: 429, Code: "RATE_THROTTLED", Message: "No room.", RetryIn: 1, Retry: true})
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
