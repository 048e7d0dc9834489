package dataverse

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// Kind is the kind of all tables.
type Kind string

// The kinds of table.
const (
	// Standard tables accept all rows of a batch or none.
	Standard Kind = "standard"
	// Elastic tables accept the rows that they can.
	Elastic Kind = "elastic"
)

// Options configure the environment. The zero value has one web server, standard tables,
// any users, and recommends a parallelism of 4.
type Options struct {
	// Seed determines the ids of created rows.
	Seed uint64
	// Scale divides all times: 1, the default, to 1,000.
	Scale float64
	// Users is the maximum number of users, in the order of their first request: 1 to
	// 1,000, default 1,000. Others are refused with 403.
	Users int
	// Servers is the number of web servers: 1 to 64, default 1.
	Servers int
	// Hint is the recommended parallelism: 1 to 1,000, default 4. Hints change it.
	Hint  int
	Hints []Hint
	// Overhead and RowTime determine the execution time of a batch: up to an hour each,
	// default 200 ms and 21 ms; negative means none.
	Overhead, RowTime time.Duration
	// Knee is the number of batches of all users that the environment executes at once
	// without slowing down: n of them take n/Knee times as long. UserKnee is the same for
	// each user. 0, the default, means no bound.
	Knee, UserKnee int
	// MaxRows and MaxBytes bound a request; larger ones are refused with 413. Dataverse
	// itself bounds time and size, not rows. 1 to 1,000,000 rows, default 1,000; 1 to 1
	// GiB, default 16 MiB.
	MaxRows, MaxBytes int
	// Tables is the kind of all tables; default Standard.
	Tables Kind
	// AlternateKey are columns that identify created rows; default none.
	AlternateKey []string
	// FailEvery refuses about each n-th row, always the same ones; 0, the default, refuses
	// none.
	FailEvery int
	// Faults happen once each.
	Faults []Fault
}

// Hint is a recommendation that starts some time after the start.
type Hint struct {
	After       time.Duration
	Parallelism int
}

// ParseHint parses "30s=1": a parallelism of 1 from 30 s on.
func ParseHint(text string) (Hint, error) {
	after, level, ok := strings.Cut(text, "=")
	d, err := time.ParseDuration(after)
	n, e := strconv.Atoi(level)
	if !ok || err != nil || e != nil {
		return Hint{}, fmt.Errorf("dataverse: hint %q, must be TIME=PARALLELISM such as 30s=1", text)
	}
	return Hint{d, n}, nil
}

// Trouble is the kind of a [Fault].
type Trouble string

// The kinds of faults.
const (
	// Unauthorized refuses a request with 401.
	Unauthorized Trouble = "unauthorized"
	// TooLarge refuses a request with 413.
	TooLarge Trouble = "too-large"
	// Broken refuses a request with 500 without writing it.
	Broken Trouble = "broken"
	// Cut writes a batch and resets the connection instead of responding.
	Cut Trouble = "cut"
	// Garbage writes a batch and responds with text that is not JSON.
	Garbage Trouble = "garbage"
)

var troubles = []Trouble{Unauthorized, TooLarge, Broken, Cut, Garbage}

// Fault is a fault at the At-th request of known users, from 1; for Cut and Garbage, at the
// At-th written batch.
type Fault struct {
	Trouble Trouble
	At      int
}

// ParseFault parses "cut@3".
func ParseFault(text string) (Fault, error) {
	name, at, ok := strings.Cut(text, "@")
	n, err := strconv.Atoi(at)
	if !ok || err != nil || n < 1 || !slices.Contains(troubles, Trouble(name)) {
		return Fault{}, fmt.Errorf("dataverse: fault %q, must be TROUBLE@N such as cut@3, with %v", text, troubles)
	}
	return Fault{Trouble(name), n}, nil
}

