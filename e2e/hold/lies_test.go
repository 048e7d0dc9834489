//go:build unix

package hold_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/reason"
)

// tenYears is what a Retry-After of ten years says.
const tenYears = "315360000"

// untruth is one way to lie. In a list it ends the run, with the walk where it
// was; in a detail it leaves that detail as a gap.
type untruth struct {
	name   string
	answer http.HandlerFunc
	// page is how a run ends whose second page is a lie; why is the reason in
	// its summary, and of the gap that a lying detail leaves. None is a lie that
	// does no harm.
	page int
	why  reason.Reason
	// text is what the error of the page says.
	text string
	// halts says that the lie is about the whole connection, not one request.
	halts bool
	// silent says that only the attempt's own time ends it.
	silent bool
}

// provider bounds what a lie can cost. A lie that is waited out has one attempt,
// and each attempt as long as a busy machine may need for an honest answer.
func (u untruth) provider() string {
	if u.silent {
		return "  timeout: 30s\n  max_body: 65536\n  retry: {base: 1ms, cap: 5ms, attempts: 1}\n"
	}
	return impatient
}

var untruths = []untruth{
	{
		name: "Retry-After of ten years", answer: status(http.StatusTooManyRequests, "", "Retry-After", tenYears),
		page: harness.ExitDeferred, why: reason.RateLimited.Reason(), halts: true,
	},
	{
		name: "Retry-After that is negative", answer: status(http.StatusTooManyRequests, "", "Retry-After", "-30"),
		page: harness.ExitDeferred, why: reason.RateLimited.Reason(),
	},
	{
		name: "Retry-After in the past", answer: status(http.StatusTooManyRequests, "", "Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"),
		page: harness.ExitDeferred, why: reason.RateLimited.Reason(),
	},
	{
		name: "Retry-After that is garbage", answer: status(http.StatusTooManyRequests, "", "Retry-After", "soon\t\x80, or 9e999s"),
		page: harness.ExitDeferred, why: reason.RateLimited.Reason(),
	},
	{
		name: "headers of a megabyte", answer: largeHeaders,
		page: harness.ExitDeferred, why: reason.RateLimited.Reason(),
	},
	{
		name: "body that never ends", answer: endless,
		page: harness.ExitRefused, why: reason.InvalidResponse, text: "too large",
	},
	{
		name: "header that never ends", answer: raw(endlessHeader),
		page: harness.ExitDeferred, why: reason.Unreachable,
	},
	{
		name: "slow bytes", answer: slowBytes,
		page: harness.ExitDeferred, why: reason.Timeout, silent: true,
	},
	{
		name: "answer that never begins", answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		page: harness.ExitDeferred, why: reason.Timeout, silent: true,
	},
	{
		name: "Content-Length too long", answer: raw(func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4096\r\n\r\n"+`{"items":[`)
		}),
		page: harness.ExitDeferred, why: reason.Unreachable,
	},
	{
		name: "Content-Length too short", answer: raw(func(c net.Conn) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n"+`{"items":[{"id":"a","title":%q}]}`, harness.Token)
			_, _ = io.Copy(io.Discard, c) // the client closes
		}),
		page: harness.ExitDeferred, why: reason.InvalidResponse,
	},
	{
		name: "Content-Length of two minds", answer: raw(func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ")
		}),
		page: harness.ExitDeferred, why: reason.Unreachable,
	},
	{
		name: "gzip bomb", answer: bomb,
		page: harness.ExitRefused, why: reason.InvalidResponse, text: "too large",
	},
	{
		name: "invalid gzip", answer: status(http.StatusOK, `{"items":[]}`, "Content-Encoding", "gzip"),
		page: harness.ExitDeferred, why: reason.Unreachable,
	},
	{
		name: "invalid JSON", answer: status(http.StatusOK, `{"items":[{"id":"`+harness.Token, "Content-Type", "application/json"),
		page: harness.ExitDeferred, why: reason.InvalidResponse,
	},
	{
		name: "JSON of a great depth", answer: status(http.StatusOK, strings.Repeat("[", 30_000), "Content-Type", "application/json"),
		page: harness.ExitDeferred, why: reason.InvalidResponse,
	},
	{
		name: "reset in the middle of the body", answer: raw(func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4096\r\n\r\n"+`{"items":[`)
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // closing resets
			}
		}),
		page: harness.ExitDeferred, why: reason.Unreachable,
	},
	{
		name: "no HTTP at all", answer: raw(func(c net.Conn) { _, _ = io.WriteString(c, "220 smtp.example.com ESMTP "+harness.Token+"\r\n") }),
		page: harness.ExitDeferred, why: reason.Unreachable,
	},
}

