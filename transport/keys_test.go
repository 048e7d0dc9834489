package transport_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/transport"
)

// keyed is a provider with a bucket of 60 a minute for each key, which may be revoked.
type keyed struct {
	mu      sync.Mutex
	tokens  map[string]float64
	last    map[string]time.Time
	revoked string
	counts  map[string]int // admitted, by key
	lists   map[string]map[string]int
}

func (k *keyed) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(50 * time.Millisecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	name, now := req.Header.Get("Authorization"), time.Now()
	status := http.StatusOK
	if _, known := k.tokens[name]; !known {
		k.tokens[name] = 5
	} else {
		k.tokens[name] = min(5, k.tokens[name]+now.Sub(k.last[name]).Seconds())
	}
	k.last[name] = now
	switch {
	case name == k.revoked:
		status = http.StatusUnauthorized
	case k.tokens[name] < 1:
		status = http.StatusTooManyRequests
	default:
		k.tokens[name]--
		k.counts[name]++
		if list := req.URL.Path; list != "/" {
			if k.lists[list] == nil {
				k.lists[list] = map[string]int{}
			}
			k.lists[list][name]++
		}
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
}

// revoke has the provider refuse a key from now on.
func (k *keyed) revoke(name string) {
	k.mu.Lock()
	k.revoked = name
	k.mu.Unlock()
}

func newKeyed(t *testing.T) (*keyed, *transport.Keys) {
	t.Helper()
	k := &keyed{tokens: map[string]float64{}, last: map[string]time.Time{}, counts: map[string]int{}, lists: map[string]map[string]int{}}
	var keys []transport.Key
	for _, name := range []string{"a", "b", "c"} {
		g, err := transport.NewGovernor(transport.Config{Name: name, Ceiling: 20 * time.Millisecond, Initial: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, transport.Key{Name: name, Governor: g, Sign: func(req *http.Request) error {
			req.Header.Set("Authorization", name)
			return nil
		}})
	}
	all, err := transport.NewKeys(keys, transport.Options{Base: k})
	if err != nil {
		t.Fatal(err)
	}
	return k, all
}

// askFor keeps six callers busy for a time, and gives how many requests ended otherwise
// than with 200 or, when all retries were refused too, 429.
func askFor(all *transport.Keys, d time.Duration) (failed int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	end := time.Now().Add(d)
	for range 6 {
		wg.Go(func() {
			for time.Now().Before(end) {
				req, _ := http.NewRequest(http.MethodGet, "http://provider.test/", nil)
				res, err := all.RoundTrip(req)
				if err != nil || res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

func (k *keyed) sum() (n int) {
	for _, c := range k.counts {
		n += c
	}
	return n
}

func TestThreeKeysReachTheSumOfTheirLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, all := newKeyed(t)
		failed := askFor(all, time.Hour)
		if perMin := float64(k.sum()) / 60; perMin < 0.95*180 || failed > 0 {
			t.Errorf("%.1f a minute, want 0.95 of 180; %d failed; %v", perMin, failed, k.counts)
		} else {
			t.Logf("%.1f a minute of 180, by key %v", perMin, k.counts)
		}
	})
}

func TestARevokedKeyIsSetAsideAndTheOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, all := newKeyed(t)
		var aside []string
		all.SetAside = func(name string, status int) {
			if status == http.StatusUnauthorized {
				aside = append(aside, name)
			}
		}
		failed := askFor(all, 10*time.Minute)
		k.revoke("b")
		before := k.counts["b"]
		failed += askFor(all, 20*time.Minute)
		if failed > 0 || !slices.Equal(aside, []string{"b"}) || !slices.Equal(all.Aside(), aside) {
			t.Errorf("%d failed, set aside %v, %v", failed, aside, all.Aside())
		}
		if k.counts["b"] != before || float64(k.counts["a"]+k.counts["c"]) < 0.93*30*120 {
			t.Errorf("%v", k.counts)
		}
	})
}

func TestWhatAllKeysAreRefusedIsNotAboutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := newKeyed(t)
		all.SetAside = func(name string, _ int) { t.Errorf("%s was set aside", name) }
		req, _ := http.NewRequest(http.MethodGet, "http://provider.test/", nil)
		closed, err := transport.NewKeys(nil, transport.Options{})
		if err == nil {
			t.Errorf("%v without keys", closed)
		}
		if res, err := all.RoundTrip(req); err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("%v, %v", res, err)
		}
	})
}

func TestACursorSticksToItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, all := newKeyed(t)
		used := map[string]bool{}
		for _, list := range []string{"/one", "/two", "/three", "/four", "/five", "/six", "/seven", "/eight"} {
			for range 5 {
				req, _ := http.NewRequestWithContext(transport.WithAffinity(context.Background(), list), http.MethodGet, "http://provider.test"+list, nil)
				if _, err := all.RoundTrip(req); err != nil {
					t.Fatal(err)
				}
			}
			if len(k.lists[list]) != 1 {
				t.Errorf("%s was asked for by %v", list, k.lists[list])
			}
			for name := range k.lists[list] {
				used[name] = true
			}
		}
		if len(used) < 2 {
			t.Errorf("all lists go by %v", used)
		}
	})
}