// settle fills in the defaults and checks the bounds.
func (o *Options) settle() error {
	o.Scale = cmp.Or(o.Scale, 1)
	o.Tables = cmp.Or(o.Tables, Standard)
	if !(o.Scale >= 1 && o.Scale <= 1000) {
		return fmt.Errorf("dataverse: option Scale is %g, must be from 1 to 1000", o.Scale)
	}
	for _, f := range []struct {
		name             string
		value            *int
		standard, lo, hi int
	}{
		{"Users", &o.Users, maxUsers, 1, maxUsers},
		{"Servers", &o.Servers, 1, 1, 64},
		{"Hint", &o.Hint, 4, 1, 1000},
		{"Knee", &o.Knee, 0, 0, 1_000_000},
		{"UserKnee", &o.UserKnee, 0, 0, 1_000_000},
		{"MaxRows", &o.MaxRows, 1000, 1, 1_000_000},
		{"MaxBytes", &o.MaxBytes, 16 << 20, 1, 1 << 30},
		{"FailEvery", &o.FailEvery, 0, 0, 1_000_000_000},
	} {
		*f.value = cmp.Or(*f.value, f.standard)
		if *f.value < f.lo || *f.value > f.hi {
			return fmt.Errorf("dataverse: option %s is %d, must be from %d to %d", f.name, *f.value, f.lo, f.hi)
		}
	}
	for _, f := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{{"Overhead", &o.Overhead, 200 * time.Millisecond}, {"RowTime", &o.RowTime, 21 * time.Millisecond}} {
		*f.value = max(0, cmp.Or(*f.value, f.standard))
		if *f.value > time.Hour {
			return fmt.Errorf("dataverse: option %s is %s, must be at most 1h", f.name, *f.value)
		}
	}
	if o.Tables != Standard && o.Tables != Elastic {
		return fmt.Errorf("dataverse: option Tables is %q, must be %s or %s", o.Tables, Standard, Elastic)
	}
	for _, h := range o.Hints {
		if h.After < 0 || h.Parallelism < 1 || h.Parallelism > 1000 {
			return fmt.Errorf("dataverse: option Hints has %s=%d, must not be before the start, and from 1 to 1000", h.After, h.Parallelism)
		}
	}
	for _, f := range o.Faults {
		if f.At < 1 || !slices.Contains(troubles, f.Trouble) {
			return fmt.Errorf("dataverse: option Faults has %s@%d, must be of %v at 1 or later", f.Trouble, f.At, troubles)
		}
	}
	if slices.Contains(o.AlternateKey, "") {
		return errors.New("dataverse: option AlternateKey has a column without a name")
	}
	o.Hints, o.Faults = slices.Clone(o.Hints), slices.Clone(o.Faults)
	o.AlternateKey = slices.Sorted(slices.Values(o.AlternateKey))
	slices.SortStableFunc(o.Hints, func(a, b Hint) int { return cmp.Compare(a.After, b.After) })
	return nil
}

// Like fills in unset options from a scenario of bulk loading: the execution time of
// batches, and the hints. Other scenarios have no effect. Changes of the knee are ignored.
func (o Options) Like(s *scenario.Scenario) Options {
	if b := s.Provider.Batch; b != nil {
		o.Overhead, o.RowTime = cmp.Or(o.Overhead, some(b.Overhead)), cmp.Or(o.RowTime, some(b.PerRow))
		o.MaxRows, o.UserKnee, o.Knee = cmp.Or(o.MaxRows, b.MaxRows), cmp.Or(o.UserKnee, b.Knee), cmp.Or(o.Knee, b.SharedKnee)
	}
	if o.Hint == 0 && len(o.Hints) == 0 {
		o.Hint = s.Provider.Hint
		for _, c := range s.Provider.Changes {
			if c.Hint > 0 {
				o.Hints = append(o.Hints, Hint{c.At, c.Hint})
			}
		}
	}
	return o
}

// some returns a duration that does not mean the default.
func some(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

//go:embed dataverse.yaml
var builtin []byte

// Scenario returns the built-in scenario, scaled: the documented limits of a user on a web
// server. Another scenario may be used instead: its limits are those of each user on each
// server, its faults the environment's, and its times are not scaled.
func (a *API) Scenario() *scenario.Scenario {
	s, err := scenario.Parse("dataverse.yaml", builtin)
	if err != nil {
		panic("dataverse: the embedded scenario is broken: " + err.Error())
	}
	p := &s.Provider
	for _, d := range []*time.Duration{
		&p.Latency.P50, &p.Latency.P99, &p.Latency.UplinkP50, &p.Latency.UplinkP99,
		&p.Penalty.Base, &p.Penalty.Max, &p.Penalty.Forgive,
	} {
		*d = a.scaled(*d)
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		l.Window, l.Busy = a.scaled(l.Window), a.scaled(l.Busy)
	}
	return s
}

// scaled returns a scaled duration.
func (a *API) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) / a.opt.Scale)
}