func largeHeaders(w http.ResponseWriter, _ *http.Request) {
	filling := strings.Repeat("x", 64<<10)
	for i := range 16 {
		w.Header().Set(fmt.Sprintf("X-Filling-%d", i), filling)
	}
	w.Header().Set("Retry-After", strings.Repeat("9", 64<<10))
	w.WriteHeader(http.StatusTooManyRequests)
}

func endless(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"items":["`)
	for filling := strings.Repeat("x", 64<<10); ; {
		if _, err := io.WriteString(w, filling); err != nil {
			return
		}
	}
}

func endlessHeader(c net.Conn) {
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
	for filling := "X-Filling: " + strings.Repeat("x", 64<<10) + "\r\n"; ; {
		if _, err := io.WriteString(c, filling); err != nil {
			return
		}
	}
}

// slowBytes would be done after a day.
func slowBytes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	tick := time.NewTicker(700 * time.Millisecond)
	defer tick.Stop()
	for {
		_, _ = io.WriteString(w, " ")
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

func bomb(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = io.WriteString(z, `{"items":[],"next_cursor":"`)
	for filling := bytes.Repeat([]byte("0"), 1<<20); ; {
		if _, err := z.Write(filling); err != nil {
			return
		}
		if z.Flush() != nil { // or much is compressed before a byte leaves
			return
		}
	}
}

// small is the data of most tests, of which the third conversation's detail is
// where the lies are.
var small = serve.Options{Seed: 9, Conversations: 12, Messages: 3, Token: harness.Token}

// impatient bounds what a lie can cost that ends by itself.
const impatient = "  max_body: 65536\n  retry: {base: 1ms, cap: 5ms, attempts: 2}\n"

func TestLyingPage(t *testing.T) {
	t.Parallel()
	want := truthOf(t, small)
	for _, u := range untruths {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, small)
			w := newWorkplace(t, s.URL, connection{provider: u.provider()})
			s.lie.Store(&lie{applies: ofPage, answer: u.answer})
			o := w.Collect(t, "--json")
			got := harness.Summary(t, o)
			if o.Code != u.page || got.Reason != u.why || s.lies.Load() == 0 {
				t.Errorf("after %d lies: %s (%s), want exit code %d, %s: %s", s.lies.Load(), got.Reason, got.Error, u.page, u.why, o)
			}
			if got.Pages != 1 || len(w.records(t, "conversations")) != pageSize {
				t.Errorf("the page before the lie is not kept: %+v", got.Progress)
			}
			if day := time.Now().Add(24 * time.Hour); got.RetryAt.After(day) {
				t.Errorf("to be run again at %v", got.RetryAt)
			}
			says(t, o, "/conversations", u.text)
			unspoken(t, o)
			s.lie.Store(nil)
			w.healed(t, want)
		})
	}
}

func TestLyingDetail(t *testing.T) {
	t.Parallel()
	want := truthOf(t, small)
	for _, u := range untruths {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, small)
			w := newWorkplace(t, s.URL, connection{provider: u.provider()})
			s.lie.Store(&lie{applies: ofDetail(want.Order[2]), answer: u.answer})
			o := w.Collect(t, "--json")
			got := harness.Summary(t, o)
			if o.Code != harness.ExitDeferred || s.lies.Load() == 0 {
				t.Errorf("after %d lies: %s (%s): %s", s.lies.Load(), got.Reason, got.Error, o)
			}
			var keys []string
			for _, g := range w.Gaps(t) {
				keys = append(keys, g.Key)
				if g.Key == want.Order[2] && (g.Reason != u.why || g.LastError == "" || g.Attempts == 0) {
					t.Errorf("the gap is %s (%s) after %d attempts, want %s", g.Reason, g.LastError, g.Attempts, u.why)
				}
				if g.RetryAt.After(time.Now().Add(24 * time.Hour)) {
					t.Errorf("a gap is not to be tried before %v", g.RetryAt)
				}
			}
			if !slices.Contains(keys, want.Order[2]) {
				t.Errorf("the detail is not owed; gaps: %v", keys)
			}
			// A wait of ten years is one for all of the connection.
			if list := w.records(t, "conversations"); len(list) != small.Conversations && !u.halts {
				t.Errorf("one lying detail kept the walk from going on: %d of %d", len(list), small.Conversations)
			}
			unspoken(t, o)
			s.lie.Store(nil)
			w.healed(t, want)
		})
	}
}

