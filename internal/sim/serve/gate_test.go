package serve_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

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
		visit := func(path, key string, patience time.Duration) *httptest.ResponseRecorder {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
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
				t.Errorf("entry %+v, want what the API told", e)
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
