//go:build unix

package hold_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite" // reads state files

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/longtest"
)

// What must not be seen where it does not belong. The provider plants the first
// six in its answers, the environment holds the others.
const (
	canaryHeader  = "canary-response-header-51c3"
	canaryTitle   = "canary-title-77ab"
	canaryBody    = "canary-message-text-09fe"
	canaryFailure = "canary-failure-text-d00d"
	canaryID      = "canary-record-id-"  // and a number
	canaryChild   = "canary-message-id-" // and a number
	canaryBearer  = "canary-bearer-4242"
	canaryQuery   = "canary-query-value-1f1f"
	canaryKey     = "canary-api-key-8383"
	canaryClient  = "canary-client-secret-abab"
	canaryAccess  = "canary-access-token-cdcd"
)

var (
	// contents are what the provider says; only the sink's own files hold them.
	contents = []string{canaryHeader, canaryTitle, canaryBody, canaryFailure, canaryChild}
	// credentials stand in no file at all.
	credentials = []string{canaryBearer, canaryQuery, canaryKey, canaryClient, canaryAccess}
)

// auths are the ways to carry a credential.
var auths = []struct{ name, yaml string }{
	{"bearer", "{bearer: ${BEARER}}"},
	{"header", "{header: {name: X-Api-Key, value: ${KEY}}}"},
	{"query", "{query: {name: api_key, value: ${QUERY}}}"},
	{"oauth2", "{oauth2: {token_url: ${CHAT_URL}/token, client_id: somebody, client_secret: ${CLIENT}}}"},
}

// talkative is a provider that puts canaries everywhere. What it does is
// changed between runs.
type talkative struct {
	mood   atomic.Pointer[mood]
	served atomic.Int64
}

// mood is how it answers: some of its requests, or all.
type mood struct {
	name   string
	answer http.HandlerFunc // nil is as it should
	every  int64            // that many requests are well, one is not; 0 is all badly
}

func (p *talkative) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Canary", canaryHeader)
	w.Header().Set("Set-Cookie", "session="+canaryHeader+"; Path=/")
	w.Header().Set("Content-Type", "application/json")
	if m := p.mood.Load(); m != nil && m.answer != nil && (m.every == 0 || p.served.Add(1)%m.every == 0) {
		m.answer(w, r)
		return
	}
	id := strings.TrimPrefix(r.URL.Path, "/conversations/")
	switch {
	case r.URL.Path == "/token":
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"bearer","expires_in":3600}`, canaryAccess)
	case r.URL.Path != "/conversations":
		_, _ = fmt.Fprintf(w, `{"messages":[{"id":"%s%s","text":%q}]}`, canaryChild, strings.TrimPrefix(id, canaryID), canaryBody)
	default:
		p.page(w, r)
	}
}

// page lists four of twelve.
func (p *talkative) page(w http.ResponseWriter, r *http.Request) {
	at := 0
	_, _ = fmt.Sscanf(r.URL.Query().Get("cursor"), "at-%d", &at)
	var items []string
	for i := at; i < at+4; i++ {
		items = append(items, fmt.Sprintf(`{"id":"%s%d","title":"%s %d","updated_at":"2024-01-01T00:00:%02dZ"}`, canaryID, i, canaryTitle, i, i))
	}
	next := fmt.Sprintf(`"at-%d"`, at+4)
	if at >= 8 {
		next = "null"
	}
	_, _ = fmt.Fprintf(w, `{"items":[%s],"next_cursor":%s}`, strings.Join(items, ","), next)
}

// failure responds with a status and a body that contains everything it knows.
func failure(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"error":%q,"message":%q,"request":%q,"headers":%q}`, canaryFailure, canaryFailure, r.URL, fmt.Sprint(r.Header))
	}
}

