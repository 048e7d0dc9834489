package quotafile_test

import (
	"testing"

	"github.com/headway-go/headway/internal/quotafile"
)

// TestWhoSaysSpread: also one who says no.
func TestWhoSaysSpread(t *testing.T) {
	s, err := quotafile.Read("q.yaml", []byte("global: {calls_per_minute: 60, spread: false}\nmodels: {a: {calls_per_minute: 60, spread: true}, b: {calls_per_minute: 60}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]bool{"": true, "a": true, "b": false, "c": false} {
		if got := s.SaysSpread(model); got != want {
			t.Errorf("%q says spread: %v, want %v", model, got, want)
		}
	}
}
