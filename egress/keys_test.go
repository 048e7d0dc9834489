package egress_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// keyed is a provider with a bucket of 60 a minute for each key, which may be revoked.
type keyed struct {
	mu      sync.Mutex
	tokens  map[string]float64
	last    map[string]time.Time
	revoked string
	status  int                       // of what is revoked
	counts  map[string]int            // admitted, by key
	paths   map[string]map[string]int // admitted, by path and key
	bodies  map[string]bool           // lengths that came
}

func newKeyed() *keyed {
	return &keyed{
		tokens: map[string]float64{}, last: map[string]time.Time{}, counts: map[string]int{}, paths: map[string]map[string]int{},
		status: http.StatusUnauthorized, bodies: map[string]bool{},
	}
}

func (k *keyed) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	time.Sleep(50 * time.Millisecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	name, now := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "), time.Now()
	k.bodies[string(body)] = true
	if _, known := k.tokens[name]; !known {
		k.tokens[name] = 5
	} else {
		k.tokens[name] = min(5, k.tokens[name]+now.Sub(k.last[name]).Seconds())
	}
	k.last[name] = now
	status := http.StatusOK
	switch {
	case name == k.revoked, req.URL.Path == "/forbidden":
		status = k.status
	case k.tokens[name] < 1:
		status = http.StatusTooManyRequests
	default:
		k.tokens[name]--
		k.counts[name]++
		if k.paths[req.URL.Path] == nil {
			k.paths[req.URL.Path] = map[string]int{}
		}
		k.paths[req.URL.Path][name]++
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2, Request: req,
	}, nil
}

func (k *keyed) revoke(name string, status int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.revoked, k.status = name, status
}

// several is a proxy before it, as the daemon makes one: keys a, b and c.
type several struct {
	*egress.Proxy
	options egress.Options
	mu      sync.Mutex
	events  []event.Event
	log     bytes.Buffer
}

func newSeveral(t *testing.T, k http.RoundTripper) *several {
	t.Helper()
	d, err := provider.New(provider.Settings{API: provider.HTTP, Upstream: "https://provider.test"})
	if err != nil {
		t.Fatal(err)
	}
	p := egress.Provider{Name: "p", Description: d, Roundtripper: k}
	for _, name := range []string{"a", "b", "c"} {
		g, err := headway.New(headway.Config{Name: name, Passive: true, NoBreaker: true, MaxWait: egress.DefaultMaxWait})
		if err != nil {
			t.Fatal(err)
		}
		p.Keys = append(p.Keys, egress.Credential{Name: name, Key: "secret-" + name, Pacing: g})
	}
	s := &several{}
	s.options = egress.Options{
		Providers: []egress.Provider{p}, Log: slog.New(slog.NewTextHandler(&s.log, nil)),
		OnKey: func(e event.Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e)
		},
	}
	if s.Proxy, err = egress.New(s.options); err != nil {
		t.Fatal(err)
	}
	return s
}

// call makes one call and gives its status.
func (s *several) call(path, body, affinity string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/p"+path, strings.NewReader(body))
	r.URL = &url.URL{Path: "/p" + path}
	if affinity != "" {
		r.Header.Set("X-Headway-Affinity", affinity)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// busy keeps nine clients calling for a time, which pause for a second when they are refused. It
// gives how often each status was answered.
func (s *several) busy(d time.Duration) map[int]int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	end := time.Now().Add(d)
	for range 9 {
		wg.Go(func() {
			for time.Now().Before(end) {
				w := s.call("/x", `{"a":1}`, "")
				mu.Lock()
				statuses[w.Code]++
				mu.Unlock()
				if w.Code == http.StatusTooManyRequests {
					time.Sleep(time.Second)
				}
			}
		})
	}
	wg.Wait()
	return statuses
}

// TestSeveralKeysReachTheSumOfTheirLimits: of 60 a minute each, a passive start and no
// word of the provider on its limits.
func TestSeveralKeysReachTheSumOfTheirLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed()
		s := newSeveral(t, k)
		statuses := s.busy(20 * time.Minute)
		n := k.counts["secret-a"] + k.counts["secret-b"] + k.counts["secret-c"]
		t.Logf("%.1f a minute of 180, by key %v, answered %v", float64(n)/20, k.counts, statuses)
		if float64(n)/20 < 0.95*180 || statuses[200] != n || len(statuses) > 2 {
			t.Errorf("%.1f a minute, want 0.95 of 180; answered %v", float64(n)/20, statuses)
		}
	})
}

