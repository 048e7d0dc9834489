package estimate_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tiktoken-go/tokenizer"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/estimate"
)

// noise is bytes without any order.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// texts are of about 40 kB each.
var texts = map[string]string{
	"English": strings.Repeat("Yesterday I visited the old library with a friend; we borrowed three books about history, "+
		"drank coffee in the park and talked about our new project until it began to rain.\n", 250),
	"Chinese":  strings.Repeat("昨天下午三点，我和朋友一起去北京图书馆借了几本关于历史的书，回来的路上下起了大雨。", 350),
	"Japanese": strings.Repeat("昨日の午後、友人と一緒に図書館へ行きました。帰り道に公園でコーヒーを飲みながら話しました。", 300),
	"Korean":   strings.Repeat("어제 오후에 친구와 함께 도서관에 갔습니다. 돌아오는 길에 공원에서 커피를 마셨습니다. ", 350),
	"Russian":  strings.Repeat("Вчера днём я пошёл с другом в библиотеку, и мы говорили о новом проекте. ", 300),
	"Hindi":    strings.Repeat("कल दोपहर मैं अपने मित्र के साथ पुस्तकालय गया और नई परियोजना के बारे में बात की। ", 200),
	"Go":       strings.Repeat("func (s *Server) Close(ctx context.Context) error {\n\tif err := s.http.Shutdown(ctx); err != nil {\n\t\treturn fmt.Errorf(\"close: %w\", err)\n\t}\n\treturn nil\n}\n\n", 250),
	"JSON":     strings.Repeat(`{"id": 10493, "name": "Zurich Marathon", "distance_m": 42195.0, "tags": ["road", "spring"], "athlete": {"id": 77, "active": true}},`+"\n", 300),
	"base64":   base64.StdEncoding.EncodeToString(noise(30_000)),
	"hex":      hex.EncodeToString(noise(20_000)),
}

func reference(t *testing.T, text string) int64 {
	t.Helper()
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	n, err := codec.Count(text)
	if err != nil {
		t.Fatal(err)
	}
	return int64(n)
}

// near fails if a count is not within some percent of the real one.
func near(t *testing.T, what string, got, real, percent int64) {
	t.Helper()
	t.Logf("%s: %d of %d tokens, %+.1f %%", what, got, real, 100*float64(got-real)/float64(real))
	if got < real*(100-percent)/100 || got > real*(100+percent)/100 {
		t.Errorf("%s: %d tokens, want %d within %d %%", what, got, real, percent)
	}
}

func count(parts ...string) int64 {
	return estimate.New().Raw("gpt-5", slices.Values(parts))
}

func TestShortTextIsExact(t *testing.T) {
	for name, text := range texts {
		text = text[:strings.LastIndexByte(text[:1020], text[0])] // a boundary of characters
		if got, want := count(text), reference(t, text)+7; got != want {
			t.Errorf("%s: %d tokens, want %d", name, got, want)
		}
	}
	if got, want := count("Hello", " world", ""), int64(2+3*4+3); got != want {
		t.Errorf("three parts: %d tokens, want %d", got, want)
	}
}

func TestLongTextIsNear(t *testing.T) {
	for name, text := range texts {
		near(t, name, count(text), reference(t, text), 15)
	}
}

func TestMixedTextIsNear(t *testing.T) {
	prompt := texts["English"][:2000]
	for name, text := range texts {
		near(t, "English, then "+name, count(prompt, text), reference(t, prompt)+reference(t, text), 35)
	}
	for _, image := range []string{"base64", "Go"} {
		text := "Describe this: " + texts[image] + texts["English"]
		near(t, image+" within English", count(text), reference(t, text), 15)
	}
}

