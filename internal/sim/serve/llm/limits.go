package llm

import (
	_ "embed"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

//go:embed llm.yaml
var builtin []byte

// Limits are the limits of the built-in scenario; zero means no such limit.
type Limits struct {
	// RequestsPerMinute and TokensPerMinute apply to any period of a minute.
	RequestsPerMinute, TokensPerMinute int
	// RequestsPerDay is reset at midnight UTC.
	RequestsPerDay int
}

// Scenario returns the built-in scenario with these limits: responses start after about 200
// ms, and a refusal reports the exact wait. Each limit is at most 10,000,000, tokens
// 1,000,000,000.
func (l Limits) Scenario() (*scenario.Scenario, error) {
	for _, f := range []struct {
		name       string
		value, top int
	}{
		{"RequestsPerMinute", l.RequestsPerMinute, scenario.MaxCount},
		{"TokensPerMinute", l.TokensPerMinute, 1_000_000_000},
		{"RequestsPerDay", l.RequestsPerDay, scenario.MaxCount},
	} {
		if f.value < 0 || f.value > f.top {
			return nil, fmt.Errorf("llm: limit %s is %d, must be from 0 (no limit) to %d", f.name, f.value, f.top)
		}
	}
	s, err := scenario.Parse("llm.yaml", builtin)
	if err != nil {
		panic("llm: the embedded scenario is broken: " + err.Error())
	}
	if n := l.RequestsPerMinute; n > 0 {
		s.Provider.Limits = append(s.Provider.Limits, scenario.Limit{Kind: scenario.SlidingWindow, Count: n, Window: time.Minute})
	}
	if n := l.TokensPerMinute; n > 0 {
		s.Provider.Limits = append(s.Provider.Limits, scenario.Limit{Kind: scenario.CostWindow, Units: float64(n), Window: time.Minute})
	}
	if n := l.RequestsPerDay; n > 0 {
		s.Provider.Limits = append(s.Provider.Limits, scenario.Limit{Kind: scenario.FixedWindow, Count: n, Window: 24 * time.Hour, Align: scenario.AlignEpoch})
	}
	return s, nil
}

// known are the listed models; any name is accepted.
var known = []string{"sim-large", "sim-small", "sim-thinking"}

var knownSince = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// callsPerTime are the kinds of limits that headers report as requests.
var callsPerTime = []scenario.Kind{scenario.TokenBucket, scenario.FixedWindow, scenario.SlidingWindow}

// first returns the first limit of one of the kinds, nil if there is none.
func first(left []serve.Quota, kinds ...scenario.Kind) *serve.Quota {
	i := slices.IndexFunc(left, func(q serve.Quota) bool { return slices.Contains(kinds, q.Kind) })
	if i < 0 {
		return nil
	}
	return &left[i]
}

// window returns a name for the length of a limit's window.
func window(q *serve.Quota) string {
	switch w := q.Window; {
	case w >= 23*time.Hour:
		return "day"
	case w == time.Minute:
		return "min"
	default:
		return w.String()
	}
}

// retryAfter sets a throttle's wait in the header, also in milliseconds if the provider
// does so.
func retryAfter(h http.Header, t trouble, millis bool) {
	if !t.said {
		return
	}
	h.Set("Retry-After", strconv.FormatInt(int64(ceil(t.wait, time.Second)/time.Second), 10))
	if millis {
		h.Set("Retry-After-Ms", strconv.FormatInt(ceil(t.wait, time.Millisecond).Milliseconds(), 10))
	}
}

func whole(v float64) string { return strconv.FormatInt(int64(v), 10) }

// ceil rounds up to a multiple of unit, at least zero.
func ceil(d, unit time.Duration) time.Duration { return (max(d, 0) + unit - 1) / unit * unit }

// ailment is a fault that a model's name requests.
type ailment int

const (
	healthy ailment = iota
	cutting
	erring
	ailing // overloaded
	spent
	throttling
)

// fault is an ailment, and the number of chunks before it.
type fault struct {
	ailment
	after int
}

// faultOf parses the end of a model's name: the whole name, or the part after a hyphen.
func faultOf(model string) fault {
	for name, a := range map[string]ailment{"overloaded": ailing, "quota-exhausted": spent, "throttled": throttling} {
		if ends(model, name) {
			return fault{ailment: a}
		}
	}
	if ends(model, "error-in-stream") {
		return fault{erring, 1}
	}
	i := strings.LastIndexByte(model, '-')
	if i < 0 {
		return fault{}
	}
	n, err := strconv.ParseUint(model[i+1:], 10, 16)
	switch rest := model[:i]; {
	case err != nil:
	case ends(rest, "cut-after"):
		return fault{cutting, int(n)}
	case ends(rest, "error-after"):
		return fault{erring, int(n)}
	}
	return fault{}
}

func ends(model, name string) bool {
	rest, ok := strings.CutSuffix(model, name)
	return ok && (rest == "" || strings.HasSuffix(rest, "-"))
}

// kind is why a call fails.
type kind int

const (
	malformed kind = iota
	oversized
	keyless
	unknownKey
	unknownPath
	throttled
	exhausted
	overloaded
	suspended
)
