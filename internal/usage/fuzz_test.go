package usage_test

import (
	"bytes"
	"testing"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/usage"
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
