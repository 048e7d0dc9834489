package reason_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/headway-go/headway/reason"
)

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