func TestVeryLongTextIsNear(t *testing.T) {
	text := strings.Repeat(texts["English"]+texts["base64"], 20)
	real := reference(t, texts["English"])*20 + reference(t, texts["base64"])*20
	near(t, "1.6 MB", count(text), real, 15)
	var parts []string
	for rest := text; rest != ""; {
		n := min(len(rest), 1500)
		parts, rest = append(parts, rest[:n]), rest[n:]
	}
	near(t, "1.6 MB in parts", count(parts...), real+int64(4*len(parts)), 15)
}

func TestVocabularyOfModel(t *testing.T) {
	e, text := estimate.New(), texts["Chinese"][:900]
	newer := e.Raw("gpt-5", slices.Values([]string{text}))
	for model, same := range map[string]bool{
		"gpt-4o-mini": true, "GPT-4.1": true, "openai/gpt-4o": true, "o3": true, "claude-sonnet-4-5": true, "": true,
		"ft:gpt-4o-mini:org": true, "gemini-2.5-pro": true,
		"gpt-4": false, "gpt-4-turbo": false, "gpt-35-turbo": false, "openai/gpt-3.5-turbo": false,
		"text-embedding-3-small": false, "ft:gpt-4:org": false,
	} {
		if got := e.Raw(model, slices.Values([]string{text})); (got == newer) != same {
			t.Errorf("%q counts %d tokens where gpt-5 counts %d", model, got, newer)
		}
	}
}

func TestCountOfNothing(t *testing.T) {
	e := estimate.New()
	if got := e.Input("m", nil); got != 0 {
		t.Errorf("no sequence counts %d", got)
	}
	if got := count(); got != 0 {
		t.Errorf("no parts count %d", got)
	}
}

func TestCountStops(t *testing.T) {
	// An iterator that is asked to go on after its end panics.
	asked := 0
	n := estimate.New().Raw("m", func(yield func(string) bool) {
		asked++
		_ = yield("one") && yield("two")
	})
	if n != 2+2*4+3 || asked != 1 {
		t.Errorf("%d tokens after %d runs", n, asked)
	}
}

func TestCountProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(
			rapid.String(),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }), // no UTF-8
			rapid.SampledFrom([]string{"\x80", "    ", "AAAA", "人", "1234", "\n\n", "!?", "\u200d", "\xf0\x9f"}),
		)
		parts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(piece.Draw(t, "piece"), rapid.IntRange(0, 300).Draw(t, "times"))
		}), 1, 5).Draw(t, "parts")
		bytes := 0
		for _, p := range parts {
			bytes += len(p)
		}
		overhead := int64(4*len(parts) + 3)
		got := count(parts...)
		most := int64(bytes) // a token has at least a byte
		if bytes > 1024 {
			most *= 5 // a weight may be 2.5 tokens, and is corrected by 2 at most
		}
		if got < overhead || got > overhead+most {
			t.Fatalf("%d tokens of %d bytes in %d parts", got, bytes, len(parts))
		}
	})
}

// BenchmarkRaw counts prompts of a model that nothing is known of, all of which
// the tokenizer reads, and of a known one, of which it reads one in 64.
func BenchmarkRaw(b *testing.B) {
	estimate.Load()
	for _, kind := range []string{"English", "base64", "Chinese"} {
		for _, size := range []int{100, 1e3, 1e5, 1e7} {
			text := strings.Repeat(texts[kind], size/len(texts[kind])+1)[:size]
			parts := slices.Values([]string{text})
			for name, e := range map[string]*estimate.Estimator{"unknown": estimate.New(), "known": grown(text)} {
				b.Run(fmt.Sprintf("%s/%s/%d", name, kind, size), func(b *testing.B) {
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for b.Loop() {
						if e.Input("gpt-5", parts) == 0 {
							b.Fatal("nothing")
						}
					}
				})
			}
		}
	}
}

// BenchmarkFloor is the tokenizer alone, on a kilobyte.
func BenchmarkFloor(b *testing.B) {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		b.Fatal(err)
	}
	text := texts["English"][:1000]
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if n, err := codec.Count(text); n == 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}
