package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/golden"
)

func TestRatesSurviveTheirFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rates.json")
	log := slog.New(slog.DiscardHandler)
	if got, err := readRates(path, log); len(got.Rates) > 0 || err != nil {
		t.Errorf("without a file: %v, %v", got, err)
	}
	at := time.Unix(1_800_000_000, 7).UTC()
	want := ratesContent{
		Version: ratesVersion, Rates: map[string]rate{"a": {Law: "aimd", Version: 1, IntervalNS: 5, RecordedAt: at, State: []byte{0, 255}}},
		Unasked:   map[string]map[string]time.Time{"a": {"mistral": at}},
		Estimates: map[string]map[string]egress.Estimates{"a": {"gpt": {Input: 1.25, Output: 700, Inputs: 3, Outputs: 15}}},
	}
	if err := writeRates(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := readRates(path, log)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := os.Stat(path + ".new"); !os.IsNotExist(err) {
		t.Errorf("what it wrote beside it is left: %v", err)
	}
}

// A Retry-After of days holds up calls for other models too, so it is bounded.
func TestARetryAfterHoldsUpAProviderForAnHourAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := governed("a", config.Provider{Pacing: &config.Pacing{}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := g.TryAcquire()
		if err != nil || !p.Settle(headway.Outcome{Class: headway.Throttled, RetryAfter: 48 * time.Hour}) {
			t.Fatal(err)
		}
		if wait := time.Until(g.Snapshot().RetryAt); wait != time.Hour {
			t.Errorf("the next attempt may go after %v, want 1h", wait)
		}
	})
}

func FuzzRates(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte(`{"version":1,"rates":{"a":{"law":"envelope","version":1,"interval_ns":10000000,"recorded_at":"2026-11-21T08:12:24Z","state":"eyJwYXRpZW5jZSI6MTAwMH0="}}}`))
	f.Add([]byte(`{"version":1,"rates":{"a":{"law":"aimd","version":1,"interval_ns":-1}}}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeRates(data)
		if err != nil {
			return
		}
		for name, r := range c.Rates {
			g, err := headway.New(headway.Config{Ceiling: 10 * time.Millisecond, Law: "envelope"})
			if err != nil {
				t.Fatal(err)
			}
			l := &line{name: name, pacing: g}
			l.warm(r, r.RecordedAt, slog.New(slog.DiscardHandler))
			if p, err := g.TryAcquire(); err != nil || !p.Settle(headway.Outcome{}) {
				t.Fatalf("after %q it lets nothing go: %v", data, err)
			}
		}
	})
}
