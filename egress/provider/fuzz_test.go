package provider_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/quota"
)

func FuzzCall(f *testing.F) {
	golden.Seeds(f)
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a\u00e9\ud83d\ude00"},{"type":"image_url","image_url":{"url":"x","detail":"low"}}]}],"n":2,"max_tokens":5,"stream":true}`,
		`{"model":"m","system":"s","messages":[{"content":[{"type":"document","source":{"type":"content","content":[{"text":"t"}]}}]}]}`,
		`{"contents":{"parts":[{"inlineData":{"mimeType":"image/png","data":"x"}}]},"generationConfig":{"maxOutputTokens":1e3}}`,
		`{"input":[[1,2],[3]],"tools":[{}]}`, "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n", "{", `{"a":"\u12"}`, "",
	} {
		f.Add(uint8(0), "/v1/chat/completions", []byte(body))
		f.Add(uint8(2), "/v1/messages", []byte(body))
		f.Add(uint8(3), "/v1beta/models/m:generateContent", []byte(body))
	}
	f.Fuzz(func(t *testing.T, api uint8, path string, body []byte) {
		all := provider.APIs()
		d := builtin(t, all[int(api)%len(all)])
		call, err := d.Call("POST", path, body)
		if err != nil {
			if whole := json.Valid(body) && strings.HasPrefix(strings.TrimSpace(string(body)), "{"); whole && !strings.Contains(err.Error(), "two models") {
				t.Fatalf("a JSON object is refused: %v", err)
			}
			return
		}
		if call.MaxTokens < 0 || call.MaxTokens > quota.MaxTokens || call.Choices < 1 || call.Extra < 0 || call.Texts == nil || len(call.Model) > max(256, len(path)) {
			t.Fatalf("%+v", call)
		}
		n := 0
		for text := range call.Texts {
			n += len(text)
			if json.Valid(body) && utf8.Valid(body) && !utf8.ValidString(text) {
				t.Fatalf("%q is not text", text)
			}
		}
		if n > 3*len(body) {
			t.Fatalf("%d bytes of text in a body of %d", n, len(body))
		}
	})
}

// Whatever is text in a chat message must come out, as encoding/json reads it.
func FuzzText(f *testing.F) {
	golden.Seeds(f)
	f.Add(`a"\`+"\n\t\u2028<é😀\x00", "m")
	f.Fuzz(func(t *testing.T, text, model string) {
		body, err := json.Marshal(map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": text}}})
		if err != nil {
			t.Skip()
		}
		var back struct {
			Model    string
			Messages []struct{ Content string }
		}
		if err := json.Unmarshal(body, &back); err != nil {
			t.Fatal(err)
		}
		call, err := builtin(t, provider.OpenAI).Call("POST", "/v1/chat/completions", body)
		if err != nil {
			t.Fatal(err)
		}
		if want := back.Model[:min(len(back.Model), 256)]; call.Model != want {
			t.Fatalf("the model is %q, want %q", call.Model, want)
		}
		want := back.Messages[0].Content
		if strings.HasPrefix(want, "data:") {
			return
		}
		got := ""
		for text := range call.Texts {
			got += text
		}
		if got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}
