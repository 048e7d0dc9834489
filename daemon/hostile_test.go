package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/pipenet"
)

// pipes is an in-memory listener for synctest bubbles. Its address is one that a daemon may
// listen on.
type pipes struct{ *pipenet.Listener }

func newPipes() pipes { return pipes{pipenet.New()} }

func (pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8700} }

func (p pipes) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := p.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// hostile runs a test against a daemon in a bubble.
func hostile(t *testing.T, test func(t *testing.T, p pipes)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Read("h.yaml", []byte("state: "+dir+"\nmax_connections: 2\nproviders: {openai: {api: openai, max_body: 4KiB, pass_through: true}}"), func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := newPipes()
		d.listenFunc = func(context.Context) (net.Listener, error) { return p, nil }
		d.socketFunc = func(context.Context, string) (net.Listener, error) { return newPipes(), nil }
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(t, p)
		if err := d.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// status reads the answer of a connection, and how long it took to come or to
// end; 0 is an end without an answer.
func status(t *testing.T, c net.Conn) (code int, took time.Duration) {
	t.Helper()
	began := time.Now()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	took = time.Since(began)
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("it ended by %v", err)
		}
		return 0, took
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, took
}

const chat = "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

// feed writes a text, then a piece repeatedly until writing fails.
func feed(c net.Conn, text, piece string, every time.Duration) {
	_, err := io.WriteString(c, text)
	for err == nil && piece != "" {
		if every > 0 {
			time.Sleep(every)
		}
		_, err = io.WriteString(c, piece)
	}
}

func TestHostileClientsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		text, piece string
		every       time.Duration
		want        []int // codes
		from, to    time.Duration
	}{
		"nothing is sent":             {"", "", 0, []int{0}, headerTimeout, headerTimeout + time.Second},
		"half a header":               {"GET / HTTP/1.1\r\nHost: lo", "", 0, []int{0, 408}, 0, headerTimeout + time.Second},
		"a header byte by byte":       {"GET / HTTP/1.1\r\nX-A: ", "a", time.Second, []int{0, 408}, 0, headerTimeout + time.Second},
		"a header without end":        {"GET / HTTP/1.1\r\nX-A: ", strings.Repeat("a", 4096), 0, []int{431}, 0, time.Second},
		"a body that stalls":          {chat + "Content-Length: 1000\r\n\r\n{", "", 0, []int{400, 408}, 30 * time.Second, 31 * time.Second},
		"a body byte by byte":         {chat + "Content-Length: 1000\r\n\r\n{", " ", time.Second, []int{400, 408}, 29 * time.Second, 32 * time.Second},
		"a body without end":          {chat + "Transfer-Encoding: chunked\r\n\r\n", "400\r\n" + strings.Repeat("a", 1024) + "\r\n", 0, []int{413}, 0, time.Second},
		"a body that is too long":     {chat + "Content-Length: 99999999999\r\n\r\n", strings.Repeat("a", 1024), 0, []int{413}, 0, time.Second},
		"too long, and asks first":    {chat + "Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n", "", 0, []int{413}, 0, time.Second},
		"refused, and asks first":     {"POST /nobody HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n", "", 0, []int{404}, 0, time.Second},
		"refused, and sends nothing":  {"POST /nobody HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", "", 0, []int{404}, defaultGuard.rest, defaultGuard.rest + time.Second},
		"invalid chunks":              {chat + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "", 0, []int{400, 408}, 0, time.Second},
		"chunks of endless extension": {chat + "Transfer-Encoding: chunked\r\n\r\n1;", "a=b;", 0, []int{400, 408}, 0, time.Second},
		"two lengths":                 {chat + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "", 0, []int{400}, 0, time.Second},
		"no HTTP":                     {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "", 0, []int{400}, 0, time.Second},
		"a tunnel":                    {"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", "", 0, []int{400, 403, 404, 405}, 0, time.Second},
		"an absolute URL":             {"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "", 0, []int{400, 403, 404}, 0, time.Second},
		"no host":                     {"GET / HTTP/1.1\r\n\r\n", "", 0, []int{400}, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			hostile(t, func(t *testing.T, p pipes) {
				conn := p.dial(t)
				var feeding sync.WaitGroup
				feeding.Go(func() { feed(conn, c.text, c.piece, c.every) })
				code, took := status(t, conn)
				ok := false
				for _, want := range c.want {
					ok = ok || code == want
				}
				if !ok || took < c.from || took > c.to {
					t.Errorf("status %d after %v, want one of %v within %v to %v", code, took, c.want, c.from, c.to)
				}
				_ = conn.Close()
				feeding.Wait()
			})
		})
	}
}

// The remainder of a body is never taken for the next request: behind a proxy that shares
// connections, that would be request smuggling.
func TestTheRestOfABodyIsNoRequest(t *testing.T) {
	for name, head := range map[string]string{
		"that is read first": chat + "Content-Length: 1000\r\n\r\n{",
		"that is refused":    "POST /nobody HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
		"of the API":         "POST /v1/quota/approve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
		"of chunks, cut":     chat + "Transfer-Encoding: chunked\r\n\r\n400\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			hostile(t, func(t *testing.T, p pipes) {
				conn := p.dial(t)
				if _, err := io.WriteString(conn, head); err != nil {
					t.Fatal(err)
				}
				var sending sync.WaitGroup
				sending.Go(func() {
					time.Sleep(2 * defaultGuard.stall) // by then the daemon has given up on the body
					_, _ = io.WriteString(conn, "\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
				})
				said, _ := io.ReadAll(conn)
				if n := strings.Count(string(said), "HTTP/1.1 "); n > 1 || strings.Contains(string(said), `"ok"`) {
					t.Errorf("%d answers:\n%s", n, said)
				}
				if strings.Contains(string(said), "HTTP/1.1 200") {
					t.Errorf("half a body was answered with\n%s", said)
				}
				_ = conn.Close()
				sending.Wait()
			})
		})
	}
}

