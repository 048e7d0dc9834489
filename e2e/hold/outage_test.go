//go:build unix

package hold_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/reason"
)

// circuit is how long one stays open; an outage here is over before that.
const (
	circuit   = time.Minute
	outageFor = 24 * time.Second
)

// steadyWork takes eight seconds without an outage.
var steadyWork = serve.Options{Seed: 6, Conversations: 200, Messages: 4, Token: harness.Token}

// failing is a provider that is down from its sixtieth request on, so while the
// details are collected, however fast the machine is. Within says until when.
func failing(t *testing.T, within func(down time.Duration) bool) *site {
	t.Helper()
	s := newSite(t, steadyWork)
	var mu sync.Mutex
	asked, since := 0, time.Time{}
	s.lie.Store(&lie{
		applies: func(*http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if asked++; asked == 60 {
				since = time.Now()
			}
			return asked >= 60 && within(time.Since(since))
		},
		answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	})
	return s
}

// eventsOf are a run's events of one type, in its output.
func eventsOf(o harness.Outcome, kind event.Type) (n int) {
	return strings.Count(o.Stdout, fmt.Sprintf(`"type":%q,"connection"`, kind))
}

// A run once ended after 136 s of its 900 s, for one circuit that had opened.
func TestOutageIsWaitedOut(t *testing.T) {
	t.Parallel()
	s := failing(t, func(down time.Duration) bool { return down < outageFor })
	w := newWorkplace(t, s.URL, connection{ceiling: "40ms", step: "200ms", page: 50, run: "{max_wall_clock: 15m}"})
	o := w.Collect(t, "--json")
	got := harness.Summary(t, o)
	if o.Code != harness.ExitDrained || len(got.Owed) > 0 {
		t.Errorf("got %s (%s), owed %v: %s", got.Reason, got.Error, got.Owed, o)
	}
	if o.Took < outageFor {
		t.Errorf("it took %v; the circuit is open for %v", o.Took, circuit)
	}
	w.Complete(t, truthOf(t, steadyWork))
	t.Logf("drained after %v of 15 minutes: %d attempts, %d retries, %d circuit events", o.Took.Round(time.Millisecond), got.Attempts, got.Retries, eventsOf(o, event.Circuit))
}

func TestOutageLongerThanTheRun(t *testing.T) {
	t.Parallel()
	s := failing(t, func(time.Duration) bool { return true })
	w := newWorkplace(t, s.URL, connection{ceiling: "40ms", step: "200ms", page: 50, run: "{max_wall_clock: 12s}"})
	o := w.Collect(t, "--json")
	got := harness.Summary(t, o)
	if o.Code != harness.ExitDeferred || got.Reason != reason.MaxWallClock.Reason() {
		t.Errorf("got %s (%s), want %s: %s", got.Reason, got.Error, reason.MaxWallClock, o)
	}
	if got.Cooldown.Cycles > 0 || !got.Cooldown.Until.IsZero() {
		t.Errorf("a cap is not pressure, and the run arms a cooldown: %+v", got.Cooldown)
	}
	// The next run comes once the outage is over, and at the time that was named.
	s.lie.Store(nil)
	again := got.Ended
	if got.RetryAt.After(again) {
		again = got.RetryAt
	}
	for _, g := range w.Gaps(t) {
		if g.RetryAt.After(again) {
			again = g.RetryAt
		}
	}
	t.Logf("deferred after %v (%s), owed %v, next run in %v", o.Took.Round(time.Millisecond), got.Reason, got.Owed, again.Sub(got.Ended).Round(time.Millisecond))
	if again.Sub(got.Ended) > circuit {
		t.Fatalf("the next run would be at %v", again)
	}
	timer := time.NewTimer(time.Until(again))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	next := w.Collect(t, "--json", "--max-wall-clock", "15m")
	if got := harness.Summary(t, next); next.Code != harness.ExitDrained || len(got.Owed) > 0 {
		t.Errorf("the next run: %s (%s), owed %v: %s", got.Reason, got.Error, got.Owed, next)
	}
	w.Complete(t, truthOf(t, steadyWork))
}

