package sim

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/sim/scenario"
)

func TestJain(t *testing.T) {
	for _, tt := range []struct {
		shares []int64
		want   float64
	}{
		{[]int64{5, 5, 5, 5}, 1},
		{[]int64{8, 0, 0, 0}, 0.25},
		{[]int64{1, 2, 3}, 36.0 / 42},
		{[]int64{7}, 1},
	} {
		if got := jain(tt.shares); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("jain of %v is %v, want %v", tt.shares, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		shares := rapid.SliceOfN(rapid.Int64Range(0, 1e6), 1, 50).Draw(t, "shares")
		shares[0]++ // somebody got something
		if got := jain(shares); got < 1/float64(len(shares))-1e-9 || got > 1+1e-9 {
			t.Fatalf("jain of %v is %v, outside 1/n to 1", shares, got)
		}
	})
}

func TestPercentileIsByNearestRank(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, tt := range []struct {
		sorted []time.Duration
		p      int
		want   time.Duration
	}{
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred[:1], 1, 1},
		{hundred[:1], 99, 1},
		{hundred[:3], 50, 2},
		{hundred[:4], 50, 2},
		{hundred[:4], 51, 3},
	} {
		if got := percentile(tt.sorted, tt.p); got != tt.want {
			t.Errorf("percentile %d of %d values is %d, want %d", tt.p, len(tt.sorted), got, tt.want)
		}
	}
}

func TestCaughtUpAtTheFirstSecondWithNineTenths(t *testing.T) {
	every := func(from, to, step time.Duration) (at []time.Duration) {
		for t := from; t < to; t += step {
			at = append(at, t)
		}
		return at
	}
	const s = time.Second
	oracle := every(0, 60*s, s/10) // ten a second
	for _, tt := range []struct {
		name           string
		client, oracle []time.Duration
		want           time.Duration
		ok             bool
	}{
		{"equal from the start", oracle, oracle, s, true},
		{"nine tenths are enough", every(0, 60*s, s/9), oracle, s, true},
		{"one a second never", every(0, 60*s, s), oracle, 0, false},
		{"from 20 s on: 90 of the last 10 s' 100 at 29 s", every(20*s, 60*s, s/10), oracle, 29 * s, true},
		{"windows in which the oracle gets nothing say nothing", every(0, 60*s, 2*s), every(50*s, 60*s, s/10), 0, false},
		{"nobody gets anything", nil, nil, 0, false},
	} {
		at, ok := caughtUp(tt.client, tt.oracle, 10*s, 60*s)
		if at != tt.want || ok != tt.ok {
			t.Errorf("%s: got %v %v, want %v %v", tt.name, at, ok, tt.want, tt.ok)
		}
	}
}

// In whatever order events are planned and taken, the earliest is taken first, and events
// at the same instant in the order in which they were planned.
func TestAgendaIsInOrderOfInstantsAndThenOfPlanning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a agenda
		var want []event // sorted by instant, stably
		for i := range rapid.IntRange(1, 300).Draw(t, "steps") {
			if len(want) > 0 && rapid.Bool().Draw(t, "take") {
				got, ok := a.next()
				if !ok || got.ref != want[0].ref || got.at != want[0].at {
					t.Fatalf("took %+v %v, want %+v", got, ok, want[0])
				}
				want = want[1:]
				continue
			}
			e := event{at: time.Duration(rapid.IntRange(0, 9).Draw(t, "at")), ref: uint32(i)}
			a.plan(e)
			at, _ := slices.BinarySearchFunc(want, e.at+1, func(w event, at time.Duration) int { return int(w.at - at) })
			want = slices.Insert(want, at, e)
		}
		for _, w := range want {
			if got, ok := a.next(); !ok || got.ref != w.ref {
				t.Fatalf("took %+v %v, want %+v", got, ok, w)
			}
		}
		if e, ok := a.next(); ok {
			t.Fatalf("took %+v from an empty agenda", e)
		}
	})
}

// TestTheClockOfARunIsOfToday: a field that names an instant must not look like a
// number of seconds, whatever the window's length.
func TestTheClockOfARunIsOfToday(t *testing.T) {
	for _, window := range []string{"1m", "3m19s", "12m59s", "24h", "7h1m"} {
		s, err := scenario.Parse("x", []byte("name: x\nhorizon: 1h\nprovider:\n  limits: [{kind: fixed_window, limit: 5, window: "+window+", align: epoch}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		at, length := start(s), s.Provider.Limits[0].Window
		if at.Year() < 2025 || time.Duration(at.UnixNano())%length != 0 {
			t.Errorf("windows of %s: the run starts at %v", window, at)
		}
	}
}

func TestMoreAttemptsThanTheBoundAreAnError(t *testing.T) {
	s, err := scenario.Parse("test.yaml", []byte("name: test\nhorizon: 30d\nowner: {ceiling: 1us, initial: 1us}\n"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "sim: scenario test takes more than 1000 attempts: shorten its horizon of 720h0m0s"
	p, err := newProphet(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	p.bounds.most = 1000 // so that the test is quick
	if err := p.play(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the oracle: got %v, want %s", err, want)
	}
	e, err := newEngine(s, "aimd", 1, NewLedger(s, "aimd", 1))
	if err != nil {
		t.Fatal(err)
	}
	e.bounds.most = 1000
	if err := e.run(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the run: got %v, want %s", err, want)
	}
	if _, err := Run(s, Options{Law: "aimd", MaxAttempts: 1000}); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("bounded by an option: got %v, want %s", err, want)
	}
	if most := (bounds{}).attempts(); most != 20_000_000 {
		t.Errorf("without one it is bounded by %d", most)
	}
	ended := errors.New("ended")
	for turns := range 3 { // the oracle is ended, or the run
		left := 20 * turns
		stop := func() error {
			if left--; left < 0 {
				return ended
			}
			return nil
		}
		if _, err := Run(s, Options{Law: "aimd", MaxAttempts: 1_000_000, Stop: stop}); !errors.Is(err, ended) {
			t.Errorf("ended by an option: %v", err)
		}
	}
}

func TestMoreBatchesThanTheBoundAreAnError(t *testing.T) {
	s, err := scenario.Parse("test.yaml", []byte("name: test\nworkload: {kind: bulk, rows: 5000}\nprovider: {batch: {per_row: 1ms, max_rows: 10}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, sees, err := bulkParams(s, Options{Law: BulkParallel})
	if err != nil {
		t.Fatal(err)
	}
	e, err := newBulkEngine(s, 1, &p, sees)
	if err != nil {
		t.Fatal(err)
	}
	e.most = 499 // of 500
	const want = "the load takes more than 2000000 batches: lower workload.rows of 5000"
	if err := e.run(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
