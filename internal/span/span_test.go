package span_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/span"
)

func TestTextLeavesOutZeroUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                             "0s",
		10 * time.Second:              "10s",
		time.Minute:                   "1m",
		10 * time.Minute:              "10m",
		90 * time.Second:              "1m30s",
		time.Hour:                     "1h",
		20 * time.Hour:                "20h",
		time.Hour + 10*time.Minute:    "1h10m",
		time.Hour + 10*time.Second:    "1h0m10s",
		-time.Hour:                    "-1h",
		1500 * time.Millisecond:       "1.5s",
		time.Minute + time.Nanosecond: "1m0.000000001s",
	} {
		if got := span.Text(d); got != want {
			t.Errorf("Text(%d ns) = %q, want %q", d, got, want)
		}
	}
}

func TestTextIsReadBackExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{1, time.Millisecond, time.Second, time.Minute, time.Hour}).Draw(t, "unit")
		d := unit * time.Duration(rapid.Int64Range(-2_000_000, 2_000_000).Draw(t, "count"))
		if got, err := time.ParseDuration(span.Text(d)); err != nil || got != d {
			t.Fatalf("%q is read back as %d ns, %v; want %d ns", span.Text(d), got, err, d)
		}
	})
}