// Frames of HTTP/2 (RFC 9113, section 6) and what stands in them.
const (
	frameData, frameHeaders, frameSettings, frameGoAway = 0x0, 0x1, 0x4, 0x7
	flagAck, flagEndHeaders                             = 0x1, 0x4
	enhanceYourCalm                                     = 0xb
)

// preface is what a client of HTTP/2 begins with.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frame writes one frame.
func frame(w io.Writer, kind, flags byte, stream uint32, payload []byte) {
	head := make([]byte, 9)
	binary.BigEndian.PutUint32(head, uint32(len(payload))<<8|uint32(kind))
	head[4] = flags
	binary.BigEndian.PutUint32(head[5:], stream)
	_, _ = w.Write(append(head, payload...))
}

// goAway reports that streams above last were not processed, and why: in a code,
// and in words that say too much.
func goAway(w io.Writer, last, code uint32) {
	payload := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code)
	frame(w, frameGoAway, 0, 0, append(payload, "refused for "+harness.Token...))
}

// leaving speaks just enough of HTTP/2 to go away: it waits for a request,
// answers it with what it is given, and hangs up.
func leaving(c *tls.Conn, answer func(w io.Writer, stream uint32)) {
	in := bufio.NewReader(c)
	if _, err := io.CopyN(io.Discard, in, int64(len(preface))); err != nil {
		return
	}
	frame(c, frameSettings, 0, 0, nil)
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, in, int64(binary.BigEndian.Uint32(head)>>8)); err != nil {
			return
		}
		switch kind, flags := head[3], head[4]; {
		case kind == frameSettings && flags&flagAck == 0:
			frame(c, frameSettings, flagAck, 0, nil)
		case kind == frameHeaders:
			answer(c, binary.BigEndian.Uint32(head[5:]))
			return
		}
	}
}

// secure makes a server of HTTP/2 under TLS, and gives what a client needs to
// trust it. Where leave answers a request, that is all there is.
func secure(t *testing.T, handler http.Handler, leave func(w io.Writer, stream uint32)) (url, trust string) {
	t.Helper()
	s := harness.NewServer(t, handler)
	if leave == nil {
		s.EnableHTTP2 = true
	} else {
		s.TLS = &tls.Config{NextProtos: []string{"h2"}}
		s.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
			"h2": func(_ *http.Server, c *tls.Conn, _ http.Handler) { leaving(c, leave) },
		}
	}
	s.StartTLS()
	file := filepath.Join(t.TempDir(), "ca.pem")
	harness.Write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	return s.URL, "SSL_CERT_FILE=" + file
}

func TestGoAwayInsteadOfAnAnswer(t *testing.T) {
	t.Parallel()
	// ":status: 200", which is entry 8 of the static table, and the beginning of a body.
	half := func(w io.Writer, stream uint32) {
		frame(w, frameHeaders, flagEndHeaders, stream, []byte{0x88})
		frame(w, frameData, 0, stream, []byte(`{"items":[`))
	}
	want := truthOf(t, small)
	for _, c := range []struct {
		name  string
		leave func(w io.Writer, stream uint32)
	}{
		{"the request was not looked at", func(w io.Writer, _ uint32) { goAway(w, 0, 0) }},
		{"the request was looked at", func(w io.Writer, stream uint32) { goAway(w, stream, 0) }},
		{"enhance your calm", func(w io.Writer, stream uint32) { goAway(w, stream, enhanceYourCalm) }},
		{"in the middle of the body", func(w io.Writer, stream uint32) {
			half(w, stream)
			goAway(w, stream, enhanceYourCalm)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			well, trust := secure(t, harness.Unlimited(t, small), nil)
			var left atomic.Int64
			leaver, other := secure(t, nil, func(w io.Writer, stream uint32) {
				left.Add(1)
				c.leave(w, stream)
			})
			w := newWorkplace(t, well, connection{provider: impatient}).at(well, trust)
			if o := w.Collect(t, "--max-requests", "6"); o.Code != harness.ExitDeferred { // a page and its details
				t.Fatalf("before anybody left: %s", o)
			}
			o := w.at(leaver, other).Collect(t, "--json")
			got := harness.Summary(t, o)
			if o.Code != harness.ExitDeferred || got.Reason != reason.Unreachable && got.Reason != reason.Timeout || left.Load() == 0 {
				t.Errorf("%d left: %s (%s): %s", left.Load(), got.Reason, got.Error, o)
			}
			// net/http sends what was not looked at again by itself, on no permit.
			if sent := left.Load(); sent > 4*got.Attempts {
				t.Errorf("%d requests arrived, and %d attempts are on record", sent, got.Attempts)
			}
			t.Logf("%s (%s) after %v; the client sent %d attempts on record, %d requests arrived",
				got.Reason, got.Error, o.Took, got.Attempts, left.Load())
			unspoken(t, o)
			w.healed(t, want)
		})
	}
}

