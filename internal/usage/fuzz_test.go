package usage_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
)

// scan gives what a body says that comes in parts of a length.
func scan(t *testing.T, shape usage.Shape, kind string, body []byte, length int) usage.Report {
	t.Helper()
	s, last := usage.NewScanner(shape, kind), usage.Report{}
	for len(body) > 0 {
		n := min(length, len(body))
		if m, err := s.Write(body[:n]); m != n || err != nil {
			t.Fatalf("Write gave %d, %v for %d bytes", m, err, n)
		}
		body = body[n:]
		now := s.Report()
		if err := now.Usage.Validate(); err != nil {
			t.Fatal(err)
		}
		if now.Flowed < last.Flowed || (last.Reported && !now.Reported) || (last.Ended && !now.Ended) {
			t.Fatalf("%+v follows %+v", now, last)
		}
		last = now
	}
	return s.Report()
}

func fuzz(f *testing.F, kind string, seeds ...string) {
	for _, b := range bodies {
		if b.kind == kind {
			f.Add(uint8(b.shape), uint8(7), []byte(b.body))
		}
	}
	for _, s := range seeds {
		f.Add(uint8(usage.OpenAIChat), uint8(1), []byte(s))
	}
	f.Fuzz(func(t *testing.T, shape, length uint8, body []byte) {
		whole := scan(t, usage.Shape(shape), kind, body, len(body)+1)
		if parts := scan(t, usage.Shape(shape), kind, body, int(length)+1); parts != whole {
			t.Fatalf("in parts of %d it says %+v, as a whole %+v", int(length)+1, parts, whole)
		}
	})
}

func FuzzScannerSSE(f *testing.F) {
	golden.Seeds(f)
	fuzz(f, events, "data\ndata:\n:\n\r\r\n", "data: {\"usage\":{\"prompt_tokens\":1\ndata:2}}\n\n", "{\n[")
}

func FuzzScannerJSON(f *testing.F) {
	golden.Seeds(f)
	fuzz(f, object, `{"choices":[[{"text":"\u00e"}]]}`, `{"a":}{"b"]:1}`, `[[[[[[[[[[[[[[{"usage":{}}]]`)
}

func FuzzStripper(f *testing.F) {
	golden.Seeds(f)
	for _, c := range chunks {
		f.Add(uint8(3), []byte(lay(c.in, " ", "\r\n")))
	}
	f.Fuzz(func(t *testing.T, length uint8, body []byte) {
		var parts []string
		for rest := body; len(rest) > 0; {
			n := min(int(length)+1, len(rest))
			parts, rest = append(parts, string(rest[:n])), rest[n:]
		}
		left := strip(t, parts...)
		if whole := strip(t, string(body)); left != whole {
			t.Fatalf("in parts %q is left of %q, as a whole %q", left, body, whole)
		}
		if !bytes.Contains(body, []byte(`"usage"`)) && !bytes.Contains(body, []byte(`\u00`)) && left != string(body) {
			t.Fatalf("of %q is left %q", body, left)
		}
	})
}

// clutter is JSON with the names that matter in places where they do not.
func clutter(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 5
		if depth > 0 {
			kinds = 7
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.Float64Range(-1e9, 1e9).Draw(t, "number")
		case 3:
			return rapid.String().Draw(t, "string")
		case 4:
			return rapid.SampledFrom([]string{`"`, `\`, `{"usage":{`, "]}", "prompt_tokens", "data: [DONE]\n\n"}).Draw(t, "text")
		case 5:
			return rapid.SliceOfN(clutter(depth-1), 0, 4).Draw(t, "array")
		default:
			name := rapid.SampledFrom([]string{"usage", "prompt_tokens", "error", "choices", "", "a\"b", "\u2028"})
			return rapid.MapOfN(name, clutter(depth-1), 0, 4).Draw(t, "object")
		}
	})
}

func TestScannerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Int64Range(0, quota.MaxTokens)
		input, output := count.Draw(t, "input"), count.Draw(t, "output")
		cached := rapid.Int64Range(0, input).Draw(t, "cached")
		body := map[string]any{
			"usage": map[string]any{
				"prompt_tokens": input, "completion_tokens": output, "zz": clutter(2).Draw(t, "in usage"),
				"prompt_tokens_details": map[string]any{"cached_tokens": cached, "a": clutter(1).Draw(t, "in details")},
			},
		}
		for _, name := range []string{"a", "usages", "u", "zz", "model"} {
			body[name] = clutter(2).Draw(t, name)
		}
		text, err := json.Marshal(body)
		if rapid.Bool().Draw(t, "indented") {
			text, err = json.MarshalIndent(body, "", "  ")
		}
		if err != nil {
			t.Fatal(err)
		}
		s := usage.NewScanner(usage.OpenAIChat, object)
		for _, part := range split(t, 200, string(text)) {
			_, _ = s.Write([]byte(part)) // never fails
		}
		want := usage.Report{
			Usage:    quota.Usage{Input: input, Cached: cached, Output: output},
			Reported: true, Ended: true, Flowed: output,
		}
		if diff := cmp.Diff(want, s.Report()); diff != "" {
			t.Fatalf("of %s (-want +got):\n%s", text, diff)
		}
	})
}

func TestFramingProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SampledFrom(bodies).Filter(func(b said) bool {
			return b.kind == events && !strings.Contains(b.body, "\r")
		}).Draw(t, "body")
		end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "end")
		var stream strings.Builder
		for i, line := range strings.Split(b.body, "\n") {
			if i > 0 {
				stream.WriteString(end)
			}
			if strings.HasPrefix(line, "data:") {
				stream.WriteString(rapid.SampledFrom([]string{"", ": data: {" + end, "id:7" + end, "retry" + end}).Draw(t, "before"))
			}
			if line == "" {
				stream.WriteString(rapid.SampledFrom([]string{"", end, end + ": still here" + end}).Draw(t, "between"))
			}
			stream.WriteString(line)
		}
		s := usage.NewScanner(b.shape, b.kind)
		for _, part := range split(t, 60, stream.String()) {
			_, _ = s.Write([]byte(part)) // never fails
		}
		if diff := cmp.Diff(b.want, s.Report()); diff != "" {
			t.Fatalf("%s as %q (-want +got):\n%s", b.name, stream.String(), diff)
		}
	})
}
