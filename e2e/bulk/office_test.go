//go:build unix

package bulk_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
)

// office is a target that outlives those who load it. It takes rows with an id,
// and does with a batch what a table does: each row of it, or none.
type office struct {
	*httptest.Server
	t testing.TB
	// took is how long a batch takes.
	took time.Duration
	// keyed says that a batch with a key it knows is not written again.
	keyed bool
	// answer decides on a request before it is looked at; ok is false when it is
	// well. It is called under the lock.
	answer func(n int, r request) (reply, bool)
	// refuses says that a row is at fault.
	refuses func(row map[string]any) bool

	mu       sync.Mutex
	requests int
	inFlight int
	keys     map[string]bool
	written  map[string]int // how often, by id
	held     map[string]string
	largest  int // rows of the largest batch that was written
}

// request is what is known of one before its rows are.
type request struct {
	rows, inFlight int
	token          string
}

// reply is an answer in the place of the usual one.
type reply struct {
	status int
	body   string
	header map[string]string
	// writes says that the rows are written all the same.
	writes bool
}

// newOffice is one that does not serve yet: newPlace opens it.
func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{t: t, keys: map[string]bool{}, written: map[string]int{}, held: map[string]string{}}
	o.Server = harness.NewServer(t, http.HandlerFunc(o.handle))
	return o
}

// open begins to serve: from then on its fields are changed and read under the
// lock.
func (o *office) open() {
	if o.URL == "" {
		o.Start()
	}
}

// locked changes how it answers, or looks at what it has, while it serves.
func (o *office) locked(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

func (o *office) handle(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // whoever sent it was killed: half a batch is not a batch
	}
	rows, err := rowsOf(r.URL.Path, body)
	if err != nil {
		o.t.Errorf("a request that is not a batch: %v", err)
		return
	}
	o.mu.Lock()
	o.requests++
	o.inFlight++
	say, told := reply{}, false
	if o.answer != nil {
		if say, told = o.answer(o.requests, request{len(rows), o.inFlight, r.Header.Get("Authorization")}); !told {
			say = reply{}
		}
	}
	o.mu.Unlock()
	if o.took > 0 {
		wait := time.NewTimer(o.took)
		defer wait.Stop()
		<-wait.C
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inFlight--
	results := ""
	if !told || say.writes {
		results = o.write(r.Header.Get("Idempotency-Key"), rows)
	}
	for name, value := range say.header {
		w.Header().Set(name, value)
	}
	if say.status == 0 {
		say.status = http.StatusOK
	}
	if !told || say.body == "" && say.status == http.StatusOK {
		say.body = results
	}
	w.WriteHeader(say.status)
	_, _ = io.WriteString(w, say.body)
}

// rowsOf takes the rows out of a body of either kind of target.
func rowsOf(path string, body []byte) (rows []json.RawMessage, err error) {
	if strings.HasPrefix(path, "/api/data/") {
		var batch struct{ Targets []json.RawMessage }
		err = json.Unmarshal(body, &batch)
		return batch.Targets, err
	}
	err = json.Unmarshal(body, &rows)
	return rows, err
}

// write writes the rows that are not at fault, and gives the result of each.
func (o *office) write(key string, rows []json.RawMessage) string {
	fresh := !o.keyed || !o.keys[key]
	o.keys[key] = true
	o.largest = max(o.largest, len(rows))
	results := make([]string, len(rows))
	for i, raw := range rows {
		var row map[string]any
		if err := json.Unmarshal(raw, &row); err != nil {
			o.t.Errorf("invalid row: %v", err)
			continue
		}
		if o.refuses != nil && o.refuses(row) {
			results[i] = `{"ok":false,"code":"E7","message":"the office does not take this"}`
			continue
		}
		results[i] = `{"ok":true}`
		if fresh {
			id := fmt.Sprint(row["id"])
			o.written[id]++
			o.held[id] = string(raw)
		}
	}
	return "[" + strings.Join(results, ",") + "]"
}

// count is how many rows it holds, and how often it wrote.
func (o *office) count() (held, writes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.written {
		writes += n
	}
	return len(o.held), writes
}