// A server that is restarted after each answer says so with GOAWAY.
func TestGoAwayAfterEachAnswer(t *testing.T) {
	t.Parallel()
	data := harness.Unlimited(t, small)
	var second atomic.Int64
	url, trust := secure(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			second.Add(1)
		}
		w.Header().Set("Connection", "close") // becomes GOAWAY
		data.ServeHTTP(w, r)
	}), nil)
	w := newWorkplace(t, url, connection{provider: impatient}).at(url, trust)
	o := w.Collect(t, "--json")
	if got := harness.Summary(t, o); o.Code != harness.ExitDrained || got.Retries > 0 || second.Load() != got.Attempts {
		t.Errorf("%d attempts, %d retries, %d requests of HTTP/2 arrived: %s", got.Attempts, got.Retries, second.Load(), o)
	}
	w.Complete(t, truthOf(t, small))
}

// login is a provider with a token endpoint that takes each refresh token once.
type login struct {
	mu     sync.Mutex
	valid  string
	tokens int
	reused int
	listed chan struct{} // gets a value when the list is asked for the first time
	hold   chan struct{} // closed to let the list answer
}

func (l *login) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/token" {
		select {
		case l.listed <- struct{}{}:
		default:
		}
		select {
		case <-l.hold:
		case <-r.Context().Done():
		}
		_, _ = fmt.Fprint(w, `{"items": [{"id": "1"}]}`)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.FormValue("refresh_token") != l.valid {
		l.reused++
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprint(w, `{"error": "invalid_grant"}`)
		return
	}
	l.tokens++
	l.valid = fmt.Sprintf("%s-%d", harness.Token, l.tokens)
	_, _ = fmt.Fprintf(w, `{"access_token": "%s-access-%d", "refresh_token": %q}`, harness.Token, l.tokens, l.valid)
}

func TestARotatedTokenSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	l := &login{valid: harness.Token, listed: make(chan struct{}, 1), hold: make(chan struct{})}
	s := harness.Serve(t, l)
	w := harness.NewWorkplace(t, s.URL, fmt.Sprintf(`
connection: login
provider:
  base_url: %q
  auth: {oauth2: {token_url: "%s/token", client_id: me, refresh_token: "${CHAT_TOKEN}"}}
  ceiling: 1ms
  pacing: {initial: 1ms}
streams:
  - {name: docs, list: {path: /docs}, records: .items, key: .id}
sink: {jsonl: {dir: ./out}}
`, s.URL, s.URL))
	p := w.Start(t)
	select {
	case <-l.listed:
	case <-p.Ended():
		t.Fatal("the run ended before it asked for the list")
	}
	p.Signal(t, syscall.SIGKILL)
	p.Wait(t)
	close(l.hold)
	said := ""
	for range 2 {
		o := w.Collect(t, "--json")
		if o.Code != harness.ExitDrained && o.Code != harness.ExitDeferred || strings.Contains(o.String(), "unauthorized") {
			t.Fatalf("after the kill: %s", o)
		}
		said += o.String()
		if o.Code == harness.ExitDrained {
			break
		}
	}
	if l.reused != 0 || l.tokens < 2 {
		t.Errorf("%d tokens were given, %d were used twice", l.tokens, l.reused)
	}
	info, err := os.Stat(w.State() + ".login.oauth")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kept token: %v, %v", info, err)
	}
	// It stands there and nowhere else.
	if strings.Contains(said, harness.Token) {
		t.Errorf("the run printed a token:\n%s", said)
	}
	err = filepath.WalkDir(w.Dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasSuffix(path, ".oauth") {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), harness.Token) {
			t.Errorf("a token stands in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
