package egress_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/quota"
)

// bucketed is a provider that serves a bucket of calls and refuses the others without
// a word of when to come back.
type bucketed struct {
	every time.Duration // one call
	holds int
	takes time.Duration

	mu    sync.Mutex
	since time.Time // when the bucket was full last, or would have been
}

func (b *bucketed) RoundTrip(r *http.Request) (*http.Response, error) {
	read(r)
	time.Sleep(b.takes)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if full := now.Add(-time.Duration(b.holds) * b.every); b.since.Before(full) {
		b.since = full
	}
	if now.Sub(b.since) < b.every {
		return reply(r, http.StatusTooManyRequests, nil), nil
	}
	b.since = b.since.Add(b.every)
	return reply(r, http.StatusOK, nil), nil
}

// windowed is a provider that serves so many calls in each minute, and says so.
type windowed struct {
	limit int
	takes time.Duration

	mu   sync.Mutex
	ends time.Time
	left int
}

func (w *windowed) RoundTrip(r *http.Request) (*http.Response, error) {
	read(r)
	time.Sleep(w.takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !now.Before(w.ends) {
		w.left, w.ends = w.limit, now.Truncate(time.Minute).Add(time.Minute)
	}
	status := http.StatusOK
	if w.left == 0 {
		status = http.StatusTooManyRequests
	} else {
		w.left--
	}
	return reply(r, status, http.Header{
		"X-Ratelimit-Limit-Requests":     {strconv.Itoa(w.limit)},
		"X-Ratelimit-Remaining-Requests": {strconv.Itoa(w.left)},
		"X-Ratelimit-Reset-Requests":     {w.ends.Sub(now).String()},
	}), nil
}

// instantly serves every call.
type instantly struct{ takes time.Duration }

func (i instantly) RoundTrip(r *http.Request) (*http.Response, error) {
	read(r)
	time.Sleep(i.takes)
	return reply(r, http.StatusOK, nil), nil
}

func read(r *http.Request) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
}