// TestARevokedKeyIsSetAside: the calls that met it are answered by the others, body and
// all, and event, status and log name it without its secret.
func TestARevokedKeyIsSetAside(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		synctest.Test(t, func(t *testing.T) {
			k := newKeyed()
			s := newSeveral(t, k)
			s.busy(5 * time.Minute)
			k.revoke("secret-b", status)
			before := k.counts["secret-a"] + k.counts["secret-c"]
			statuses := s.busy(10 * time.Minute)
			if n := k.counts["secret-a"] + k.counts["secret-c"] - before; float64(n)/10 < 0.95*120 || statuses[status] > 0 {
				t.Errorf("%.1f a minute of the 120 that are left, answered %v", float64(n)/10, statuses)
			}
			why := reason.Unauthorized
			if status == http.StatusForbidden {
				why = reason.Forbidden
			}
			if len(s.events) != 1 || s.events[0].Connection != "p/b" || s.events[0].Reason != why || s.events[0].Count != int64(status) || s.events[0].Note != "key_set_aside" {
				t.Errorf("events %+v", s.events)
			}
			all := s.Status()[0].Keys
			if len(all) != 3 || all[1].SetAside.IsZero() || all[1].Status != status || !all[0].SetAside.IsZero() || all[0].Pacing == nil {
				t.Errorf("status %+v", all)
			}
			said, _ := json.Marshal(s.Status())
			said = fmt.Append(said, s.log.String(), s.events)
			if bytes.Contains(said, []byte("secret")) || strings.Count(s.log.String(), "provider_key=b") != 1 {
				t.Errorf("said:\n%s", said)
			}
			if len(k.bodies) != 1 || !k.bodies[`{"a":1}`] {
				t.Errorf("bodies %v", k.bodies)
			}
			if err := s.Replace(s.options); err != nil {
				t.Fatal(err)
			}
			if !s.Status()[0].Keys[1].SetAside.IsZero() {
				t.Error("still set aside after a reload")
			}
		})
	}
}

// TestWhatNoKeyMaySeeCostsNone: the client is answered what the provider says.
func TestWhatNoKeyMaySeeCostsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed()
		k.status = http.StatusForbidden
		s := newSeveral(t, k)
		for range 3 {
			if w := s.call("/forbidden", "{}", ""); w.Code != http.StatusForbidden || w.Body.String() != "{}" {
				t.Errorf("%d %q", w.Code, w.Body)
			}
		}
		if len(s.events) > 0 || s.Status()[0].Attempts != 9 {
			t.Errorf("%d attempts, events %v", s.Status()[0].Attempts, s.events)
		}
	})
}

// TestAnUploadCannotBeSentByAnotherKey: a body that is streamed is not kept; its client is
// answered, and the next calls go by other keys.
func TestAnUploadCannotBeSentByAnotherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed()
		s := newSeveral(t, k)
		k.revoke("secret-a", http.StatusUnauthorized)
		var statuses []int
		for range 4 {
			statuses = append(statuses, s.call("/x", strings.Repeat("x", 2<<20), "").Code)
		}
		if !slices.Equal(statuses, []int{401, 200, 200, 200}) {
			t.Errorf("answered %v", statuses)
		}
	})
}

func TestAffinityKeepsAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed()
		s := newSeveral(t, k)
		used := map[string]bool{}
		for list := range 8 {
			path := fmt.Sprint("/list/", list)
			for range 5 {
				if w := s.call(path, "", path); w.Code != http.StatusOK {
					t.Fatal(w.Code)
				}
				time.Sleep(time.Second)
			}
			if len(k.paths[path]) != 1 {
				t.Errorf("%s went by %v", path, k.paths[path])
			}
			for name := range k.paths[path] {
				used[name] = true
			}
		}
		if len(used) < 2 {
			t.Errorf("all lists went by %v", used)
		}
	})
}