// unspoken fails if what must not be printed was printed.
func unspoken(t *testing.T, o harness.Outcome) {
	t.Helper()
	if strings.Contains(o.Stdout+o.Stderr, harness.Token) {
		t.Errorf("the token, or a body with it, was printed: %s", o)
	}
}

func TestEndlessPaging(t *testing.T) {
	t.Parallel()
	want := truthOf(t, small)
	for _, c := range []struct {
		name    string
		cursors []string
	}{
		{"the same cursor twice", []string{"again"}},
		{"a cycle of three cursors", []string{"one", "two", "three"}},
		{"a long cycle of cursors", cycle(longtest.Size(150, 700))},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, small)
			w := newWorkplace(t, s.URL, connection{provider: impatient, ceiling: "1ms"})
			var pages atomic.Int64
			s.lie.Store(&lie{
				applies: func(r *http.Request) bool { return r.URL.Path == "/conversations" },
				answer: func(w http.ResponseWriter, _ *http.Request) {
					next := c.cursors[int(pages.Add(1)-1)%len(c.cursors)]
					_, _ = fmt.Fprintf(w, `{"items":[],"next_cursor":%q}`, next)
				},
			})
			o := w.Collect(t, "--json")
			if got := harness.Summary(t, o); o.Code != harness.ExitRefused || got.Reason != reason.CursorRepeats {
				t.Errorf("got %s: %s", got.Reason, o)
			}
			if n := pages.Load(); n > int64(3*len(c.cursors)+3) {
				t.Errorf("it took %d pages to find a cycle of %d", n, len(c.cursors))
			}
			says(t, o, "paginate")
			s.lie.Store(nil)
			// The walk stands at a cursor that the provider never meant.
			if o := w.Collect(t); o.Code != harness.ExitDrained {
				t.Errorf("when all was well again: %s", o)
			}
			w.Complete(t, want)
		})
	}
}

func cycle(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("cursor-", i))
	}
	return all
}

func TestRedirectElsewhere(t *testing.T) {
	t.Parallel()
	want := truthOf(t, small)
	for _, auth := range []struct{ name, yaml, query, key string }{
		{"bearer", "{bearer: ${CHAT_TOKEN}}", "", "Authorization"},
		{"header", "{header: {name: X-Api-Key, value: ${CHAT_TOKEN}}}", "", "X-Api-Key"},
		{"query", "{query: {name: api_key, value: ${CHAT_TOKEN}}}", "api_key", ""},
	} {
		for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			t.Run(fmt.Sprint(auth.name, " ", code), func(t *testing.T) {
				t.Parallel()
				var asked, leaked atomic.Int64
				other := harness.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked.Add(1)
					if r.Header.Get(auth.key) != "" || strings.Contains(fmt.Sprint(r.URL, r.Header), harness.Token) {
						leaked.Add(1)
					}
					_, _ = io.WriteString(w, `{"items":[],"next_cursor":null}`)
				}))
				data := small
				data.Token = "" // the provider does not look
				s := newSite(t, data)
				w := newWorkplace(t, s.URL, connection{provider: impatient, auth: auth.yaml})
				s.lie.Store(&lie{applies: ofPage, answer: func(w http.ResponseWriter, r *http.Request) {
					if auth.query != "" && r.URL.Query().Get(auth.query) != harness.Token || auth.key != "" && r.Header.Get(auth.key) == "" {
						t.Errorf("the provider itself was asked without the credential")
					}
					http.Redirect(w, r, other.URL+r.URL.RequestURI(), code)
				}})
				o := w.Collect(t, "--json")
				if leaked.Load() > 0 || asked.Load() > 0 {
					t.Errorf("the other server was asked %d times, %d with the credential", asked.Load(), leaked.Load())
				}
				if got := harness.Summary(t, o); o.Code != harness.ExitRefused || got.Reason != reason.InvalidResponse {
					t.Errorf("got %s: %s", got.Reason, o)
				}
				says(t, o, "redirected to another host")
				unspoken(t, o)
				s.lie.Store(nil)
				w.healed(t, want)
			})
		}
	}
}
