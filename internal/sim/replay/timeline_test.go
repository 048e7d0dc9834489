package replay

import (
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/golden"
)

func FuzzDecodeTimeline(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte("- {at: 0s, id: a, model: small, input: 10}\n- {at: 0s, do: wait, id: w, model: small, within: 10s}\n- {at: 1s, do: record, id: a, input: 12, output: 3}\n- {at: 3s, do: drain, id: w, output: 350}\n- {at: 4s, do: cancel, id: w}"))
	f.Add([]byte(`{"at":"0s","model":"small","times":3,"every":"1s"}`))
	f.Add([]byte("- {at: 0s, do: config, patch: {models: {}}}\n---\n- 1"))
	f.Fuzz(func(t *testing.T, src []byte) {
		steps, file := decode("f", src)
		for _, s := range steps {
			if s.resolve(file); file.Err() == nil && (s.at < 0 || s.Times < 1 || s.line < 1) {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestNumbersOfATimelineAreBounded(t *testing.T) {
	for src, want := range map[string]string{
		"- {at: 0s, model: m, input: -1}":                "t:1:29: [0].input: is -1; want a whole number from 0 to 1000000000",
		"- {at: 0s, model: m, max: 1000000001}":          "[0].max: is 1000000001; want",
		"- {at: 0s, model: m, priority: -1000001}":       "[0].priority: is -1000001; want a whole number from -1000000 to 1000000",
		`{"at":"0s","model":"m","output":9000000000000}`: "t:1:1: [line 1].output: is 9000000000000; want",
	} {
		if _, err := Parse("t", []byte(src)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", src, err, want)
		}
	}
}
