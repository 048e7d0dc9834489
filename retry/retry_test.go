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

func TestBackoffBounds(t *testing.T) {
	whole := retry.Backoff{Base: 200 * time.Millisecond, Cap: 20 * time.Second, Attempts: 5}
	for _, tt := range []struct {
		in, want retry.Backoff
		bad      bool
	}{
		{want: whole},
		{in: retry.Backoff{Base: time.Minute}, want: retry.Backoff{Base: time.Minute, Cap: time.Minute, Attempts: 5}},
		{in: retry.Backoff{Base: 1, Cap: 1, Attempts: 1}, want: retry.Backoff{Base: 1, Cap: 1, Attempts: 1}},
		{in: retry.Backoff{Base: 2, Cap: 1, Attempts: 1}, bad: true},
		{in: retry.Backoff{Base: -1, Cap: 1, Attempts: 1}, bad: true},
		{in: retry.Backoff{Base: 1, Cap: 1, Attempts: -1}, bad: true},
	} {
		got, err := tt.in.Resolve()
		if (err != nil) != tt.bad || err == nil && got != tt.want {
			t.Errorf("%+v: %+v, %v; want %+v, an error is %v", tt.in, got, err, tt.want, tt.bad)
		}
	}
}

func TestWaitDoublesUpToTheCap(t *testing.T) {
	const all = math.MaxUint64
	for _, tt := range []struct {
		b    retry.Backoff
		n    int
		want time.Duration
	}{
		{retry.Backoff{Base: 1, Cap: 1 << 62}, 61, 1 << 61},
		{retry.Backoff{Base: 1, Cap: math.MaxInt64}, 62, math.MaxInt64},
		{retry.Backoff{Base: 1, Cap: math.MaxInt64}, 64, math.MaxInt64},
		{retry.Backoff{Base: 3, Cap: 12}, 2, 12},
		{retry.Backoff{Base: 3, Cap: 11}, 2, 11},
		{retry.Backoff{Base: 3, Cap: 13}, 2, 12},
	} {
		if got := tt.b.Wait(tt.n, all); got != tt.want {
			t.Errorf("%+v: retry %d waits up to %d, want %d", tt.b, tt.n, got, tt.want)
		}
	}
}

func TestBudgetLimits(t *testing.T) {
	for _, tt := range []struct{ in, want retry.Limits }{
		{want: retry.Limits{Capacity: 100, Start: 8, PerSuccess: 200}},
		{retry.Limits{Capacity: 1, Start: 1, PerSuccess: 1, MaxRequests: 1}, retry.Limits{Capacity: 1, Start: 1, PerSuccess: 1, MaxRequests: 1}},
		{retry.Limits{MaxRequests: math.MaxInt64 / 2}, retry.Limits{Capacity: 1 << 30, Start: 8, PerSuccess: 200, MaxRequests: math.MaxInt64 / 2}},
	} {
		if got, err := tt.in.Resolve(); err != nil || got != tt.want {
			t.Errorf("%+v: %+v, %v; want %+v", tt.in, got, err, tt.want)
		}
	}
	for _, bad := range []retry.Limits{{Capacity: -1}, {Start: -1}, {PerSuccess: -1}, {MaxRequests: -1}} {
		if got, err := bad.Resolve(); err == nil {
			t.Errorf("%+v passes as %+v", bad, got)
		}
	}
}

func TestBudgetHoldsWholeRetries(t *testing.T) {
	b := retry.NewBudget(retry.Limits{Capacity: 1, Start: 1, PerSuccess: 999})
	if got := b.Left(); got != 1 {
		t.Errorf("%d retries at the start, want 1", got)
	}
	b.Success()
	if !b.Take() || b.Left() != 0 {
		t.Errorf("a full budget grew or refused: %d retries after one", b.Left())
	}
	if b.Success(); b.Take() {
		t.Error("a retry on 0.999 tokens")
	}
	// Many retries: the loss of one thousandth each would show.
	b = retry.NewBudget(retry.Limits{Capacity: 3000, Start: 3000})
	n := 0
	for b.Take() {
		n++
	}
	if n != 3000 {
		t.Errorf("%d retries of 3000", n)
	}
	b = retry.NewBudget(retry.Limits{Capacity: 2000, Start: 1999})
	if got := b.Left(); got != 1999 {
		t.Errorf("%d retries left, want 1999", got)
	}
	b = retry.NewBudget(retry.Limits{Capacity: 3000, PerSuccess: 1_000_000_000})
	if b.Success(); b.Left() != 3000 {
		t.Errorf("%d retries left of a capacity of 3000", b.Left())
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

func TestAReturnedRetryIsOneRetryAndNoMore(t *testing.T) {
	b := retry.NewBudget(retry.Limits{Capacity: 3, Start: 1, PerSuccess: 999})
	if b.Take(); b.Left() != 0 {
		t.Fatalf("%d retries left", b.Left())
	}
	if b.Return(); b.Left() != 1 {
		t.Errorf("a returned retry left %d", b.Left())
	}
	if b.Success(); b.Left() != 1 {
		t.Errorf("1.999 tokens are %d retries", b.Left())
	}
	for range 5 {
		b.Return()
	}
	if b.Left() != 3 {
		t.Errorf("%d retries in a budget of 3", b.Left())
	}
}
