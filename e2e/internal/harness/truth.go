package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

// Truth is what a provider has. Tests share it: nobody changes it.
type Truth struct {
	// Conversations and Messages are records by id, in one spelling.
	Conversations, Messages map[string]string
	// Order is the list's: page p is Order[p*Size:(p+1)*Size], under Cursors[p].
	Order   []string
	Size    int
	Cursors []string
	// Of are the ids of a conversation's messages.
	Of map[string][]string
}

// Unlimited serves data without any limit, in this process.
func Unlimited(t *testing.T, data serve.Options) *serve.Server {
	t.Helper()
	s, err := scenario.Parse("unlimited.yaml", []byte("name: unlimited\nprovider: {latency: {p50: 0s}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := serve.New(s, data)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// truths are those that were read, by data and page size.
var truths struct {
	sync.Mutex
	read map[[5]uint64]Truth
}

// TruthOf is everything that a provider with these data has, its conversations
// and no mounted data. It is read once for all tests of a package, page by page
// and without a connection.
func TruthOf(t *testing.T, data serve.Options, pageSize int) Truth {
	t.Helper()
	key := [5]uint64{data.Seed, uint64(data.Conversations), uint64(data.Messages), uint64(data.Updated), uint64(pageSize)}
	truths.Lock()
	defer truths.Unlock()
	all, found := truths.read[key]
	if !found {
		all = readTruth(t, data, pageSize)
		if truths.read == nil {
			truths.read = map[[5]uint64]Truth{}
		}
		truths.read[key] = all
	}
	return all
}

func readTruth(t *testing.T, data serve.Options, pageSize int) Truth {
	t.Helper()
	data.Token = "" // these requests are not the program's
	server := Unlimited(t, data)
	all := Truth{Conversations: map[string]string{}, Messages: map[string]string{}, Of: map[string][]string{}, Size: pageSize}
	for cursor, more := "", true; more; {
		all.Cursors = append(all.Cursors, cursor)
		var page struct {
			Items []json.RawMessage
			Next  *string `json:"next_cursor"`
		}
		within(t, server, "/conversations?"+url.Values{"limit": {fmt.Sprint(pageSize)}, "cursor": {cursor}}.Encode(), &page)
		for _, raw := range page.Items {
			id, text := Spell(t, raw)
			all.Order, all.Conversations[id] = append(all.Order, id), text
			var detail struct{ Messages []json.RawMessage }
			within(t, server, "/conversations/"+id, &detail)
			for _, raw := range detail.Messages {
				message, text := Spell(t, raw)
				all.Messages[message], all.Of[id] = text, append(all.Of[id], message)
			}
		}
		if more = page.Next != nil; more {
			cursor = *page.Next
		}
	}
	if len(all.Order) != data.Conversations || len(all.Conversations) != data.Conversations {
		t.Fatalf("the truth has %d conversations, want %d", len(all.Order), data.Conversations)
	}
	return all
}

// within reads the JSON that a handler answers with.
func within(t *testing.T, h http.Handler, target string, into any) {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("%s: status %d", target, answer.Code)
	}
	if err := json.Unmarshal(answer.Body.Bytes(), into); err != nil {
		t.Fatalf("%s: %v", target, err)
	}
}

// Get reads the JSON that stands at an address. Any status but 200 fails the
// test.
func Get(t *testing.T, address string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", address, res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// Spell is a record's id, and the record with its fields in one order.
func Spell(t *testing.T, raw json.RawMessage) (id, text string) {
	t.Helper()
	var record map[string]any
	if err := json.Unmarshal(raw, &record); err != nil {
		t.Fatalf("%.200q is not a record: %v", raw, err)
	}
	b, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	id, _ = record["id"].(string)
	return id, string(b)
}

// Same fails the test unless got is exactly want; it names a few ids that
// differ.
func Same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	var missing, invented, changed []string
	for id, text := range want {
		switch have, ok := got[id]; {
		case !ok:
			missing = append(missing, id)
		case have != text:
			changed = append(changed, id)
		}
	}
	for id := range got {
		if _, ok := want[id]; !ok {
			invented = append(invented, id)
		}
	}
	for kind, ids := range map[string][]string{"missing": missing, "not the provider's": invented, "not as the provider has them": changed} {
		if slices.Sort(ids); len(ids) > 0 {
			t.Errorf("%s: %d of %d are %s: %v", what, len(ids), len(want), kind, ids[:min(len(ids), 5)])
		}
	}
}
