package retry_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/retry"
)

func TestWaitIsFullJitter(t *testing.T) {
	b, err := retry.Backoff{Base: 100 * time.Millisecond, Cap: time.Second}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	for n, bound := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		bound *= time.Millisecond
		if got := b.Wait(n, math.MaxUint64); got != bound {
			t.Errorf("retry %d: longest wait %v, want %v", n, got, bound)
		}
		if got := b.Wait(n, 0); got != 0 {
			t.Errorf("retry %d: shortest wait %v, want 0", n, got)
		}
		if got := b.Wait(n, 1<<63); got != bound/2 {
			t.Errorf("retry %d: middle wait %v, want %v", n, got, bound/2)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1000).Draw(t, "n")
		if w := b.Wait(n, rapid.Uint64().Draw(t, "random")); w < 0 || w > b.Cap {
			t.Fatalf("retry %d waits %v", n, w)
		}
	})
}

func TestBudgetStartsAtEightAndEarnsAFifth(t *testing.T) {
	l, err := retry.Limits{}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	b := retry.NewBudget(l)
	for i := range 8 {
		if !b.Take() {
			t.Fatalf("retry %d refused", i)
		}
	}
	if b.Take() {
		t.Fatal("a ninth retry on an empty budget")
	}
	for range 4 {
		b.Success()
	}
	if b.Take() {
		t.Fatal("a retry on 0.8 tokens")
	}
	b.Success()
	if !b.Take() || b.Take() {
		t.Fatal("five successes must earn one retry, no more")
	}
	for range 10_000 {
		b.Success()
	}
	if b.Left() != 100 {
		t.Fatalf("holds %d, the capacity is 100", b.Left())
	}
}

func TestCapacityIsAFifthOfMaxRequests(t *testing.T) {
	for _, tt := range []struct {
		requests        int64
		capacity, start int
	}{{0, 100, 8}, {1000, 200, 8}, {10, 2, 2}, {1, 1, 1}, {11, 3, 3}} {
		l, err := retry.Limits{MaxRequests: tt.requests}.Resolve()
		if err != nil || l.Capacity != tt.capacity || l.Start != tt.start {
			t.Errorf("%d requests: %+v, %v, want capacity %d, start %d", tt.requests, l, err, tt.capacity, tt.start)
		}
	}
}

// Retries taken never exceed what was there and what was earned.
func TestBudgetIsConserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, err := retry.Limits{
			Capacity:   rapid.IntRange(1, 50).Draw(t, "capacity"),
			Start:      rapid.IntRange(1, 50).Draw(t, "start"),
			PerSuccess: rapid.IntRange(1, 3000).Draw(t, "gain"),
		}.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		b := retry.NewBudget(l)
		taken, earned := 0, 0
		for range rapid.IntRange(1, 300).Draw(t, "calls") {
			if rapid.Bool().Draw(t, "success") {
				b.Success()
				earned += l.PerSuccess
			} else if b.Take() {
				taken++
			}
			if taken*1000 > l.Start*1000+earned {
				t.Fatalf("took %d of %d + %d/1000", taken, l.Start, earned)
			}
			if b.Left() < 0 || b.Left() > l.Capacity {
				t.Fatalf("holds %d of %d", b.Left(), l.Capacity)
			}
		}
	})
}

func TestErrorsNameFieldValueAndBound(t *testing.T) {
	_, base := retry.Backoff{Base: -1}.Resolve()
	_, limit := retry.Backoff{Base: time.Minute, Cap: time.Second}.Resolve()
	_, attempts := retry.Backoff{Attempts: -1}.Resolve()
	_, capacity := retry.Limits{Capacity: -1}.Resolve()
	_, start := retry.Limits{Start: -2}.Resolve()
	_, gain := retry.Limits{PerSuccess: -3}.Resolve()
	_, requests := retry.Limits{MaxRequests: -4}.Resolve()
	for want, err := range map[string]error{
		"base is -1ns": base, "cap is 1s, must be at least the base of 1m0s": limit, "attempts is -1": attempts,
		"capacity is -1": capacity, "start is -2": start, "per success is -3": gain, "max requests is -4": requests,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func ExampleBackoff_Wait() {
	b, _ := retry.Backoff{Base: time.Second}.Resolve()
	const half = 1 << 63
	fmt.Println(b.Wait(0, half), b.Wait(1, half), b.Wait(10, half))
	// Output:
	// 500ms 1s 10s
}

func ExampleBudget() {
	l, _ := retry.Limits{Start: 1}.Resolve()
	b := retry.NewBudget(l)
	fmt.Println(b.Take(), b.Take())
	for range 5 {
		b.Success()
	}
	fmt.Println(b.Take())
	// Output:
	// true false
	// true
}

func BenchmarkBudget(b *testing.B) {
	l, _ := retry.Limits{}.Resolve()
	budget := retry.NewBudget(l)
	b.ReportAllocs()
	for b.Loop() {
		budget.Success()
		budget.Take()
	}
}
