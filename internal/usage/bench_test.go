package usage_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/usage"
)

// stream is a chat of some length, as it comes from OpenAI.
func stream(member string) []byte {
	var b bytes.Buffer
	for i := range 500 {
		fmt.Fprintf(&b, `data: {"id":"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG","object":"chat.completion.chunk","created":1741570283,"model":"gpt-5-mini-2025-08-07","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" word%d"},"logprobs":null,"finish_reason":null}]%s,"obfuscation":"aBcDeFgH"}

`, i, member)
	}
	b.WriteString("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10}}\n\ndata: [DONE]\n\n")
	return b.Bytes()
}

// document is a whole answer with much text.
func document() []byte {
	return []byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat(`The cat sat on the mat.\n`, 4000) +
		`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":10}}`)
}

func BenchmarkScanner(b *testing.B) {
	vectors := []byte(`{"data":[` + strings.Repeat(`{"object":"embedding","embedding":[`+strings.Repeat("-0.0069292834,", 1535)+`0],"index":0},`, 4) + `{}],"usage":{"prompt_tokens":8}}`)
	for _, c := range []struct {
		name  string
		shape usage.Shape
		kind  string
		body  []byte
	}{
		{"chat_stream", usage.OpenAIChat, events, stream("")},
		{"chat_body", usage.OpenAIChat, object, document()},
		{"embeddings", usage.OpenAIEmbeddings, object, vectors},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				s := usage.NewScanner(c.shape, c.kind)
				for part := c.body; len(part) > 0; {
					n := min(len(part), 4096)
					_, _ = s.Write(part[:n]) // never fails
					part = part[n:]
				}
				if !s.Report().Reported {
					b.Fatal("no usage")
				}
			}
		})
	}
}

// BenchmarkFloor is what it costs only to look at each byte of the stream of
// BenchmarkScanner, one by one and as fast as the machine can.
func BenchmarkFloor(b *testing.B) {
	body := stream("")
	b.Run("bytewise", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			depth := 0
			for _, c := range body {
				switch c {
				case '{':
					depth++
				case '}':
					depth--
				}
			}
			if depth != 0 {
				b.Fatal(depth)
			}
		}
	})
	b.Run("bytes_Count", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if bytes.Count(body, []byte{'\n'}) == 0 {
				b.Fatal("no lines")
			}
		}
	})
}

func BenchmarkStripper(b *testing.B) {
	for name, member := range map[string]string{"nothing_to_strip": "", "null_in_each": `,"usage":null`} {
		b.Run(name, func(b *testing.B) {
			body := stream(member)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				s := usage.NewStripper(io.Discard)
				for part := body; len(part) > 0; {
					n := min(len(part), 4096)
					_, _ = s.Write(part[:n]) // io.Discard never fails
					part = part[n:]
				}
			}
		})
	}
}

func BenchmarkInject(b *testing.B) {
	for _, size := range []int{1e3, 1e6} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			body := []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat(`words and \"more\" `, size/17) + `"}]}`)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, changed := usage.Inject(body); !changed {
					b.Fatal("unchanged")
				}
			}
		})
	}
}