// line answers with bytes that are not quite HTTP.
func line(text string) http.HandlerFunc {
	return raw(func(c net.Conn) {
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
}

// moods are what a connection goes through, in order.
func moods(other string) []mood {
	return []mood{
		{"throttled", failure(http.StatusTooManyRequests, "Retry-After", "1"), 5},
		{"failing now and then", failure(http.StatusInternalServerError), 4},
		{"failing", failure(http.StatusInternalServerError), 0},
		{"unauthorized", failure(http.StatusUnauthorized, "WWW-Authenticate", "Bearer "+canaryHeader), 0},
		{"forbidden", failure(http.StatusForbidden), 0},
		{"gone", failure(http.StatusNotFound), 3},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, canaryBody) }, 3},
		{"JSON that ends early", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"items":[{"id":"`+canaryID+`0","title":"`+canaryTitle)
		}, 0},
		{"HTML", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset="+canaryHeader)
			_, _ = io.WriteString(w, "<title>"+canaryTitle+"</title>"+canaryBody)
		}, 0},
		{"other fields", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"data":[{"name":%q}],"items":{"title":%q}}`, canaryBody, canaryTitle)
		}, 0},
		{"a key twice", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"items":[{"id":"%[1]s0","title":%[2]q},{"id":"%[1]s0","title":%[2]q}]}`, canaryID, canaryTitle)
		}, 0},
		{"an invalid key", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"items":[{"id":{"of":%q},"title":%q}]}`, canaryID, canaryTitle)
		}, 0},
		{"the same cursor", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"items":[],"next_cursor":%q}`, canaryBody)
		}, 0},
		{"redirect elsewhere", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other+"/?text="+canaryBody, http.StatusFound)
		}, 0},
		{"redirect to nowhere", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://["+canaryHeader+"/%zz")
			w.WriteHeader(http.StatusFound)
		}, 0},
		{"body that breaks off", line("HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n" + canaryBody), 3},
		{"more than announced", line("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" + canaryBody), 3},
		{"malformed status", line("HTTP/1.1 " + canaryHeader + " OK\r\n\r\n"), 3},
		{"malformed version", line(canaryHeader + "/1.1 200 OK\r\n\r\n"), 3},
		{"malformed header", line("HTTP/1.1 200 OK\r\nX-Secret " + canaryHeader + "\r\n\r\n"), 3},
		{"malformed length", line("HTTP/1.1 200 OK\r\nContent-Length: " + canaryHeader + "\r\n\r\n"), 3},
		{"malformed coding", line("HTTP/1.1 200 OK\r\nTransfer-Encoding: " + canaryHeader + "\r\n\r\n"), 3},
		{"malformed chunk", line("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + canaryBody + "\r\n"), 3},
		{"malformed gzip", line("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 40\r\n\r\n" + (canaryBody + strings.Repeat("x", 40))[:40]), 3},
	}
}

// watchman looks for canaries in all that a program prints.
type watchman struct {
	t    *testing.T
	w    workplace
	seen sync.Map // not twice about one thing
	// turn says which half of the records is shown as text, the other as JSON; in
	// a long run each is shown as both.
	turn  int
	shown map[string]bool // runs: one that has ended does not change any more
}

// hears looks at what a process said. Listing gaps may name records.
func (m *watchman) hears(what string, o harness.Outcome, ids bool) {
	m.t.Helper()
	banned := append(append([]string{}, contents...), credentials...)
	if !ids {
		banned = append(banned, canaryID)
	}
	for where, text := range map[string]string{"standard output": o.Stdout, "standard error": o.Stderr} {
		for _, canary := range banned {
			if at := strings.Index(text, canary); at >= 0 {
				if _, twice := m.seen.LoadOrStore(what+canary, true); !twice {
					m.t.Errorf("%s: %s is on %s: ...%s...", what, canary, where, text[max(0, at-160):min(len(text), at+80)])
				}
			}
		}
	}
}

// looks goes through all that shows what is stored.
func (m *watchman) looks(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{{"status"}, {"runs", "--limit", "0"}, {"rate"}} {
		m.hears(args[0], m.w.headway(t, args...), false)
		m.hears(args[0], m.w.headway(t, append(args, "--json")...), false)
	}
	var runs []collect.Run
	m.w.Read(t, &runs, "runs", "--limit", "0")
	slices.Reverse(runs) // the first one first, as the moods
	for i, r := range runs {
		if !m.shown[r.ID] {
			m.shows(t, i, false, "runs", "show", r.ID)
			m.shown[r.ID] = r.State != collect.RunRunning
		}
	}
	for i, g := range m.w.Gaps(t) {
		m.shows(t, i, true, "gaps", "show", fmt.Sprint(g.ID))
	}
	m.hears("gaps list", m.w.headway(t, "gaps", "list", "--status", "all"), true)
	m.hears("gaps list --json", m.w.headway(t, "gaps", "list", "--status", "all", "--json"), true)
}

// shows looks at the nth record of a kind, as text or as JSON.
func (m *watchman) shows(t *testing.T, n int, ids bool, args ...string) {
	t.Helper()
	what := strings.Join(args[:2], " ")
	if asText := (n+m.turn)%2 == 0; asText || longtest.Long() {
		m.hears(what, m.w.headway(t, args...), ids)
	}
	if asJSON := (n+m.turn)%2 == 1; asJSON || longtest.Long() {
		m.hears(what+" --json", m.w.headway(t, append(args, "--json")...), ids)
	}
}

