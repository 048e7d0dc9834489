//go:build unix

package provider_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/sim/serve"
)

// trouble is one way in which a collection that worked no longer does.
type trouble struct {
	name string
	// old and new are what changes in the connection file.
	old, new string
	// unset is a variable that is missing.
	unset string
	// url is where the provider is now; nil leaves it.
	url func(t *testing.T) string
	// answer stands for the provider from now on; nil leaves it.
	answer func(w http.ResponseWriter, r *http.Request, elsewhere string)

	code int
	// says are texts that standard output and error hold, together.
	says []string
}

// list is where the failing request goes, as errors name it.
const list = "GET /conversations: "

var troubles = []trouble{
	{
		name: "unknown field",
		old:  "    key: .id\n    paginate:", new: "    kee: .id\n    paginate:",
		code: harness.ExitUsage, says: []string{"conn.yaml:13:5: streams[0].kee", "did you mean key?", "streams[0].key: is missing"},
	},
	{
		name: "missing environment variable", unset: "CHAT_TOKEN",
		code: harness.ExitUsage, says: []string{"conn.yaml:4:18: provider.auth.bearer", "CHAT_TOKEN", "not set"},
	},
	{
		name: "wrong duration", old: "ceiling: 1ms", new: "ceiling: 20 apples",
		code: harness.ExitUsage, says: []string{"conn.yaml:5:12: provider.ceiling", `"20 apples"`, "such as 250ms"},
	},
	{
		name: "closed port", url: nobody,
		code: harness.ExitDeferred, says: []string{list, "unreachable"},
	},
	{
		name: "unknown host name", url: func(*testing.T) string { return "http://no-such-host.invalid" },
		code: harness.ExitDeferred, says: []string{list, "unreachable"},
	},
	{
		name: "certificate of nobody", url: selfSigned,
		code: harness.ExitRefused, says: []string{list, "tls", "certificate"},
	},
	{
		name: "401",
		answer: func(w http.ResponseWriter, r *http.Request, _ string) {
			w.WriteHeader(http.StatusUnauthorized)
			echo(w, r)
		},
		code: harness.ExitRefused, says: []string{list + "401 unauthorized"},
	},
	{
		name: "404",
		answer: func(w http.ResponseWriter, r *http.Request, _ string) {
			w.WriteHeader(http.StatusNotFound)
			echo(w, r)
		},
		code: harness.ExitRefused, says: []string{list + "404 not_found"},
	},
	{
		name: "HTML where JSON was expected",
		answer: func(w http.ResponseWriter, r *http.Request, _ string) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<!DOCTYPE html><title>Log in</title>")
			echo(w, r)
		},
		code: harness.ExitDeferred, says: []string{list, "invalid_response", "expected JSON, got text/html"},
	},
	{
		name: "records expression that matches nothing", old: "records: .items", new: "records: .entries",
		code: harness.ExitRefused, says: []string{list, "invalid_response", "stream conversations", "records expression .entries gave null", "items, next_cursor"},
	},
	{
		name: "cursor that repeats",
		answer: func(w http.ResponseWriter, _ *http.Request, _ string) {
			_, _ = io.WriteString(w, `{"items":[],"next_cursor":"again"}`)
		},
		code: harness.ExitRefused, says: []string{list, "cursor_repeats", "paginate"},
	},
	{
		name: "endless redirects to another host",
		answer: func(w http.ResponseWriter, r *http.Request, elsewhere string) {
			http.Redirect(w, r, elsewhere+"/conversations?token="+harness.Token, http.StatusFound)
		},
		code: harness.ExitRefused, says: []string{list, "invalid_response", "redirected to another host"},
	},
	{
		name: "gzip bomb",
		answer: func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write([]byte(`{"items":[],"next_cursor":"`))
			blank := bytes.Repeat([]byte("0"), 1<<20)
			for range 64 {
				_, _ = z.Write(blank)
			}
			_ = z.Close()
		},
		code: harness.ExitRefused, says: []string{list, "invalid_response", "too large", "more than 65536 bytes"},
	},
	{
		name: "body that breaks off",
		answer: func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Content-Length", "4096")
			_, _ = io.WriteString(w, `{"items":[{"id":"`)
		},
		code: harness.ExitDeferred, says: []string{list, "unreachable"},
	},
}

// echo is a provider that says too much.
func echo(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, `{"error":"refused the header %s"}`, r.Header.Get("Authorization"))
}

// nobody is an address where nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	return "http://" + harness.FreeAddress(t)
}

// selfSigned is a server with a certificate that nobody vouches for.
func selfSigned(t *testing.T) string {
	t.Helper()
	s := harness.NewServer(t, http.NotFoundHandler())
	s.StartTLS()
	return s.URL
}

