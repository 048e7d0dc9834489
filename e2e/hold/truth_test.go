//go:build unix

package hold_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/headway-go/headway/sim/scenario"
	"github.com/headway-go/headway/sim/serve"
)

// truth is what a provider has: records by id, in one spelling.
type truth struct {
	conversations, messages map[string]string
	// order is the list's.
	order []string
}

// unlimited serves data without any limit, in this process.
func unlimited(t *testing.T, data serve.Options) *serve.Server {
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

// truthOf reads everything that a provider with these data has.
func truthOf(t *testing.T, data serve.Options) truth {
	t.Helper()
	data.Token = ""
	server := httptest.NewServer(unlimited(t, data))
	defer server.Close()
	all := truth{conversations: map[string]string{}, messages: map[string]string{}}
	for cursor, more := "", true; more; {
		var page struct {
			Items []json.RawMessage
			Next  *string `json:"next_cursor"`
		}
		get(t, server.URL+"/conversations?"+url.Values{"limit": {"100"}, "cursor": {cursor}}.Encode(), &page)
		for _, raw := range page.Items {
			id, text := spell(t, raw)
			all.order, all.conversations[id] = append(all.order, id), text
			var detail struct{ Messages []json.RawMessage }
			get(t, server.URL+"/conversations/"+id, &detail)
			for _, raw := range detail.Messages {
				message, text := spell(t, raw)
				all.messages[message] = text
			}
		}
		if more = page.Next != nil; more {
			cursor = *page.Next
		}
	}
	if len(all.order) != data.Conversations || len(all.conversations) != data.Conversations {
		t.Fatalf("the truth has %d conversations, want %d", len(all.order), data.Conversations)
	}
	return all
}

func get(t *testing.T, address string, into any) {
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

// spell is a record's id, and the record with its fields in one order.
func spell(t *testing.T, raw json.RawMessage) (id, text string) {
	t.Helper()
	var record map[string]any
	if err := json.Unmarshal(raw, &record); err != nil {
		t.Fatalf("%.200q is no record: %v", raw, err)
	}
	b, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	id, _ = record["id"].(string)
	return id, string(b)
}

// same fails unless got is exactly want; it names a few ids that differ.
func same(t *testing.T, what string, got, want map[string]string) {
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
