package serve

import (
	"cmp"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

const (
	maxConversations     = 100_000
	defaultConversations = 1000
	maxMessages          = 1000
	defaultMessages      = 8

	defaultPage = 50
	maxPage     = 1000

	// Each conversation has a time slot. Its last message is in the first part of the slot;
	// the second half of the last slot has the updates, a millisecond apart. So everything
	// is ordered by construction, and a later start with more conversations adds later
	// data.
	slot       = 5 * time.Minute
	jitterMost = 2 * time.Minute
	updatesAt  = slot / 2
	updateStep = time.Millisecond
	spacing    = 7 * time.Second // between messages

	stamp = "2006-01-02T15:04:05.000Z"
)

// epoch is the time of the first conversation. 100,000 slots later it is still 2024.
var epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// conversations computes the data from seed and index. The zero-based index is the order of
// creation; the position is the order of the last change: first conversations without a
// change, then updated ones.
type conversations struct {
	seed    uint64
	count   int
	mean    int // messages
	updated int // the number of updated conversations, which come first
}

func newConversations(opt Options) (*conversations, error) {
	c := &conversations{seed: opt.Seed, count: opt.Conversations, mean: opt.Messages, updated: opt.Updated}
	c.count = cmp.Or(c.count, defaultConversations)
	c.mean = cmp.Or(c.mean, defaultMessages)
	for _, o := range []struct {
		name            string
		value, low, top int
	}{
		{"Conversations", c.count, 1, maxConversations},
		{"Messages", c.mean, 1, maxMessages},
		{"Updated", c.updated, 0, c.count},
	} {
		if o.value < o.low || o.value > o.top {
			return nil, fmt.Errorf("serve: option %s is %d, must be from %d to %d", o.name, o.value, o.low, o.top)
		}
	}
	return c, nil
}

// at returns the index at a position.
func (c *conversations) at(position int) int {
	if unchanged := c.count - c.updated; position < unchanged {
		return c.updated + position
	}
	return position - (c.count - c.updated)
}

// ended returns when a conversation's original last message was written.
func (c *conversations) ended(index int) time.Time {
	jitter := time.Duration(c.draw(index, 0, uint64(jitterMost/time.Millisecond))) * time.Millisecond
	return epoch.Add(time.Duration(index)*slot + jitter)
}

// changed returns when a conversation was last changed.
func (c *conversations) changed(index int) time.Time {
	if index < c.updated {
		return epoch.Add(time.Duration(c.count-1)*slot + updatesAt + time.Duration(index)*updateStep)
	}
	return c.ended(index)
}

// original returns the original number of messages: 1 to 2*mean-1.
func (c *conversations) original(index int) int {
	return 1 + int(c.draw(index, 1, uint64(2*c.mean-1)))
}

func (c *conversations) messages(index int) int {
	n := c.original(index)
	if index < c.updated {
		n++
	}
	return n
}

// after returns the first position that changed after t.
func (c *conversations) after(t time.Time) int {
	return sort.Search(c.count, func(p int) bool { return c.changed(c.at(p)).After(t) })
}

type summary struct {
	ID           string `json:"id"`
	Title        string `json:"title"`
	UpdatedAt    string `json:"updated_at"`
	MessageCount int    `json:"message_count"`
}

type page struct {
	Items      []summary `json:"items"`
	NextCursor *string   `json:"next_cursor"`
}

func (c *conversations) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit, from := defaultPage, 0
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			problem(w, http.StatusBadRequest, fmt.Sprintf("limit must be a whole number from 1 to %d", maxPage))
			return
		}
		limit = n
	}
	if text := query.Get("updated_after"); text != "" {
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			problem(w, http.StatusBadRequest, "updated_after must be an RFC 3339 time")
			return
		}
		from = c.after(t)
	}
	if text := query.Get("cursor"); text != "" {
		t, ok := readCursor(text)
		if !ok {
			problem(w, http.StatusBadRequest, "cursor is not one that this server gave")
			return
		}
		from = max(from, c.after(t))
	}
	to := min(from+limit, c.count)
	out := page{Items: make([]summary, 0, to-from)}
	for p := from; p < to; p++ {
		i := c.at(p)
		out.Items = append(out.Items, summary{
			ID: name(i), Title: c.words(i, 2, 2, 6), UpdatedAt: c.changed(i).Format(stamp), MessageCount: c.messages(i),
		})
	}
	if to < c.count {
		out.NextCursor = new(cursor(c.changed(c.at(to - 1))))
	}
	writeJSON(w, http.StatusOK, "application/json", out)
}

