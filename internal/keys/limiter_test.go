package keys_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/keys"
)

func limiter(t *testing.T, l keys.Limits) *keys.Limiter {
	t.Helper()
	made, err := keys.NewLimiter(l)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestFailuresBlockAndAreForgiven(t *testing.T) {
	l := limiter(t, keys.Limits{Burst: 3, Every: time.Second})
	const address = "192.0.2.1:4711"
	for i := range 3 {
		if wait, blocked := l.Blocked(0, address); blocked || wait != 0 {
			t.Fatalf("blocked after %d failures, for %v", i, wait)
		}
		l.Failed(0, address)
	}
	if wait, blocked := l.Blocked(0, "192.0.2.1:9"); !blocked || wait != time.Second {
		t.Fatalf("another port of the address: %v, %v", wait, blocked)
	}
	if _, blocked := l.Blocked(0, "192.0.2.2:4711"); blocked {
		t.Error("another address is blocked too")
	}
	if _, blocked := l.Blocked(time.Second-1, address); !blocked {
		t.Error("free a nanosecond early")
	}
	if _, blocked := l.Blocked(time.Second, address); blocked {
		t.Error("still blocked when one failure is forgiven")
	}
	l.Failed(time.Second, address)
	if _, blocked := l.Blocked(time.Second, address); !blocked {
		t.Error("not blocked again after one more failure")
	}
}

func TestFailuresBeyondTheBucketDoNotBlockForLonger(t *testing.T) {
	l := limiter(t, keys.Limits{Burst: 2, Every: time.Second})
	for range 10_000 {
		l.Failed(0, "192.0.2.1")
	}
	if wait, _ := l.Blocked(0, "192.0.2.1"); wait != time.Second {
		t.Errorf("blocked for %v, want 1s", wait)
	}
}

func TestTimeThatRunsBackwardsFreesNobody(t *testing.T) {
	l := limiter(t, keys.Limits{Burst: 1, Every: time.Second})
	l.Failed(time.Hour, "192.0.2.1")
	if _, blocked := l.Blocked(0, "192.0.2.1"); !blocked {
		t.Error("free in the past")
	}
	l.Failed(0, "192.0.2.1")
	if _, blocked := l.Blocked(time.Hour, "192.0.2.1"); !blocked {
		t.Error("a failure in the past made the block shorter")
	}
}

func TestAnIPv6HostIsOneWithItsNetwork(t *testing.T) {
	l := limiter(t, keys.Limits{Burst: 1})
	l.Failed(0, "[2001:db8::1]:80")
	for address, want := range map[string]bool{
		"[2001:db8::2]:99": true, "2001:db8::ffff:1": true, "2001:db8:0:1::1": false, "192.0.2.1": false, "nonsense": false,
	} {
		if _, blocked := l.Blocked(0, address); blocked != want {
			t.Errorf("%s: blocked is %v", address, blocked)
		}
	}
	l.Failed(0, "::ffff:192.0.2.1")
	if _, blocked := l.Blocked(0, "192.0.2.1:80"); !blocked {
		t.Error("an IPv4 address is another when it is written as IPv6")
	}
}

func TestTheTableIsBoundedAndForgetsTheForgiven(t *testing.T) {
	l := limiter(t, keys.Limits{Burst: 1, Every: time.Second, Addresses: 100})
	for i := range 100 {
		l.Failed(0, fmt.Sprintf("192.0.2.%d", i))
	}
	if _, blocked := l.Blocked(0, "198.51.100.1"); blocked {
		t.Error("a newcomer is blocked before anybody beyond the table failed")
	}
	l.Failed(0, "198.51.100.1")
	if _, blocked := l.Blocked(0, "198.51.100.2"); !blocked {
		t.Error("those beyond the table do not share a bucket")
	}
	if _, blocked := l.Blocked(0, "192.0.2.7"); !blocked {
		t.Error("one who was remembered was forgotten")
	}
	// A second later all are forgiven, and the table has room again.
	l.Failed(2*time.Second, "203.0.113.1")
	if _, blocked := l.Blocked(2*time.Second, "203.0.113.1"); !blocked {
		t.Error("not blocked after its failure")
	}
	if _, blocked := l.Blocked(2*time.Second, "198.51.100.2"); blocked {
		t.Error("still blocked when the table has room")
	}
}

func TestNewLimiterSaysWhatIsWrong(t *testing.T) {
	for want, l := range map[string]keys.Limits{
		"Burst is -1, must be from 1 to 1000":          {Burst: -1},
		"Every is 1ns, must be from 1ms to 1h":         {Every: 1},
		"Addresses is 2000000, must be from 1 to 1000": {Addresses: 2_000_000},
	} {
		if _, err := keys.NewLimiter(l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