func reply(r *http.Request, status int, h http.Header) *http.Response {
	body := `{"usage":{"prompt_tokens":10,"completion_tokens":10,"total_tokens":20}}`
	if status != http.StatusOK {
		body = `{"error":{"message":"too many","type":"rate_limit"}}`
	}
	if h == nil {
		h = http.Header{}
	}
	h.Set("Content-Type", "application/json")
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: h, Request: r,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// fair is what two tenants with weights 1 and 3 got.
type fair struct {
	served  map[string]int
	refused int
	ratios  []float64 // of a refusal's Retry-After to the real wait
}

// answered is when the first answers are in, before which nothing is known of waits.
const answered = 10 * time.Second

// contend has 40 workers, so many of the lighter tenant, call for three minutes. Who is refused
// comes back when Retry-After says so; every third instead waits for as long as it takes, by
// another name of the same provider, which shows how long that is. Counted is what was
// served after the first so long.
func contend(t *testing.T, up http.RoundTripper, limits quota.Limits, light int, maxWait, found time.Duration) fair {
	t.Helper()
	c := generous()
	c.Global = limits
	c.Tenants = map[string]quota.Tenant{"light": {Weight: 1}, "heavy": {Weight: 3}}
	pacing, err := headway.New(headway.Config{
		Name: "p", Ceiling: 10 * time.Millisecond, Initial: time.Second, NoBreaker: true, MaxWait: time.Hour, MaxRetryAfter: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	x := newRig(t, provider.OpenAI, up, func(p *egress.Provider, o *egress.Options) {
		p.Approver, p.Pacing, p.MaxWait = newLedger(t, c), pacing, maxWait
		long := *p
		long.Name, long.MaxWait = "long", 10*time.Minute
		o.Providers = append(o.Providers, long)
	})
	var (
		mu    sync.Mutex
		got   = fair{served: map[string]int{}}
		wg    sync.WaitGroup
		began = time.Now()
		end   = began.Add(3 * time.Minute)
	)
	call := func(path, tenant string) (status int, wait time.Duration) {
		res, body, err := x.ask(t, "POST", path+"/v1/chat/completions", chatBody("m", false), "X-Headway-Tenant: "+tenant)
		if err != nil {
			t.Error(err)
			return 0, 0
		}
		if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
			t.Errorf("status %d: %s", res.StatusCode, body)
		}
		said, err := strconv.ParseInt(res.Header.Get("Retry-After-Ms"), 10, 64)
		if err != nil {
			s, _ := strconv.ParseInt(res.Header.Get("Retry-After"), 10, 64)
			said = 1000 * s
		}
		now := time.Now()
		mu.Lock()
		if res.StatusCode == http.StatusOK && now.Before(end) && now.Sub(began) >= found {
			got.served[tenant]++
		}
		mu.Unlock()
		return res.StatusCode, time.Duration(said) * time.Millisecond
	}
	refusals := 0
	for i := range 40 {
		tenant := "light"
		if i*7%40 >= light {
			tenant = "heavy"
		}
		wg.Go(func() {
			for time.Now().Before(end) {
				status, said := call("/p", tenant)
				if status == http.StatusOK {
					continue
				}
				mu.Lock()
				refusals++
				probe := said > 0 && refusals%3 == 0 && time.Since(began) >= max(found, answered) && time.Until(end) > time.Minute
				got.refused++
				mu.Unlock()
				if !probe {
					time.Sleep(max(said, time.Second))
					continue
				}
				asked := time.Now()
				if status, _ := call("/long", tenant); status == http.StatusOK {
					mu.Lock()
					got.ratios = append(got.ratios, float64(said)/float64(time.Since(asked)))
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(got.ratios)
	return got
}

func (f fair) ratio() float64 { return float64(f.served["heavy"]) / float64(f.served["light"]) }

func (f fair) String() string {
	s := fmt.Sprintf("light %d, heavy %d: 1 to %.2f; %d refused", f.served["light"], f.served["heavy"], f.ratio(), f.refused)
	if n := len(f.ratios); n > 0 {
		s += fmt.Sprintf("; Retry-After to real wait of %d: median %.2f, quartiles %.2f and %.2f", n, f.ratios[n/2], f.ratios[n/4], f.ratios[3*n/4])
	}
	return s
}

// Tenants have their shares of whatever limit holds, for every max_wait, and who is
// refused is asked to come back when it would be served.
func TestSharesAreKeptUnderEveryLimit(t *testing.T) {
	unlimited := quota.Limits{CallsPerMinute: 1_000_000}
	for _, limit := range []struct {
		name   string
		up     func() http.RoundTripper
		limits quota.Limits
		found  time.Duration // when the pacing has found the limit
	}{
		{"learned", func() http.RoundTripper {
			return &bucketed{every: time.Second / 2, holds: 5, takes: 100 * time.Millisecond}
		}, unlimited, time.Minute},
		{"advertised", func() http.RoundTripper { return &windowed{limit: 120, takes: 100 * time.Millisecond} }, unlimited, 0},
		{"configured with a burst", func() http.RoundTripper { return instantly{100 * time.Millisecond} }, quota.Limits{CallsPerMinute: 60}, 0},
		{"configured without a burst", func() http.RoundTripper { return instantly{100 * time.Millisecond} }, quota.Limits{CallsPerMinute: 60, Burst: 1}, 0},
	} {
		for _, c := range []struct {
			maxWait time.Duration
			light   int
		}{{15 * time.Second, 20}, {10 * time.Minute, 20}, {15 * time.Second, 30}} {
			bubble(t, fmt.Sprintf("%s, %v, %d of 40", limit.name, c.maxWait, c.light), func(t *testing.T) {
				got := contend(t, limit.up(), limit.limits, c.light, c.maxWait, limit.found)
				t.Log(got)
				if ratio := got.ratio(); ratio < 0.95*3 || ratio > 1.05*3 {
					t.Errorf("shares are 1 to %.2f, want 1 to 3", ratio)
				}
				if all := got.served["light"] + got.served["heavy"]; float64(got.served["light"]) < 0.97*float64(all)/4 {
					t.Errorf("the lighter tenant got %d of %d, want a quarter", got.served["light"], all)
				}
				// Under a limit that is learned some before the caller give up at their own
				// max_wait, so that it is served up to a third sooner than was to be expected.
				within := 0.2
				if limit.found > 0 {
					within = 0.35
				}
				if n := len(got.ratios); n > 5 && math.Abs(got.ratios[n/2]-1) > within {
					t.Errorf("Retry-After is %.2f of the real wait, want within %.2f", got.ratios[n/2], within)
				}
			})
		}
	}
}