// reads looks at the state: text by text for what may not be there, and at all
// bytes of it for credentials and headers.
func (m *watchman) reads(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(m.w.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, canary := range append([]string{canaryHeader, canaryFailure}, credentials...) {
			if bytes.Contains(b, []byte(canary)) {
				t.Errorf("%s stands in %s", canary, path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", m.w.State())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for table, columns := range map[string]string{
		"runs":        "id, holder, state, reason, started, ended, retry_at, error, progress",
		"events":      "event",
		"gaps":        "stream, parent, reason, status, last_error",
		"connections": "name, run, holder, sink, pacing_law, pacing_state, pressure",
		"streams":     "name",
	} {
		if n := m.scans(t, db, table, columns); n == 0 && table != "gaps" {
			t.Errorf("table %s has no row to look at", table)
		}
	}
}

func (m *watchman) scans(t *testing.T, db *sql.DB, table, columns string) (n int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT "+columns+" FROM "+table)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		cells := make([]sql.NullString, strings.Count(columns, ",")+1)
		into := make([]any, len(cells))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		n++
		for _, cell := range cells {
			for _, canary := range append([]string{canaryID}, append(contents, credentials...)...) {
				if strings.Contains(cell.String, canary) {
					t.Errorf("%s stands in table %s: %.300s", canary, table, cell.String)
				}
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNoCanaryIsPrinted(t *testing.T) {
	t.Parallel()
	for i, auth := range auths {
		for j, args := range [][]string{{"--json"}, nil} {
			if (i+j)%2 == 1 && !longtest.Long() {
				continue // either output with every other credential
			}
			t.Run(fmt.Sprint(auth.name, args), func(t *testing.T) {
				t.Parallel()
				p := &talkative{}
				s := harness.Serve(t, p)
				w := newWorkplace(t, s.URL, connection{
					auth: auth.yaml, provider: "  headers: {X-More: \"${KEY}\"}\n  retry: {base: 1ms, cap: 2ms, attempts: 2}\n",
				}).at(s.URL, "BEARER="+canaryBearer, "KEY="+canaryKey, "QUERY="+canaryQuery, "CLIENT="+canaryClient)
				m := &watchman{t: t, w: w, turn: i, shown: map[string]bool{}}
				m.hears("check", w.headway(t, "check", "conn.yaml"), false)
				m.hears("check --probe", w.headway(t, "check", "conn.yaml", "--probe"), false)
				for k, each := range moods("http://127.0.0.1:1") {
					if (k+i/2)%2 == 1 && !longtest.Long() {
						continue // two of the credentials, one with either output, share the moods with the others
					}
					p.mood.Store(&each)
					// The circuit must not be waited out: few requests.
					m.hears(each.name, w.Collect(t, append(args, "--max-requests", "4")...), false)
					if o := w.headway(t, "gaps", "retry", "--all"); o.Code != 0 {
						t.Errorf("gaps retry: %s", o)
					}
				}
				m.hears("crashed", crashed(t, p, w, args), false)
				m.looks(t)
				m.reads(t)

				p.mood.Store(nil)
				// What failed too often is quarantined by now.
				if o := w.headway(t, "gaps", "release", "--all"); o.Code != 0 {
					t.Errorf("gaps release: %s", o)
				}
				o := w.Collect(t, args...)
				m.hears("good", o, false)
				// A record without a key, of a list that is not walked again, stays quarantined.
				if o.Code != harness.ExitDrained && o.Code != harness.ExitIncomplete {
					t.Errorf("when all was well again: %s", o)
				}
				m.looks(t)
				m.reads(t)
				// The test would see them, and so does the sink.
				for stream, canary := range map[string]string{"conversations": canaryTitle, "messages": canaryBody} {
					if b, err := os.ReadFile(w.File(stream)); err != nil || strings.Count(string(b), canary) < 12 {
						t.Errorf("%s are not all in their file: %v\n%s", stream, err, b)
					}
				}
			})
		}
	}
}

// crashed ends a collection in the middle of a request as a crash of Go does,
// with all its stacks.
func crashed(t *testing.T, p *talkative, w workplace, args []string) harness.Outcome {
	t.Helper()
	asked := make(chan struct{}, 16)
	p.mood.Store(&mood{answer: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"items":[{"id":"`+canaryID+`1","title":"`+canaryTitle)
		_ = http.NewResponseController(w).Flush()
		asked <- struct{}{}
		<-r.Context().Done()
	}})
	process := w.Start(t, args...)
	select {
	case <-asked:
	case <-time.After(maxWait):
		t.Fatal("nothing was asked for")
	}
	process.Signal(t, syscall.SIGQUIT)
	o := process.Wait(t)
	if !strings.Contains(o.Stderr, "goroutine ") {
		t.Errorf("want a crash with stacks: %s", o)
	}
	return o
}
