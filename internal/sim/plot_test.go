package sim_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/scenarios"
)

func draw(t testing.TB, s *scenario.Scenario) (svg []byte, r sim.Result) {
	t.Helper()
	r = run(t, s, sim.Options{Seed: 1, Trace: true})
	var b bytes.Buffer
	if err := sim.WriteSVG(&b, r.Trace); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), r
}

// texts reads the picture as XML and gives what is written in it.
func texts(t testing.TB, svg []byte) (all []string) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("the picture is not XML: %v", err)
		}
		if text, ok := token.(xml.CharData); ok && strings.TrimSpace(string(text)) != "" {
			all = append(all, string(text))
		}
	}
}

func TestPictureOfEveryScenario(t *testing.T) {
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, whole := range all {
		s := new(*whole)
		// A picture is as wide for a day as for ten minutes.
		s.Horizon = min(s.Horizon, time.Duration(longtest.Size(5, 24*60))*time.Minute)
		one, r := draw(t, s)
		var two bytes.Buffer
		if err := sim.WriteSVG(&two, r.Trace); err != nil || !bytes.Equal(one, two.Bytes()) {
			t.Errorf("%s: the same trace gave two pictures (%v)", s.Name, err)
		}
		written := strings.Join(texts(t, one), "\n")
		for _, want := range []string{s.Name + " under aimd", "seed 1", "admitted", "limit: what", "pace: what", "attempts a"} {
			if !strings.Contains(written, want) {
				t.Errorf("%s: the picture does not say %q", s.Name, want)
			}
		}
		for _, bad := range []string{"NaN", "Inf"} {
			if bytes.Contains(one, []byte(bad)) {
				t.Errorf("%s: the picture has a %s", s.Name, bad)
			}
		}
		var sum sim.Step
		for _, step := range r.Trace.Steps {
			sum.Admitted += step.Admitted
			sum.Throttled += step.Throttled
		}
		if sum.Admitted != r.Admitted || sum.Throttled != r.Throttled {
			t.Errorf("%s: the steps hold %d and %d, the run %d and %d", s.Name, sum.Admitted, sum.Throttled, r.Admitted, r.Throttled)
		}
	}
}

func TestPictureNamesChangesFaultsAndUnits(t *testing.T) {
	svg, _ := draw(t, parse(t, "horizon: 24h", "owner: {ceiling: 1h, initial: 1h}", "provider:", exact,
		"  throttle: {status: 403}", "  changes: [{at: 6h, scale: 0.5}]",
		"  faults: [{at: 1h, for: 1h, kind: outage}, {at: 2h, for: 1h, kind: slow}]"))
	written := texts(t, svg)
	for _, want := range []string{"limits x 0.5", "outage", "slow", "hours", "attempts an hour", "403", "no throttles"} {
		if !strings.Contains("\n"+strings.Join(written, "\n")+"\n", "\n"+want+"\n") {
			t.Errorf("the picture does not say %q in %q", want, written)
		}
	}
}

func TestPictureOfARunInWhichNothingHappens(t *testing.T) {
	svg, _ := draw(t, parse(t, "horizon: 1s", "workload: {kind: open, rate: 1/day}", "provider:", exact))
	texts(t, svg)
	if bytes.Contains(svg, []byte("NaN")) {
		t.Error("the picture has a NaN")
	}
}

func TestTracePaceIsTheIntervalAsARate(t *testing.T) {
	r := run(t, parse(t, "horizon: 1m", "clients: 2", "owner: {ceiling: 200ms, initial: 200ms}", "provider:", exact),
		sim.Options{Seed: 1, Trace: true})
	for i, s := range r.Trace.Steps {
		if math.Abs(s.Pace-10) > 1e-9 {
			t.Fatalf("step %d: pace is %v/s, want two clients' 5/s", i, s.Pace)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWritersTellOfErrors(t *testing.T) {
	r := run(t, parse(t, "horizon: 1m"), sim.Options{Trace: true})
	if err := sim.WriteSVG(broken{}, r.Trace); err == nil {
		t.Error("WriteSVG hid the error")
	}
	if err := sim.WriteTable(broken{}, []sim.Result{r}); err == nil {
		t.Error("WriteTable hid the error")
	}
}