func TestBadKeys(t *testing.T) {
	k := newKeyed()
	s := newSeveral(t, k)
	for want, edit := range map[string]func(p *egress.Provider){
		`key is given beside keys, must be one of both`:             func(p *egress.Provider) { p.Key = "x" },
		`pacing is given beside keys, must be given for each key`:   func(p *egress.Provider) { p.Pacing = p.Keys[0].Pacing },
		`a key's name is B, must be 1 to 64`:                        func(p *egress.Provider) { p.Keys[1].Name = "B" },
		`a key's name is a, must be unique`:                         func(p *egress.Provider) { p.Keys[1].Name = "a" },
		`key b is empty, must be the provider's key`:                func(p *egress.Provider) { p.Keys[1].Key = "" },
		`key c is the same as one before it, must be another`:       func(p *egress.Provider) { p.Keys[2].Key = p.Keys[0].Key },
		`pacing is not given for each key, must be given for each`:  func(p *egress.Provider) { p.Keys[2].Pacing = nil },
		`pacing is not given for each key, must be given for each `: func(p *egress.Provider) { p.Keys[2].Pacing = p.Keys[0].Pacing },
		`keys is 101, must be at most 100`:                          func(p *egress.Provider) { p.Keys = make([]egress.Credential, 101) },
	} {
		p := s.options.Providers[0]
		p.Keys = slices.Clone(p.Keys)
		edit(&p)
		_, err := egress.New(egress.Options{Providers: []egress.Provider{p}})
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// asking is GitHub, of whose limits somebody else has used most.
type asking struct {
	mu     sync.Mutex
	asked  map[string]int
	served []time.Time
	after  time.Duration // that the question takes
	status int
	began  time.Time
}

func (g *asking) RoundTrip(req *http.Request) (*http.Response, error) {
	res := &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1, Request: req}
	body := "{}"
	if req.URL.Path == "/rate_limit" {
		g.mu.Lock()
		g.asked[req.Header.Get("Authorization")]++
		g.mu.Unlock()
		select {
		case <-time.After(g.after):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		res.StatusCode = g.status
		reset := g.began.Add(10 * time.Minute).Unix()
		body = fmt.Sprintf(`{"resources": {"core": {"limit": 5000, "remaining": 3, "reset": %d}, "search": {"limit": 30, "remaining": 30, "reset": %d}}}`, reset, reset)
	} else {
		g.mu.Lock()
		g.served = append(g.served, time.Now())
		g.mu.Unlock()
	}
	res.Body = io.NopCloser(strings.NewReader(body))
	return res, nil
}

// TestLimitsAreAskedForBeforeTheFirstCall: once for each key, and calls wait for the
// answer a second at most.
func TestLimitsAreAskedForBeforeTheFirstCall(t *testing.T) {
	for _, tt := range []struct {
		name    string
		after   time.Duration
		status  int
		pass    bool
		first   time.Duration // until the first call is sent
		few     bool          // of the calls are sent
		failure bool
	}{
		{"answered", 100 * time.Millisecond, 200, false, 100 * time.Millisecond, true, false},
		{"slow", 3 * time.Second, 200, false, time.Second, false, false},
		{"not answered", time.Hour, 200, false, time.Second, false, true},
		{"refused", 0, 404, false, 0, false, true},
		{"the clients' own keys", 0, 200, true, 0, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &asking{asked: map[string]int{}, after: tt.after, status: tt.status, began: time.Now()}
				d, err := provider.New(provider.Settings{API: provider.HTTP, Upstream: "https://api.github.com"})
				if err != nil {
					t.Fatal(err)
				}
				pacing, err := headway.New(headway.Config{Passive: true, NoBreaker: true, MaxWait: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				profile, err := provider.FindProfile("github")
				if err != nil {
					t.Fatal(err)
				}
				p := egress.Provider{Name: "p", Description: d, Key: "secret", Pacing: pacing, Profile: profile, Roundtripper: g, MaxWait: 2 * time.Second}
				if tt.pass {
					p.Key = ""
				}
				s := &several{}
				s.options = egress.Options{Providers: []egress.Provider{p}, Log: slog.New(slog.NewTextHandler(&s.log, nil))}
				if s.Proxy, err = egress.New(s.options); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					var wg sync.WaitGroup
					for range 4 {
						wg.Go(func() {
							r := httptest.NewRequest(http.MethodGet, "/p/repos/a/b", nil)
							r.Header.Set("Authorization", "Bearer client")
							s.ServeHTTP(httptest.NewRecorder(), r)
						})
					}
					wg.Wait()
				}
				if (len(g.served) <= 3) != tt.few || g.served[0].Sub(g.began) != tt.first {
					t.Errorf("%d calls were sent, the first after %v", len(g.served), g.served[0].Sub(g.began))
				}
				time.Sleep(15 * time.Second)
				synctest.Wait()
				if failed := strings.Contains(s.log.String(), "could not be asked for"); failed != tt.failure {
					t.Errorf("logged:\n%s", &s.log)
				}
				if err := s.Replace(s.options); err != nil {
					t.Fatal(err)
				}
				s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/p/repos/a/b", nil))
				want := 1
				if tt.pass {
					want = 0
				}
				if n := g.asked["Bearer secret"]; n != want || len(g.asked) > 1 {
					t.Errorf("asked %v, want %d", g.asked, want)
				}
			})
		})
	}
}
