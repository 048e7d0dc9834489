package scenario_test

import (
	"testing"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

func TestParseRate(t *testing.T) {
	tests := []struct {
		text      string
		perSecond float64
		interval  time.Duration
	}{
		{"10/s", 10, 100 * time.Millisecond},
		{"600/min", 10, 100 * time.Millisecond},
		{"600/m", 10, 100 * time.Millisecond},
		{"37/min", 37.0 / 60, 1621621622},
		{"3600/h", 1, time.Second},
		{"1500/day", 1500.0 / 86400, 57600 * time.Millisecond},
		{"1500/d", 1500.0 / 86400, 57600 * time.Millisecond},
		{"0.5/s", 0.5, 2 * time.Second},
		{"1000000/s", 1e6, time.Microsecond},
	}
	for _, tt := range tests {
		r, err := scenario.ParseRate(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if r.PerSecond() != tt.perSecond || r.Interval() != tt.interval || r.String() != tt.text {
			t.Errorf("%s is %g/s, interval %s, written %s; want %g, %s", tt.text, r.PerSecond(), r.Interval(), r, tt.perSecond, tt.interval)
		}
	}
	for _, text := range []string{
		"", "10", "/s", "10/", "10/S", "0/s", "-3/s", "1e3/s", "inf/s", "NaN/s", "0x10/s", "1_0/s", "1..2/s", "1000001/s", "0.01/day", "10/s ", "10 /s", "1-1/s",
	} {
		if r, err := scenario.ParseRate(text); err == nil {
			t.Errorf("%q was read as %v", text, r)
		}
	}
}

func TestZeroRateIsNoRate(t *testing.T) {
	var r scenario.Rate
	if r.PerSecond() != 0 || r.Interval() != 0 || r.String() != "0/s" {
		t.Errorf("the zero rate is %v, %g/s, interval %s", r, r.PerSecond(), r.Interval())
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1h": time.Hour, "15m": 15 * time.Minute, "1200s": 20 * time.Minute, "1h30m": 90 * time.Minute,
		"250ms": 250 * time.Millisecond, "1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "0": 0, "-5s": -5 * time.Second,
	} {
		if got, err := scenario.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s is %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "1w", "d", "-1d", "1.5d", "1d-5s", "1d1d", "99999d", "1h 5m", "soon"} {
		if got, err := scenario.ParseDuration(text); err == nil {
			t.Errorf("%q was read as %s", text, got)
		}
	}
}
