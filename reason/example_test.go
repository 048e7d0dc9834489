package reason_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-go/headway/reason"
)

func ExampleRefusal() {
	acquire := func() error {
		return &reason.Refusal{
			Reason:  reason.Cooldown,
			Scope:   "crm",
			RetryAt: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		}
	}
	err := fmt.Errorf("contacts: %w", acquire())
	fmt.Println(err)
	if refusal, ok := errors.AsType[*reason.Refusal](err); ok {
		fmt.Println("come back at", refusal.RetryAt.Format(time.TimeOnly))
	}
	// Output:
	// contacts: crm: cooldown (retry at 2026-03-04T05:06:07Z)
	// come back at 05:06:07
}

// A refusal for a deadline matches the context errors that callers check for.
func ExampleRefusal_Is() {
	err := error(&reason.Refusal{Reason: reason.Deadline, Scope: "crm"})
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	fmt.Println(errors.Is(err, context.Canceled))
	fmt.Println(errors.Is(err, &reason.Refusal{Reason: reason.Deadline}))
	// Output:
	// true
	// false
	// true
}

func ExampleParse() {
	r, ok := reason.Parse("quota_exhausted")
	fmt.Println(r, r.Kind(), ok)
	_, ok = reason.Parse("bad_weather")
	fmt.Println(ok)
	// Output:
	// quota_exhausted failure true
	// false
}

func ExampleAsPressure() {
	for _, r := range []reason.Reason{reason.CircuitOpen.Reason(), reason.MaxRequests.Reason()} {
		if p, ok := reason.AsPressure(r); ok {
			fmt.Println("the provider wants less:", p)
		} else {
			fmt.Println("not the provider's:", r)
		}
	}
	// Output:
	// the provider wants less: circuit_open
	// not the provider's: max_requests
}

func ExampleAsCap() {
	for _, r := range []reason.Reason{reason.CircuitOpen.Reason(), reason.MaxRequests.Reason()} {
		if c, ok := reason.AsCap(r); ok {
			fmt.Println("the owner's bound:", c)
		} else {
			fmt.Println("not the owner's:", r)
		}
	}
	// Output:
	// not the owner's: circuit_open
	// the owner's bound: max_requests
}

func ExampleClass_Throttle() {
	for _, c := range []reason.Class{reason.OK, reason.Throttled, reason.Overloaded, reason.Failed} {
		fmt.Println(c, c.Throttle())
	}
	// Output:
	// ok false
	// throttled true
	// overloaded true
	// failed false
}
