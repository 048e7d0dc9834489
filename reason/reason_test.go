package reason_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/reason"
)

func TestNamesAreUniqueAndStable(t *testing.T) {
	shape := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	byName := map[string]reason.Reason{}
	for _, r := range reason.All() {
		name := r.String()
		if !shape.MatchString(name) {
			t.Errorf("%q is not lower case with underscores", name)
		}
		if other, taken := byName[name]; taken {
			t.Errorf("reasons %d and %d are both called %q", other, r, name)
		}
		byName[name] = r
	}
	// These stand in stores and in other people's dashboards.
	for r, want := range map[reason.Reason]string{
		reason.None: "none", reason.Cooldown: "cooldown", reason.Deadline: "deadline",
		reason.RateLimited.Reason(): "rate_limited", reason.UpstreamPressure.Reason(): "upstream_pressure",
		reason.CircuitOpen.Reason(): "circuit_open", reason.MaxRequests.Reason(): "max_requests",
		reason.MaxWallClock.Reason(): "max_wall_clock", reason.RetryBudget.Reason(): "retry_budget", reason.MaxCatchup.Reason(): "max_catchup",
	} {
		if r.String() != want {
			t.Errorf("reason %d is called %q, want %q", r, r, want)
		}
	}
}

func TestParseReadsWhatStringWrites(t *testing.T) {
	for _, r := range reason.All() {
		if got, ok := reason.Parse(r.String()); !ok || got != r {
			t.Errorf("%q is read as %v, %v", r.String(), got, ok)
		}
	}
	for _, name := range []string{"", "RATE_LIMITED", "rate_limited ", "rate limited", "reason(3)", "429"} {
		if got, ok := reason.Parse(name); ok || got != reason.None {
			t.Errorf("%q is read as %v, want it to be unknown", name, got)
		}
	}
}

func TestKindsBeyondTheSetHaveANumber(t *testing.T) {
	if got := reason.KindFailure.String(); got != "failure" {
		t.Errorf("the last kind is called %q", got)
	}
	if got := (reason.KindFailure + 1).String(); got != "kind(6)" {
		t.Errorf("a kind beyond it is called %q", got)
	}
}

func FuzzParse(f *testing.F) {
	golden.Seeds(f)
	for _, r := range reason.All() {
		f.Add(r.String())
	}
	f.Add("\x00")
	f.Fuzz(func(t *testing.T, name string) {
		r, ok := reason.Parse(name)
		if ok && r.String() != name {
			t.Errorf("%q is read as %q", name, r)
		}
		if !ok && r != reason.None {
			t.Errorf("unknown %q is read as %q", name, r)
		}
	})
}

func TestTextIsTheName(t *testing.T) {
	for _, r := range reason.All() {
		text, err := r.MarshalText()
		if err != nil || string(text) != r.String() {
			t.Errorf("%v is written as %q, %v", r, text, err)
		}
		var back reason.Reason
		if err := back.UnmarshalText(text); err != nil || back != r {
			t.Errorf("%q is read as %v, %v", text, back, err)
		}
	}
	type record struct {
		Why reason.Reason `json:"why,omitempty"`
	}
	b, err := json.Marshal([]record{{reason.NotFound}, {}})
	if err != nil || string(b) != `[{"why":"not_found"},{}]` {
		t.Errorf("in JSON: %s, %v", b, err)
	}
	var records []record
	if err := json.Unmarshal(b, &records); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]record{{reason.NotFound}, {}}, records); diff != "" {
		t.Error(diff)
	}
}

func TestUnknownTextIsAnErrorAndChangesNothing(t *testing.T) {
	r := reason.Timeout
	err := r.UnmarshalText([]byte("sunspots"))
	if err == nil || err.Error() != `reason: unknown reason "sunspots"` {
		t.Errorf("error %v does not name the text", err)
	}
	if r != reason.Timeout {
		t.Errorf("the reason has become %v", r)
	}
}

func TestEveryReasonIsOfOneKind(t *testing.T) {
	pressures := []reason.Pressure{reason.RateLimited, reason.UpstreamPressure, reason.CircuitOpen}
	caps := []reason.Cap{reason.MaxRequests, reason.MaxWallClock, reason.RetryBudget, reason.MaxCatchup}
	found := map[reason.Kind]int{}
	for _, r := range reason.All() {
		p, isPressure := reason.AsPressure(r)
		c, isCap := reason.AsCap(r)
		if isPressure && isCap {
			t.Errorf("%v is the provider's and the owner's", r)
		}
		if isPressure != (r.Kind() == reason.KindPressure) || isCap != (r.Kind() == reason.KindCap) {
			t.Errorf("%v is of kind %v, but pressure %v and cap %v", r, r.Kind(), isPressure, isCap)
		}
		if isPressure && (p.Reason() != r || p.String() != r.String()) {
			t.Errorf("%v as a pressure is %v", r, p)
		}
		if isCap && (c.Reason() != r || c.String() != r.String()) {
			t.Errorf("%v as a cap is %v", r, c)
		}
		if !isPressure && p != 0 || !isCap && c != 0 {
			t.Errorf("%v is neither, but narrowed to %v and %v", r, p, c)
		}
		found[r.Kind()]++
	}
	if found[reason.KindPressure] != len(pressures) || found[reason.KindCap] != len(caps) {
		t.Errorf("%d pressures and %d caps, want the %d and %d that have names", found[reason.KindPressure], found[reason.KindCap], len(pressures), len(caps))
	}
	for _, p := range pressures {
		if got, ok := reason.AsPressure(p.Reason()); !ok || got != p {
			t.Errorf("%v does not survive as a reason", p)
		}
	}
	for _, c := range caps {
		if got, ok := reason.AsCap(c.Reason()); !ok || got != c {
			t.Errorf("%v does not survive as a reason", c)
		}
	}
	for _, k := range []reason.Kind{reason.KindNone, reason.KindWait, reason.KindPressure, reason.KindCap, reason.KindCaller, reason.KindFailure} {
		if found[k] == 0 {
			t.Errorf("no reason is of kind %v", k)
		}
	}
}

