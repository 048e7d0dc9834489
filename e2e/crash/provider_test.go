//go:build unix

package crash_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
)

// provider serves conversations with messages. It lists them by number; a page's cursor has
// the last number of the page before.
type provider struct {
	page   int
	served *httptest.Server

	mu            sync.Mutex
	conversations []conversation
	// swamped makes every request for a detail fail.
	swamped bool
	details int    // requests for details, whatever the response
	known   *truth // since the last update; nil until truth is called
}

// conversation is one of the provider's conversations. Each version has one message more
// than the one before, and another text in the first message.
type conversation struct {
	id      string
	number  int
	version int
	// sick is how many more requests for its messages fail with this status; negative means
	// all.
	sick   int
	status int
	// missed reports that the messages of its first version could never be fetched.
	missed bool
}

// condition says how requests for a new conversation fail.
type condition struct{ sick, status int }

// newProvider serves n conversations; ill returns their conditions.
func newProvider(t *testing.T, n, page int, ill func(i int) condition) *provider {
	p := &provider{page: page}
	for i := range n {
		c := ill(i)
		p.conversations = append(p.conversations, conversation{
			id: name(i), number: i, version: 1, sick: c.sick, status: c.status, missed: c.sick != 0,
		})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /conversations", p.list)
	mux.HandleFunc("GET /conversations/{id}", p.detail)
	p.served = harness.Serve(t, mux)
	return p
}

func name(i int) string { return fmt.Sprintf("c%05d", i) }

// update changes every third conversation and adds one. Conversations that failed for a
// while work again.
func (p *provider) update() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.conversations {
		c := &p.conversations[i]
		if i%3 == 0 {
			c.version++
		}
		c.sick = min(c.sick, 0)
	}
	p.known = nil
	next := len(p.conversations)
	p.conversations = append(p.conversations, conversation{id: name(next), number: next, version: 1})
}

func (p *provider) swamp(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swamped = on
}

// record is a record of either stream, as stored in a sink.
type record struct{ ID, Title, UpdatedAt, Text string }

// item returns the conversation's list record in a version. The first versions were written
// one after another, later versions of all conversations at one instant.
func (c conversation) item(version int) record {
	at := time.Date(2024, 1, version, 0, 0, 0, 0, time.UTC)
	if version == 1 {
		at = at.Add(time.Duration(c.number) * time.Second)
	}
	return record{ID: c.id, Title: fmt.Sprintf("%s, version %d", c.id, version), UpdatedAt: at.Format(time.RFC3339)}
}

// messages returns the conversation's messages in a version.
func (c conversation) messages(version int) []record {
	var all []record
	for m := range 2 + version {
		text := "of all versions"
		if m == 0 {
			text = fmt.Sprintf("of version %d", version)
		}
		// The text is so long that a large page exceeds the sink's buffer, and some
		// processes die with half a slice on disk.
		all = append(all, record{ID: fmt.Sprintf("%s-m%d", c.id, m), Text: strings.Repeat(text+" ", 45)})
	}
	return all
}

func (p *provider) list(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := 0
	if after := r.FormValue("cursor"); after != "" {
		n, err := number(after)
		if err != nil {
			http.Error(w, "no such cursor", http.StatusBadRequest)
			return
		}
		from = n + 1
	}
	items, next := []map[string]string{}, ""
	for i := from; i < len(p.conversations); i++ {
		c := p.conversations[i]
		it := c.item(c.version)
		if it.UpdatedAt < r.FormValue("updated_after") {
			continue
		}
		if len(items) == p.page {
			next = cursor(i - 1)
			break
		}
		items = append(items, map[string]string{"id": it.ID, "title": it.Title, "updated_at": it.UpdatedAt})
	}
	answer(w, map[string]any{"items": items, "next_cursor": next})
}

// cursor returns the cursor after conversation i.
func cursor(i int) string { return "after-" + strconv.Itoa(i) }

// number returns the number of the last conversation before a cursor.
func number(cursor string) (int, error) { return strconv.Atoi(strings.TrimPrefix(cursor, "after-")) }

func (p *provider) detail(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.details++
	i, err := strconv.Atoi(strings.TrimPrefix(r.PathValue("id"), "c"))
	switch {
	case err != nil || i < 0 || i >= len(p.conversations):
		http.NotFound(w, r)
		return
	case p.swamped:
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	c := &p.conversations[i]
	if c.sick != 0 {
		c.sick = max(c.sick-1, -1)
		http.Error(w, "not now", cmp.Or(c.status, http.StatusInternalServerError))
		return
	}
	messages := []map[string]string{}
	for _, m := range c.messages(c.version) {
		messages = append(messages, map[string]string{"id": m.ID, "text": m.Text})
	}
	answer(w, map[string]any{"messages": messages})
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client may have been killed
}

// truth is what a sink may and must contain.
type truth struct {
	conversations, messages map[string]versions
	// gone are the conversations whose messages could never be fetched, and sick those
	// whose messages could not be fetched at first.
	gone, sick map[string]bool
	order      []string
}

// versions are the texts of a record, the newest last.
type versions []record

// truth returns what the provider has and had. Callers share the result and must not change
// it.
func (p *provider) truth() truth {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known != nil {
		return *p.known
	}
	all := truth{
		conversations: map[string]versions{}, messages: map[string]versions{},
		gone: map[string]bool{}, sick: map[string]bool{},
	}
	for _, c := range p.conversations {
		all.order = append(all.order, c.id)
		all.gone[c.id], all.sick[c.id] = c.sick < 0, c.missed
		for v := 1; v <= c.version; v++ {
			all.conversations[c.id] = append(all.conversations[c.id], c.item(v))
			if c.sick < 0 {
				continue
			}
			for _, m := range c.messages(v) {
				if !slices.Contains(all.messages[m.ID], m) {
					all.messages[m.ID] = append(all.messages[m.ID], m)
				}
			}
		}
	}
	p.known = &all
	return all
}

// of returns the conversation of a message.
func of(message string) string {
	id, _, _ := strings.Cut(message, "-")
	return id
}