// A transport closes the body that it sends on, however far it came.
func TestTheRestOfABodyThatWasSentOnIsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		s := &http.Server{Handler: defaultGuard.around(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
			if err == nil {
				t.Error("half a body came whole")
			}
			w.WriteHeader(http.StatusRequestTimeout)
		}))}
		var serving sync.WaitGroup
		serving.Go(func() { _ = s.Serve(p) })
		conn := p.dial(t)
		var sending sync.WaitGroup
		sending.Go(func() {
			feed(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{", "", 0)
			time.Sleep(2 * defaultGuard.stall)
			feed(conn, "\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "", 0)
		})
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if !resp.Close || resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("status %d, the connection stays open: %v", resp.StatusCode, !resp.Close)
		}
		_ = conn.Close()
		_ = s.Close()
		sending.Wait()
		serving.Wait()
	})
}

// TestSlowBodiesPassWhereTheOwnerLetsThem: the configuration sets the bounds for slow
// clients.
func TestSlowBodiesPassWhereTheOwnerLetsThem(t *testing.T) {
	for name, c := range map[string]struct {
		clients config.Clients
		pause   time.Duration
		want    int
	}{
		"100 B/s by default":       {config.Clients{}, 10 * time.Second, http.StatusRequestTimeout},
		"100 B/s":                  {config.Clients{BodyRate: 50}, 10 * time.Second, http.StatusOK},
		"a minute's silence":       {config.Clients{BodyRate: 1}, time.Minute, http.StatusRequestTimeout},
		"a minute's silence given": {config.Clients{BodyRate: 1, BodyStall: 2 * time.Minute}, time.Minute, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				s := &http.Server{Handler: guardOf(c.clients).around(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						w.WriteHeader(http.StatusRequestTimeout)
					}
				}))}
				var serving, sending sync.WaitGroup
				serving.Go(func() { _ = s.Serve(p) })
				conn := p.dial(t)
				sending.Go(func() {
					_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12000\r\n\r\n")
					for n := 0; n < 12 && err == nil; n++ {
						time.Sleep(c.pause)
						_, err = conn.Write(make([]byte, 1000))
					}
				})
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != c.want {
					t.Errorf("status %d, want %d", resp.StatusCode, c.want)
				}
				_ = conn.Close()
				_ = s.Close()
				sending.Wait()
				serving.Wait()
			})
		})
	}
}

// reads is an upstream that reads what is sent to it.
type reads struct{}

func (reads) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// An upload that stops half way is not a success: for net/http, a client whose deadline
// passed has gone away.
func TestHalfAnUploadIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, ok := provider.Builtin(provider.OpenAI)
		if !ok {
			t.Fatal("there is no OpenAI")
		}
		proxy, err := egress.New(egress.Options{Providers: []egress.Provider{{Name: "p", Description: d, Key: "k", Roundtripper: reads{}}}})
		if err != nil {
			t.Fatal(err)
		}
		p := newPipes()
		s := &http.Server{Handler: defaultGuard.around(proxy)}
		var serving, sending sync.WaitGroup
		serving.Go(func() { _ = s.Serve(p) })
		conn := p.dial(t)
		sending.Go(func() {
			feed(conn, "POST /p/v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\nx", "", 0)
		})
		line, err := bufio.NewReader(conn).ReadString('\n')
		if line != "" && !strings.Contains(line, " 408 ") {
			t.Errorf("half an upload was answered %q, %v", line, err)
		}
		_ = conn.Close()
		_ = s.Close()
		sending.Wait()
		serving.Wait()
	})
}

func TestAClientThatDoesNotReadIsCut(t *testing.T) {
	hostile(t, func(t *testing.T, p pipes) {
		conn := p.dial(t)
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(defaultGuard.drain - time.Second)
		synctest.Wait()
		_ = p.dial(t).Close() // it still listens
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if b, err := io.ReadAll(conn); len(b) > 0 || err != nil {
			t.Errorf("after a minute it still read %d bytes, %v", len(b), err)
		}
	})
}

func TestConnectionsBeyondTheBoundWait(t *testing.T) {
	hostile(t, func(t *testing.T, p pipes) {
		ask := func(c net.Conn) int {
			go feed(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "", 0)
			code, _ := status(t, c)
			return code
		}
		first, second := p.dial(t), p.dial(t)
		if a, b := ask(first), ask(second); a != 200 || b != 200 {
			t.Fatalf("%d, %d", a, b)
		}
		third := make(chan int)
		go func() { third <- ask(p.dial(t)) }()
		synctest.Wait()
		select {
		case code := <-third:
			t.Errorf("a third connection was let in: %d", code)
		default:
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if code := <-third; code != 200 {
			t.Errorf("after one left: %d", code)
		}
		_ = second.Close()
	})
}

func TestFaultsSayNothingOfClients(t *testing.T) {
	if got := firstFrame("http: panic serving 1.2.3.4:5: secret\ngoroutine 7 [running]:\n\t/src/headway/daemon/x.go:3 +0x1\n"); got != "headway/daemon/x.go:3 +0x1" {
		t.Errorf("the frame is %q", got)
	}
	if got := firstFrame(fmt.Sprintf("http: panic serving 1.2.3.4:5: %s", "secret")); got != "unknown" {
		t.Errorf("without a stack: %q", got)
	}
}
