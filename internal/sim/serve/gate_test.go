package serve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/serve"
)

// till is an API whose calls cost five, and use seven and two.
type till struct{}

func (till) Mount(mux *http.ServeMux, gate *serve.Gate) {
	mux.HandleFunc("/till", func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Key")
		if !gate.Knows(key) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		v, ok := gate.Enter(w, r, serve.Call{Key: serve.KeyID(key), Model: "m", Cost: 5})
		if !ok {
			return
		}
		defer v.Leave()
		if !v.Admitted {
			v.WriteHeader(http.StatusTeapot)
			return
		}
		v.Use(serve.Usage{Input: 7})
		v.Use(serve.Usage{Output: 2})
		v.Free()
		_, _ = io.WriteString(v, v.Quotas[0].ResetAt.UTC().Format(time.TimeOnly)) // read by the test
	})
	mux.HandleFunc("GET /conversations", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
}

func TestAnAPIMeetsTheLimitsInItsOwnWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := server(t, `
name: till
provider:
  latency: {p50: 10s, uplink_p50: 1s, uplink_p99: 1s}
  limits: [{kind: cost_window, limit: 12, window: 1m}]
`, serve.Options{APIs: []serve.API{till{}}, Log: &log})
		visit := func(path, key string, timeout time.Duration) *httptest.ResponseRecorder {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
			r.Header.Set("Key", key)
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			return w
		}
		const patient = time.Minute
		if w := visit("/till", "", patient); w.Code != 403 {
			t.Errorf("%d without a key, want the API's own 403", w.Code)
		}
		if w := visit("/conversations", "", patient); w.Code != 410 {
			t.Errorf("%d, want the API's path to win", w.Code)
		}
		if w := visit("/till", "a", patient); w.Code != 200 || w.Body.String() != "00:01:01" {
			t.Errorf("%d %q, want the reset a minute after the arrival", w.Code, w.Body)
		}
		visit("/till", "a", time.Second/2)         // never arrived
		visit("/till", "b", 3*time.Second)         // left while it was worked on
		visit("/till", "b", 1500*time.Millisecond) // left before it heard the refusal
		if w := visit("/till", "b", patient); w.Code != 418 {
			t.Errorf("%d, want the API's own refusal", w.Code)
		}
		var statuses []int
		for _, e := range entries(t, &log) {
			statuses = append(statuses, e.Status)
			if e.Cost != 5 || e.Model != "m" || e.Path != "/till" {
				t.Errorf("entry %+v, want what the API reported", e)
			}
		}
		if want := []int{200, 499, 429, 418}; len(statuses) != 4 || [4]int(statuses) != [4]int(want) {
			t.Errorf("log has %v, want %v", statuses, want)
		}
		st := s.Stats()
		a := serve.KeyCounts{Counts: provider.Counts{Admitted: 1}, Charged: 5, Usage: serve.Usage{Input: 7, Output: 2}}
		b := serve.KeyCounts{Counts: provider.Counts{Admitted: 1, Throttled: 2}, Charged: 5}
		if st.ByKey[serve.KeyID("a")] != a || st.ByKey[serve.KeyID("b")] != b || st.InFlight != 0 || st.Unauthorized != 1 {
			t.Errorf("stats %+v, want %+v and %+v", st, a, b)
		}
		if st.Counts != st.ByPath["/till"] || st.Admitted != 2 || st.Throttled != 2 {
			t.Errorf("stats %+v, want all of it at one path", st)
		}
	})
}

// desk is an API whose callers have limits of their own, and keep it busy for ten
// seconds. It writes two rows, and cuts the connection of those who want that.
type desk struct{}

func (desk) Report() (name string, did any) { return "desk", map[string]int{"visits": 7} }

func (desk) Mount(mux *http.ServeMux, gate *serve.Gate) {
	mux.HandleFunc("/desk", func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Key")
		v, ok := gate.Enter(w, r, serve.Call{Key: key, Scope: r.Header.Get("Scope"), Cost: 1, Busy: 10 * time.Second})
		if !ok {
			return
		}
		defer v.Leave()
		if !v.Admitted {
			v.WriteHeader(v.Status)
			return
		}
		v.Wrote(2)
		if r.URL.RawQuery == "cut" {
			v.Cut()
			return
		}
		_, _ = io.WriteString(v, fmt.Sprint(v.Quotas[0].Remaining)) // read by the test
	})
}

func TestScopesHaveTheLimitsToThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := server(t, `
name: desk
provider:
  latency: {p50: 2ns, uplink_p50: 1ns, uplink_p99: 1ns}
  limits: [{kind: concurrency, limit: 1}]
`, serve.Options{APIs: []serve.API{desk{}}, Log: &log})
		visit := func(scope, query string) int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/desk"+query, nil)
			r.Header.Set("Key", "k")
			r.Header.Set("Scope", scope)
			w := httptest.NewRecorder()
			func() {
				defer func() {
					if p := recover(); p != nil {
						if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
							panic(p)
						}
						w.Code = 0
					}
				}()
				s.ServeHTTP(w, r)
			}()
			return w.Code
		}
		got := []int{visit("a", ""), visit("a", ""), visit("b", "?cut")}
		time.Sleep(10 * time.Second)
		got = append(got, visit("a", ""))
		if diff := cmp.Diff([]int{200, 429, 0, 200}, got); diff != "" {
			t.Errorf("a place is taken for the busy time, by its scope: %s", diff)
		}
		st := s.Stats()
		a, b := st.ByScope["a"], st.ByScope["b"]
		if a.Admitted != 2 || a.Throttled != 1 || a.ByLimit["concurrency 1"] != 1 || b.Admitted != 1 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
		var lines []string
		for e, err := range serve.ReadLog(&log) {
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprint(e.Scope, e.Status, e.Written))
		}
		if diff := cmp.Diff([]string{"a200 2", "a429 0", "b0 2", "a200 2"}, lines); diff != "" {
			t.Error(diff)
		}
	})
}

func TestScopesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server(t, "name: desk\nprovider: {latency: {p50: 2ns, uplink_p50: 1ns, uplink_p99: 1ns}, limits: [{kind: concurrency, limit: 1}]}\n",
			serve.Options{APIs: []serve.API{desk{}}})
		var wg sync.WaitGroup
		for i := range 1002 {
			wg.Go(func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/desk", nil)
				r.Header.Set("Key", "k")
				r.Header.Set("Scope", fmt.Sprint("s", i))
				s.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		wg.Wait()
		st := s.Stats()
		if o := st.ByScope["others"]; len(st.ByScope) != 1001 || o.Admitted != 1 || o.Throttled != 1 {
			t.Errorf("%d scopes, of which others is %+v", len(st.ByScope), o)
		}
	})
}

func TestAnAPIReports(t *testing.T) {
	s := server(t, "name: desk\n", serve.Options{APIs: []serve.API{desk{}}})
	for path, want := range map[string]string{
		"/-/desk": "200 {\"visits\":7}\n", "/-/other": "404 ", "/-/stats": `200 {"admitted":0`,
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if got := fmt.Sprint(w.Code, " ", w.Body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
		if path == "/-/stats" && !strings.Contains(w.Body.String(), `"reports":{"desk":{"visits":7}}`) {
			t.Errorf("stats %s have no report", w.Body)
		}
	}
}
