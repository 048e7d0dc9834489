package keys

import (
	"cmp"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Limits configure how often an address may present an invalid key.
type Limits struct {
	// Burst is the number of failures in a row that are answered: 1 to 1,000, default 10.
	Burst int
	// Every is the time after which one more is answered: 1 ms to 1 h, default 6 s.
	Every time.Duration
	// Addresses is the number of addresses that are remembered: 1 to 1,000,000, default
	// 4,096. If there are more, the further ones share one bucket.
	Addresses int
}

// Limiter bounds failed authentication by remote address with one bucket each. An IPv6
// address counts with its /64, since one host has all of that.
//
// Call [Limiter.Blocked] before a key is looked up, and [Limiter.Failed] if the key was
// invalid. A valid key from a blocked address waits too. If many clients share an address
// (loopback, NAT), look the key up first and limit only invalid ones: a key of 256 bits
// cannot be guessed, so the limit then only bounds the noise.
type Limiter struct {
	limits Limits

	mu sync.Mutex
	// full holds, for each address with failures, the instant at which its bucket is full
	// again (GCRA's theoretical arrival time).
	full  map[netip.Prefix]time.Duration
	rest  time.Duration // of the shared bucket
	swept time.Duration // when the table was last cleared of the forgiven
}

// NewLimiter checks the limits. Errors name the field, its value and its bounds.
func NewLimiter(l Limits) (*Limiter, error) {
	l.Burst = cmp.Or(l.Burst, 10)
	l.Every = cmp.Or(l.Every, 6*time.Second)
	l.Addresses = cmp.Or(l.Addresses, 4096)
	switch {
	case l.Burst < 1 || l.Burst > 1000:
		return nil, fmt.Errorf("keys: Burst is %d, must be from 1 to 1000", l.Burst)
	case l.Every < time.Millisecond || l.Every > time.Hour:
		return nil, fmt.Errorf("keys: Every is %v, must be from 1ms to 1h", l.Every)
	case l.Addresses < 1 || l.Addresses > 1_000_000:
		return nil, fmt.Errorf("keys: Addresses is %d, must be from 1 to 1000000", l.Addresses)
	}
	return &Limiter{limits: l, full: make(map[netip.Prefix]time.Duration)}, nil
}

// Blocked reports whether the address has used up its failures, and for how long. The
// address is in the form of [net/http.Request], with or without a port; invalid ones
// share one bucket. The instant now counts from an origin that the caller chooses; if it
// goes back, no address is freed early.
func (l *Limiter) Blocked(now time.Duration, address string) (retryIn time.Duration, blocked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full, known := l.full[block(address)]
	if !known && len(l.full) >= l.limits.Addresses {
		full = l.rest
	}
	// One more failure must still fit into the bucket.
	retryIn = full - now - time.Duration(l.limits.Burst-1)*l.limits.Every
	return max(0, retryIn), retryIn > 0
}

// Failed counts one failure of the address.
func (l *Limiter) Failed(now time.Duration, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := block(address)
	full, known := l.full[at]
	if !known && len(l.full) >= l.limits.Addresses {
		l.sweep(now)
	}
	if !known && len(l.full) >= l.limits.Addresses {
		l.rest = l.fuller(now, l.rest)
		return
	}
	l.full[at] = l.fuller(now, full)
}

// fuller adds one failure to a bucket. Failures beyond its size add nothing, so that no
// address is blocked for longer than the bucket takes to refill.
func (l *Limiter) fuller(now, full time.Duration) time.Duration {
	size := time.Duration(l.limits.Burst) * l.limits.Every
	if full > now+size {
		return full // time ran backwards
	}
	return min(max(full, now)+l.limits.Every, now+size)
}

// sweep forgets the addresses whose buckets are full. It walks the whole table, so it
// does that at most once in the time of one refilled failure.
func (l *Limiter) sweep(now time.Duration) {
	if now < l.swept {
		return
	}
	l.swept = now + l.limits.Every
	for at, full := range l.full {
		if full <= now {
			delete(l.full, at)
		}
	}
}

// block returns the network that an address counts with; zero if the address is invalid.
func block(address string) netip.Prefix {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		port, err := netip.ParseAddrPort(address)
		if err != nil {
			return netip.Prefix{}
		}
		ip = port.Addr()
	}
	ip = ip.Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // of an address that was just read, there is always one
	}
	return p
}