type message struct {
	ID        string `json:"id"`
	Role      string `json:"role"`
	Text      string `json:"text"`
	CreatedAt string `json:"created_at"`
}

type conversation struct {
	ID        string    `json:"id"`
	Title     string    `json:"title"`
	UpdatedAt string    `json:"updated_at"`
	Messages  []message `json:"messages"`
}

func (c *conversations) one(w http.ResponseWriter, r *http.Request) {
	i, ok := c.index(r.PathValue("id"))
	if !ok {
		problem(w, http.StatusNotFound, "no such conversation")
		return
	}
	n, first := c.messages(i), c.original(i)
	out := conversation{ID: name(i), Title: c.words(i, 2, 2, 6), UpdatedAt: c.changed(i).Format(stamp), Messages: make([]message, n)}
	for j := range out.Messages {
		m := &out.Messages[j]
		m.ID, m.Role = fmt.Sprintf("%s-%04d", out.ID, j), "user"
		if j%2 == 1 {
			m.Role = "assistant"
		}
		m.Text = c.words(i, 16+uint64(j)*128, 6, 60)
		created := c.changed(i)
		if j < first {
			created = c.ended(i).Add(-time.Duration(first-1-j) * spacing)
		}
		m.CreatedAt = created.Format(stamp)
	}
	writeJSON(w, http.StatusOK, "application/json", out)
}

// name returns a conversation's id. Ids sort like indices.
func name(index int) string { return fmt.Sprintf("c%06d", index) }

// index parses an id; ok is false for an id that does not exist.
func (c *conversations) index(id string) (i int, ok bool) {
	i, err := strconv.Atoi(strings.TrimPrefix(id, "c"))
	if err != nil || i < 0 || i >= c.count || name(i) != id {
		return 0, false
	}
	return i, true
}

// cursor is a position that stays valid when the server is restarted with more data: the
// instant of the last listed change.
func cursor(t time.Time) string {
	return base64.RawURLEncoding.EncodeToString([]byte("after:" + strconv.FormatInt(t.UnixMilli(), 10)))
}

func readCursor(text string) (t time.Time, ok bool) {
	if len(text) > 64 {
		return t, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return t, false
	}
	digits, ok := strings.CutPrefix(string(raw), "after:")
	if !ok {
		return t, false
	}
	ms, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || cursor(time.UnixMilli(ms)) != text {
		return t, false
	}
	return time.UnixMilli(ms), true
}

// draw returns a number below n that depends only on seed, index and salt.
func (c *conversations) draw(index int, salt, n uint64) uint64 {
	return Mix(Mix(c.seed+uint64(index)*0x9e3779b97f4a7c15)+salt) % n
}

// Mix is the finaliser of splitmix64, which derives a number from another.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// words returns a text of low to high words. It uses one salt for each word and one more,
// starting with salt.
func (c *conversations) words(index int, salt uint64, low, high int) string {
	var b strings.Builder
	for k := range low + int(c.draw(index, salt, uint64(high-low+1))) {
		if k > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(lexicon[c.draw(index, salt+1+uint64(k), uint64(len(lexicon)))])
	}
	return b.String()
}

// lexicon has the words of conversations.
var lexicon = strings.Fields(`the a this that road train city river bridge signal track platform ticket
	driver timetable minute hour morning evening delay distance speed brake engine wheel line switch tunnel
	station yard load crew shift plan question answer note draft figure table report letter number reason
	please thanks maybe again before after between under over slowly quickly often never always today
	tomorrow north south east west runs stops waits leaves arrives follows carries turns opens closes`)

//go:embed demo.yaml
var demo []byte

// Demo is the built-in scenario: 40 requests a second with a burst of 40,
// Retry-After in seconds, a few milliseconds of latency.
func Demo() *scenario.Scenario {
	s, err := scenario.Parse("demo.yaml", demo)
	if err != nil {
		panic("serve: the embedded scenario is broken: " + err.Error())
	}
	return s
}
