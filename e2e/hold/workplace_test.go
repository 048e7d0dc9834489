//go:build unix

// Package hold_test checks that collections hold: it runs the headway binary
// against full, read-only and damaged disks, against providers that lie, fall
// silent or fail for a while, and with secrets planted everywhere. Each test ends
// with a healthy run, and what was collected by then is what the provider has.
package hold_test

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/sim/serve"
)

// connection is a connection file. Zero fields take defaults that are fast.
type connection struct {
	auth     string // default: a bearer token
	ceiling  string
	step     string
	page     int
	provider string // more of the provider section, indented by two
	run      string // default: as long as it takes
	sink     string // default: files in the folder out
}

// pageSize is the default of connection.page.
const pageSize = 5

func (c connection) yaml() string {
	return fmt.Sprintf(`connection: chat-archive
provider:
  base_url: ${CHAT_URL}
  auth: %s
  ceiling: %s
  pacing: {initial: 1ms, step: %s, law: aimd, jitter: 0s}
%sstreams:
  - name: conversations
    list: {path: /conversations, query: {limit: "%d"}}
    records: .items
    key: .id
    paginate: {cursor: .next_cursor, param: cursor}
    incremental: {cursor: .updated_at, param: updated_after}
    detail:
      stream: messages
      path: /conversations/{key}
      records: .messages
      key: .id
run: %s
sink: %s
`, cmp.Or(c.auth, "{bearer: ${CHAT_TOKEN}}"), cmp.Or(c.ceiling, "1ms"), cmp.Or(c.step, "1ms"), c.provider,
		cmp.Or(c.page, pageSize), cmp.Or(c.run, "{max_wall_clock: 15m}"), cmp.Or(c.sink, "{jsonl: {dir: ./out}}"))
}

// workplace is a folder with a connection file, its state and its output.
type workplace struct{ harness.Workplace }

func newWorkplace(t *testing.T, url string, c connection) workplace {
	t.Helper()
	return workplace{harness.NewWorkplace(t, url, c.yaml())}
}

// headway runs the program to its end.
func (w workplace) headway(t *testing.T, args ...string) harness.Outcome {
	t.Helper()
	return w.Headway(t, args...).Wait(t)
}

// records are the lines of a stream's file by id.
func (w workplace) records(t *testing.T, stream string) map[string]string {
	t.Helper()
	_, texts := w.Records(t, stream)
	return texts
}

// truthOf reads everything that a provider with these data has.
func truthOf(t *testing.T, data serve.Options) harness.Truth {
	t.Helper()
	return harness.TruthOf(t, data, 100)
}

// at is the same folder with another provider, and more in the environment.
func (w workplace) at(url string, env ...string) workplace {
	w.Env = append([]string{"CHAT_URL=" + url, "CHAT_TOKEN=" + harness.Token}, env...)
	return w
}

// healed runs until nothing is left, as an operator does once the provider is
// well: what is owed is made due at once. It must take two runs at most.
func (w workplace) healed(t *testing.T, want harness.Truth) {
	t.Helper()
	if _, err := os.Stat(w.State()); err == nil {
		if o := w.headway(t, "gaps", "retry", "--all"); o.Code != 0 {
			t.Errorf("gaps retry: %s", o)
		}
	}
	if o := w.Collect(t); o.Code != harness.ExitDrained {
		t.Errorf("when all was well again: %s", o)
	}
	w.Complete(t, want)
}

// files are the contents of all files below the given folders, by path. Locks are not
// among them: they name who had them last.
func (w workplace) files(t *testing.T, below ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range below {
		err := filepath.WalkDir(filepath.Join(w.Dir, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, ".lock") {
				return err
			}
			b, err := os.ReadFile(path)
			all[path] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// says fails unless the program said each of the texts.
func says(t *testing.T, o harness.Outcome, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(o.Stdout+o.Stderr, text) {
			t.Errorf("nothing says %q: %s", text, o)
		}
	}
}

// maxWait bounds everything that is waited for.
const maxWait = 3 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(bounded) != "" {
		becomeBounded()
	}
	os.Exit(harness.Run(m, harness.Setup{MaxWait: maxWait, Parallel: 12}))
}

// site is a provider that is well, until it lies.
type site struct {
	*httptest.Server
	// lie stands for the provider where it applies; nil while it is well.
	lie atomic.Pointer[lie]
	// lies counts them.
	lies atomic.Int64
}

// lie is one way to answer, for the requests of one kind.
type lie struct {
	applies func(*http.Request) bool
	answer  http.HandlerFunc
}

func newSite(t *testing.T, data serve.Options) *site {
	t.Helper()
	s := &site{}
	well := harness.Unlimited(t, data)
	s.Server = harness.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l := s.lie.Load(); l != nil && l.applies(r) {
			s.lies.Add(1)
			l.answer(w, r)
			return
		}
		well.ServeHTTP(w, r)
	}))
	return s
}

// ofPage applies to the list's pages after the first.
func ofPage(r *http.Request) bool {
	return r.URL.Path == "/conversations" && r.URL.Query().Get("cursor") != ""
}

// ofDetail applies to the detail of one conversation.
func ofDetail(id string) func(*http.Request) bool {
	return func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/"+id) }
}

// raw answers a request below HTTP: it gets the connection, closed afterwards.
func raw(answer func(c net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return // the client has gone
		}
		defer func() { _ = c.Close() }()
		answer(c)
	}
}

// status answers with a status, a header and a body.
func status(code int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Add(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}