func TestKindsHaveNames(t *testing.T) {
	var names []string
	for k := reason.KindNone; k <= reason.KindFailure; k++ {
		names = append(names, k.String())
	}
	if diff := cmp.Diff([]string{"none", "wait", "pressure", "cap", "caller", "failure"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsOutsideTheSetSaysSo(t *testing.T) {
	r := reason.Reason(len(reason.All()))
	if got, want := r.String(), fmt.Sprintf("reason(%d)", len(reason.All())); got != want {
		t.Errorf("name %q, want %q", got, want)
	}
	if r.Kind() != reason.KindFailure {
		t.Errorf("kind %v, want a failure", r.Kind())
	}
	if got := reason.Kind(200).String(); got != "kind(200)" {
		t.Errorf("kind %q, want its number", got)
	}
	if got := reason.Class(200).String(); got != "class(200)" {
		t.Errorf("class %q, want its number", got)
	}
}

func TestClasses(t *testing.T) {
	tests := []struct {
		class     reason.Class
		name      string
		success   bool
		throttle  bool
		pressure  string
		retryable bool
	}{
		{reason.Unknown, "unknown", false, false, "", false},
		{reason.OK, "ok", true, false, "", false},
		{reason.Throttled, "throttled", false, true, "rate_limited", true},
		{reason.Overloaded, "overloaded", false, true, "upstream_pressure", true},
		{reason.Failed, "failed", false, false, "", true},
		{reason.Rejected, "rejected", false, false, "", false},
		{reason.Lost, "lost", false, false, "", true},
		{reason.Lost + 1, "class(7)", false, false, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pressure := ""
			p, ok := tt.class.Pressure()
			if ok {
				pressure = p.String()
			} else if p != 0 {
				t.Errorf("no pressure, but %v", p)
			}
			if tt.class.String() != tt.name || tt.class.Success() != tt.success || tt.class.Throttle() != tt.throttle ||
				pressure != tt.pressure || tt.class.Retryable() != tt.retryable {
				t.Errorf("%v: success %v, throttle %v, pressure %q, retryable %v, want %+v",
					tt.class, tt.class.Success(), tt.class.Throttle(), pressure, tt.class.Retryable(), tt)
			}
		})
	}
}

func TestVocabularyDoesNotAllocate(t *testing.T) {
	rateLimited := reason.RateLimited.Reason()
	n := testing.AllocsPerRun(100, func() {
		r, _ := reason.Parse("rate_limited")
		p, _ := reason.AsPressure(r)
		if r != rateLimited || p.String() != "rate_limited" || r.Kind().String() != "pressure" || reason.Throttled.String() != "throttled" {
			t.Error("another word")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestRefusalMatches(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, r := range reason.All() {
		err := fmt.Errorf("page 3: %w", &reason.Refusal{Reason: r, Scope: "crm", RetryAt: at, Err: io.ErrUnexpectedEOF})
		for target, want := range map[error]bool{
			context.DeadlineExceeded: r == reason.Deadline,
			context.Canceled:         r == reason.Canceled,
			io.ErrUnexpectedEOF:      true, // the cause
			io.EOF:                   false,
		} {
			if errors.Is(err, target) != want {
				t.Errorf("%v matches %v: %v, want %v", r, target, !want, want)
			}
		}
		for _, other := range reason.All() {
			if got := errors.Is(err, &reason.Refusal{Reason: other}); got != (other == r) {
				t.Errorf("a refusal for %v matches one for %v: %v", r, other, got)
			}
		}
		found, ok := errors.AsType[*reason.Refusal](err)
		if !ok || found.Reason != r || found.Scope != "crm" || !found.RetryAt.Equal(at) {
			t.Errorf("%v is found as %+v", r, found)
		}
	}
}

func TestOnlyABareReasonIsAPattern(t *testing.T) {
	err := &reason.Refusal{Reason: reason.Cooldown, Scope: "crm"}
	for _, target := range []*reason.Refusal{
		{Reason: reason.Cooldown, Scope: "crm"},
		{Reason: reason.Cooldown, Err: io.EOF},
	} {
		if errors.Is(err, target) {
			t.Errorf("%v matches %v, which is another refusal", err, target)
		}
	}
	if !errors.Is(err, err) {
		t.Error("a refusal does not match itself")
	}
	if errors.Is(err, io.EOF) {
		t.Error("a refusal without a cause matches one")
	}
}

func TestRefusalSaysWhoWhyAndWhen(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 3600))
	for want, r := range map[string]*reason.Refusal{
		"closed":           {Reason: reason.Closed},
		"crm: concurrency": {Reason: reason.Concurrency, Scope: "crm"},
		"crm: cooldown (retry at 2026-03-04T04:06:07Z)": {Reason: reason.Cooldown, Scope: "crm", RetryAt: at},
		"unreachable: EOF": {Reason: reason.Unreachable, Err: io.EOF},
		"crm: circuit_open (retry at 2026-03-04T04:06:07Z): EOF": {Reason: reason.CircuitOpen.Reason(), Scope: "crm", RetryAt: at, Err: io.EOF},
	} {
		if got := r.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
