package governor

import (
	"testing"
	"time"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/quota"
)

// The wall clock that is set forward brings the next day; set back, it hands
// out no day twice.
func TestAWallClockThatIsSetMovesTheDay(t *testing.T) {
	origin := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	now, set := time.Duration(0), time.Duration(0)
	c := quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyCalls: 1}}}}
	g, err := newGovernor(Options{Config: c}, origin, func() (time.Duration, time.Time) { return now, origin.Add(now + set) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, step := range []struct {
		set      time.Duration
		approved bool
	}{{0, true}, {0, false}, {500 * time.Millisecond, false}, {13 * time.Hour, true}, {13 * time.Hour, false}, {-48 * time.Hour, false}, {37 * time.Hour, true}} {
		set = step.set
		now += time.Minute
		if d, err := g.Approve(quota.Request{Model: "m"}); d.Approved != step.approved {
			t.Errorf("with the clock set by %v: %+v, %v", set, d, err)
		}
		if at := g.Snapshot().Timestamp; at.Sub(origin.Add(now+set)).Abs() > time.Second {
			t.Errorf("with the clock set by %v the snapshot says %v", set, at)
		}
	}
}

func FuzzDecode(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte(`{"version":1,"use":[{"scope":{"model":"m"},"day":"2026-03-04","zone":"UTC","tokens":5,"calls":1}]}`))
	f.Add([]byte(`{"version":1,"use":[{"scope":{"tenant":"t","agent":"a"},"day":"9999-12-31","tokens":-1}]}`))
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		use, err := decode(b)
		if err != nil {
			return
		}
		core, err := quota.New(quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyTokens: 10}}}}, time.Unix(1e9, 0))
		if err != nil {
			t.Fatal(err)
		}
		if core.Restore(0, use) != nil {
			return
		}
		for _, u := range core.Use(0, nil) {
			if u.Tokens < 0 || u.Calls < 0 {
				t.Errorf("%+v out of %s", u, b)
			}
		}
	})
}
