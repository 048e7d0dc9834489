package figure_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/figure"
)

func TestThousandsAreSetApart(t *testing.T) {
	for got, want := range map[string]string{
		figure.Count(0):                    "0",
		figure.Count(999):                  "999",
		figure.Count(1000):                 "1,000",
		figure.Count(-1000):                "-1,000",
		figure.Count(-100):                 "-100",
		figure.Count(math.MaxInt64):        "9,223,372,036,854,775,807",
		figure.Number(0.4567):              "0.457",
		figure.Number(99.96):               "100",
		figure.Number(999.6):               "1,000",
		figure.Number(1e6):                 "1,000,000",
		figure.Number(math.Inf(1)):         "+Inf",
		figure.Digits(1234.5678, 6):        "1,234.57",
		figure.Digits(12345678.9, 6):       "12,345,679",
		figure.Digits(9.6, 6):              "9.6",
		figure.Rate(60_000):                "1,000/s",
		figure.Rate(60_000_000):            "1,000,000/s",
		figure.Rate(240):                   "4/s",
		figure.Rate(7):                     "7/min",
		figure.Rate(0.5):                   "30/h",
		figure.Rate(1.0 / (24 * 60)):       "0.0417/h",
		figure.Rate(1.0 / (24 * 60 * 1e4)): "0.00000417/h",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDurationLeavesOutZeroUnits(t *testing.T) {
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
		if got := figure.Duration(d); got != want {
			t.Errorf("Duration(%d ns) = %q, want %q", d, got, want)
		}
	}
}

func TestDurationIsReadBackExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{1, time.Millisecond, time.Second, time.Minute, time.Hour}).Draw(t, "unit")
		d := unit * time.Duration(rapid.Int64Range(-2_000_000, 2_000_000).Draw(t, "count"))
		if got, err := time.ParseDuration(figure.Duration(d)); err != nil || got != d {
			t.Fatalf("%q is read back as %d ns, %v; want %d ns", figure.Duration(d), got, err, d)
		}
	})
}
