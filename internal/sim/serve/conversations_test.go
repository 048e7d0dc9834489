package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

type item struct {
	ID           string    `json:"id"`
	Title        string    `json:"title"`
	UpdatedAt    time.Time `json:"updated_at"`
	MessageCount int       `json:"message_count"`
}

type listing struct {
	Items      []item  `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

type detail struct {
	ID        string    `json:"id"`
	Title     string    `json:"title"`
	UpdatedAt time.Time `json:"updated_at"`
	Messages  []struct {
		ID, Role, Text string
		CreatedAt      time.Time `json:"created_at"`
	}
}

// tester is what *testing.T and *rapid.T have in common here.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

func open(t tester, opt serve.Options) *serve.Server {
	t.Helper()
	cfg, err := scenario.Parse("test.yaml", []byte(unlimited))
	if err != nil {
		t.Fatalf("%v", err)
	}
	s, err := serve.New(cfg, opt)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

// ask calls the handler directly and wants a status.
func ask(t tester, s *serve.Server, path string, status int, out any) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if w.Code != status {
		t.Fatalf("%s: status %d, want %d: %s", path, w.Code, status, w.Body)
	}
	if out != nil {
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return w.Body.Bytes()
}

// walk reads all pages.
func walk(t tester, s *serve.Server, limit int, after string) []item {
	t.Helper()
	var all []item
	query := url.Values{"limit": {fmt.Sprint(limit)}}
	if after != "" {
		query.Set("updated_after", after)
	}
	for {
		var page listing
		ask(t, s, "/conversations?"+query.Encode(), 200, &page)
		if len(page.Items) > limit {
			t.Fatalf("%d items in a page of %d", len(page.Items), limit)
		}
		all = append(all, page.Items...)
		if page.NextCursor == nil {
			return all
		}
		query.Set("cursor", *page.NextCursor)
	}
}

func TestPagingCoversAllExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "conversations")
		s := open(t, serve.Options{
			Seed: rapid.Uint64().Draw(t, "seed"), Conversations: n,
			Updated: rapid.IntRange(0, n).Draw(t, "updated"),
		})
		all := walk(t, s, rapid.IntRange(1, 100).Draw(t, "limit"), "")
		ids := make(map[string]bool)
		for i, it := range all {
			ids[it.ID] = true
			if i > 0 && !all[i-1].UpdatedAt.Before(it.UpdatedAt) {
				t.Fatalf("item %d changed at %s, the one before at %s", i, it.UpdatedAt, all[i-1].UpdatedAt)
			}
		}
		if len(all) != n || len(ids) != n {
			t.Fatalf("%d items with %d ids, want %d", len(all), len(ids), n)
		}
		// updated_after gives exactly what is later, also between pages.
		from := rapid.IntRange(0, n-1).Draw(t, "from")
		rest := walk(t, s, 7, all[from].UpdatedAt.Format(time.RFC3339Nano))
		if !slices.Equal(rest, all[from+1:]) {
			t.Fatalf("%d items after item %d of %d", len(rest), from, n)
		}
	})
}

// TestSecondStartShowsOnlyWhatIsNew: with more conversations and updates, the
// watermark of the first start finds exactly the new and the updated ones, and
// all others are as they were.
func TestSecondStartShowsOnlyWhatIsNew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		n := rapid.IntRange(1, 100).Draw(t, "first")
		more := rapid.IntRange(0, 50).Draw(t, "more")
		updated := rapid.IntRange(0, n).Draw(t, "updated")
		before := open(t, serve.Options{Seed: seed, Conversations: n})
		after := open(t, serve.Options{Seed: seed, Conversations: n + more, Updated: updated})
		old := walk(t, before, 50, "")
		known := make(map[string]item)
		for _, it := range old {
			known[it.ID] = it
		}
		fresh := walk(t, after, 50, old[len(old)-1].UpdatedAt.Format(time.RFC3339Nano))
		if len(fresh) != more+updated {
			t.Fatalf("%d items are new, want %d and %d", len(fresh), more, updated)
		}
		for _, it := range fresh {
			was, ok := known[it.ID]
			if ok && (it.MessageCount != was.MessageCount+1 || it.Title != was.Title) {
				t.Fatalf("%+v was %+v, want one more message", it, was)
			}
			delete(known, it.ID)
			if ok {
				grown(t, before, after, it.ID)
			}
		}
		if len(known) != n-updated {
			t.Fatalf("%d are unchanged, want %d", len(known), n-updated)
		}
		for id := range known {
			a, b := ask(t, before, "/conversations/"+id, 200, nil), ask(t, after, "/conversations/"+id, 200, nil)
			if string(a) != string(b) {
				t.Fatalf("%s is not what it was", id)
			}
		}
	})
}

func grown(t tester, before, after *serve.Server, id string) {
	t.Helper()
	var a, b detail
	ask(t, before, "/conversations/"+id, 200, &a)
	ask(t, after, "/conversations/"+id, 200, &b)
	last := len(b.Messages) - 1
	if last != len(a.Messages) || !slices.Equal(a.Messages, b.Messages[:last]) || !b.Messages[last].CreatedAt.Equal(b.UpdatedAt) {
		t.Fatalf("%s has %d messages, had %d, or they are others", id, last+1, len(a.Messages))
	}
}

func TestListAndDetailAgree(t *testing.T) {
	s := open(t, serve.Options{Seed: 9, Conversations: 400, Updated: 30})
	total := 0
	for _, it := range walk(t, s, 1000, "") {
		var d detail
		ask(t, s, "/conversations/"+it.ID, 200, &d)
		if d.ID != it.ID || d.Title != it.Title || !d.UpdatedAt.Equal(it.UpdatedAt) || len(d.Messages) != it.MessageCount {
			t.Fatalf("%+v is listed as %+v", d, it)
		}
		for j, m := range d.Messages {
			if m.Text == "" || m.ID == "" || j > 0 && !d.Messages[j-1].CreatedAt.Before(m.CreatedAt) {
				t.Fatalf("message %d of %s is empty or out of order", j, it.ID)
			}
		}
		if last := d.Messages[len(d.Messages)-1]; !last.CreatedAt.Equal(d.UpdatedAt) {
			t.Fatalf("%s was updated at %s, its last message is of %s", it.ID, d.UpdatedAt, last.CreatedAt)
		}
		total += len(d.Messages)
	}
	if mean := float64(total) / 400; mean < 7 || mean > 9 {
		t.Errorf("%g messages a conversation, want about 8", mean)
	}
}

func TestSeedDecidesTheData(t *testing.T) {
	body := func(seed uint64) string {
		return string(ask(t, open(t, serve.Options{Seed: seed}), "/conversations?limit=1000", 200, nil))
	}
	first := body(1)
	if again := body(1); first != again {
		t.Error("the same seed gave other data")
	}
	if first == body(2) {
		t.Error("another seed gave the same data")
	}
}

func TestLargestAmountStaysInThePast(t *testing.T) {
	s := open(t, serve.Options{Conversations: 100_000, Updated: 100_000})
	all := walk(t, s, 1000, "")
	if last := all[len(all)-1]; len(all) != 100_000 || last.UpdatedAt.Year() != 2024 {
		t.Errorf("%d items, the last of %s, want 100,000 within 2024", len(all), last.UpdatedAt)
	}
}

func TestBadRequests(t *testing.T) {
	s := open(t, serve.Options{Conversations: 10})
	for path, status := range map[string]int{
		"/conversations?limit=0":                            400,
		"/conversations?limit=1001":                         400,
		"/conversations?limit=many":                         400,
		"/conversations?updated_after=today":                400,
		"/conversations?cursor=nonsense":                    400,
		"/conversations?cursor=%21%21":                      400,
		"/conversations?cursor=YWZ0ZXI6MDE":                 400, // after:01, not how it is written
		"/conversations?limit=10":                           200,
		"/conversations/c000009":                            200,
		"/conversations/c000010":                            404,
		"/conversations/c9":                                 404,
		"/conversations/-1":                                 404,
		"/conversations/c000000/messages":                   404,
		"/conversations?updated_after=2030-01-01T00:00:00Z": 200,
	} {
		ask(t, s, path, status, nil)
	}
}

func FuzzCursor(f *testing.F) {
	golden.Seeds(f)
	f.Add("YWZ0ZXI6MQ")
	f.Add("")
	f.Add("!!!!")
	s := open(f, serve.Options{Conversations: 10})
	f.Fuzz(func(t *testing.T, cursor string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/conversations", nil)
		r.URL.RawQuery = url.Values{"cursor": {cursor}, "updated_after": {cursor}}.Encode()
		s.ServeHTTP(w, r)
		if w.Code != 200 && w.Code != 400 || w.Code == 400 && cursor == "" {
			t.Errorf("cursor %q gives %d", cursor, w.Code)
		}
	})
}

// till is an API whose calls are charged five units first; later they turn out to use
// seven, or two.
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

// desk is an API with limits for each caller. A call takes ten seconds and writes two rows.
// With the query "cut" it cuts the connection.
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