func TestBadInput(t *testing.T) {
	data := serve.Options{Seed: 9, Conversations: 12, Messages: 3, Token: harness.Token}
	want := harness.TruthOf(t, data, pageSize)
	for _, c := range troubles {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var broken atomic.Bool
			var strayed atomic.Int64
			other := harness.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				strayed.Add(1)
				http.Redirect(w, r, "http://"+r.Host+r.URL.Path, http.StatusFound)
			}))
			provider := harness.Unlimited(t, data)
			front := harness.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if broken.Load() && c.answer != nil {
					c.answer(w, r, other.URL)
					return
				}
				provider.ServeHTTP(w, r)
			}))

			good := newWorkplace(t, front.URL, connection{
				page: 5, provider: "  max_body: 65536\n  retry: {base: 1ms, cap: 5ms, attempts: 3}\n",
			})
			if o := good.Collect(t); o.Code != harness.ExitDrained {
				t.Fatalf("before anything was wrong: %s", o)
			}
			good.Complete(t, want)
			before, file := files(t, good), connectionText(t, good)

			broken.Store(true)
			bad := c.breaks(t, good)
			o := bad.Collect(t)
			if o.Code != c.code {
				t.Errorf("exit code %d, want %d", o.Code, c.code)
			}
			for _, text := range c.says {
				if !strings.Contains(o.Stdout+o.Stderr, text) {
					t.Errorf("nothing says %q", text)
				}
			}
			if strayed.Load() > 0 {
				t.Errorf("%d requests followed a redirect to another host", strayed.Load())
			}
			for name, b := range before {
				if after, err := os.ReadFile(filepath.Join(good.Dir, "out", name)); err != nil || !bytes.Equal(after, b) {
					t.Errorf("%s is no longer what it was: %v", name, err)
				}
			}
			silent(t, good, o)
			if t.Failed() {
				t.Logf("%s", o)
			}

			broken.Store(false)
			harness.Write(t, filepath.Join(good.Dir, "conn.yaml"), file)
			if o := good.Collect(t); o.Code != harness.ExitDrained {
				t.Errorf("when all was well again: %s", o)
			}
			good.Complete(t, want)
		})
	}
}

// breaks brings the trouble about. The folder stays the same.
func (c trouble) breaks(t *testing.T, w harness.Workplace) harness.Workplace {
	t.Helper()
	if c.old != "" {
		text := connectionText(t, w)
		if strings.Count(text, c.old) != 1 {
			t.Fatalf("%q is not in the connection file once:\n%s", c.old, text)
		}
		harness.Write(t, filepath.Join(w.Dir, "conn.yaml"), strings.Replace(text, c.old, c.new, 1))
	}
	bad := harness.Workplace{Dir: w.Dir}
	for _, variable := range w.Env {
		if name, _, _ := strings.Cut(variable, "="); name == c.unset || name == "CHAT_URL" && c.url != nil {
			continue
		}
		bad.Env = append(bad.Env, variable)
	}
	if c.url != nil {
		bad.Env = append(bad.Env, "CHAT_URL="+c.url(t))
	}
	return bad
}

func connectionText(t *testing.T, w harness.Workplace) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.Dir, "conn.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// files are the contents of the collected files by name.
func files(t *testing.T, w harness.Workplace) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, stream := range []string{"conversations", "messages"} {
		b, err := os.ReadFile(w.File(stream))
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(w.File(stream))] = b
	}
	return all
}

// silent fails if the token stands in what a process printed, or in any file
// that it left.
func silent(t *testing.T, w harness.Workplace, o harness.Outcome) {
	t.Helper()
	for where, text := range map[string]string{"standard output": o.Stdout, "standard error": o.Stderr} {
		if strings.Contains(text, harness.Token) {
			t.Errorf("the token stands on %s", where)
		}
	}
	looked := 0
	err := filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		looked++
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, []byte(harness.Token)) {
			t.Errorf("the token stands in %s", path)
		}
		return err
	})
	if err != nil || looked < 4 { // state, two streams, connection
		t.Errorf("looked at %d files: %v", looked, err)
	}
}

// connection is a connection file. Zero fields take defaults that are fast.
type connection struct {
	ceiling, initial, step string
	page                   int // items of a list page
	concurrency            int
	records                string // expression for the items of a page
	provider               string // more of the provider section, indented by two
}

// pageSize is the default of connection.page.
const pageSize = 20

func (c connection) yaml() string {
	return fmt.Sprintf(`connection: chat-archive
provider:
  base_url: ${CHAT_URL}
  auth: {bearer: ${CHAT_TOKEN}}
  ceiling: %s
  pacing: {initial: %s, step: %s, law: aimd}
%sstreams:
  - name: conversations
    list: {path: /conversations, query: {limit: "%d"}}
    records: %s
    key: .id
    paginate: {cursor: .next_cursor, param: cursor}
    incremental: {cursor: .updated_at, param: updated_after}
    detail:
      stream: messages
      path: /conversations/{key}
      records: .messages
      key: .id
run: {max_wall_clock: 15m, concurrency: %d}
sink: {jsonl: {dir: ./out}}
`, cmp.Or(c.ceiling, "1ms"), cmp.Or(c.initial, "2ms"), cmp.Or(c.step, "1ms"), c.provider,
		cmp.Or(c.page, pageSize), cmp.Or(c.records, ".items"), cmp.Or(c.concurrency, 1))
}

// newWorkplace is a folder of its own with that connection file.
func newWorkplace(t *testing.T, url string, c connection) harness.Workplace {
	t.Helper()
	return harness.NewWorkplace(t, url, c.yaml())
}
