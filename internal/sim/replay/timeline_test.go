package replay

import (
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
