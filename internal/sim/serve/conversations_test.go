package serve_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/golden"
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

// walk pages through everything.
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
