package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/internal/wire"
	"github.com/headway-go/headway/reason"
)

// source is a body that counts what is read of it and says when it is closed.
type source struct {
	io.Reader
	read     int
	closed   int
	closeErr error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.read += n
	return n, err
}

func (s *source) Close() error { s.closed++; return s.closeErr }

// cut is a body that breaks off after some bytes.
func cut(head string, err error) io.Reader {
	return io.MultiReader(strings.NewReader(head), iotest.ErrReader(err))
}

func TestAWholeBodyIsReadToItsBoundAndNotBeyond(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name     string
		body     io.Reader
		length   int64 // as the header says
		closeErr error
		want     string
		err      error
	}{
		{name: "empty", body: strings.NewReader(""), length: 0},
		{name: "short", body: strings.NewReader("abc"), length: 3, want: "abc"},
		{name: "as long as may be", body: strings.NewReader("abcdefgh"), length: 8, want: "abcdefgh"},
		{name: "one byte more", body: strings.NewReader("abcdefghi"), length: 9, err: ErrTooLarge},
		{name: "much more", body: bytes.NewReader(make([]byte, 4000)), length: -1, err: ErrTooLarge},
		{name: "a header that lies", body: strings.NewReader("abc"), length: 1 << 60, want: "abc"},
		{name: "unknown length", body: strings.NewReader("abc"), length: -1, want: "abc"},
		{name: "breaks off", body: cut("abc", broken), length: 8, err: broken},
		{name: "breaks off and closes badly", body: cut("abc", broken), closeErr: io.ErrClosedPipe, err: broken},
		{name: "closes badly", body: strings.NewReader("abc"), closeErr: broken, err: broken},
	} {
		body := &source{Reader: tt.body, closeErr: tt.closeErr}
		res := &http.Response{StatusCode: 200, Body: body, ContentLength: tt.length}
		err := swallow(res, 8)
		if !errors.Is(err, tt.err) || body.closed != 1 || body.read > 9 {
			t.Errorf("%s: %v, want %v; closed %d times after %d bytes", tt.name, err, tt.err, body.closed, body.read)
		}
		if err != nil {
			continue
		}
		got, err := io.ReadAll(res.Body)
		if string(got) != tt.want || err != nil || res.ContentLength != int64(len(tt.want)) {
			t.Errorf("%s: %q of length %d, %v", tt.name, got, res.ContentLength, err)
		}
	}
}

func TestABodyOfKnownLengthGetsItsRoomAtOnce(t *testing.T) {
	allocated := func(n int, known bool) float64 {
		data := make([]byte, n)
		return testing.AllocsPerRun(50, func() {
			res := &http.Response{StatusCode: 200, Body: io.NopCloser(bytes.NewReader(data)), ContentLength: -1}
			if known {
				res.ContentLength = int64(n)
			}
			if err := swallow(res, 1<<20); err != nil {
				t.Fatal(err)
			}
		})
	}
	once := allocated(0, false)
	for _, n := range []int{1, 2, 600, 100_000} {
		if got := allocated(n, true); got != once {
			t.Errorf("a body of %d bytes took %v allocations, want %v", n, got, once)
		}
	}
}

func TestTheLengthOfAnAnswerToHeadStays(t *testing.T) {
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		res := &http.Response{StatusCode: 200, Body: http.NoBody, ContentLength: 4000, Request: &http.Request{Method: method}}
		if err := swallow(res, 8); err != nil {
			t.Fatal(err)
		}
		if want := map[string]int64{http.MethodHead: 4000, http.MethodGet: 0}[method]; res.ContentLength != want {
			t.Errorf("%s: length %d, want %d", method, res.ContentLength, want)
		}
	}
}

func TestAnAttemptsTimeEndsWithItsBody(t *testing.T) {
	for _, tt := range []struct {
		name string
		body io.Reader
		use  func(io.ReadCloser)
		ends int
	}{
		{"not read", strings.NewReader("abc"), func(io.ReadCloser) {}, 0},
		{"read in part", strings.NewReader("abc"), func(b io.ReadCloser) { _, _ = b.Read(make([]byte, 2)) }, 0},
		{"read to its end", strings.NewReader("abc"), func(b io.ReadCloser) { _, _ = io.ReadAll(b) }, 1},
		{"broken off", cut("a", io.ErrClosedPipe), func(b io.ReadCloser) { _, _ = io.ReadAll(b) }, 1},
		{"closed", strings.NewReader("abc"), func(b io.ReadCloser) { _ = b.Close() }, 1},
	} {
		ended := 0
		body := &source{Reader: tt.body, closeErr: io.ErrShortWrite}
		res := &http.Response{StatusCode: 200, Body: body}
		bound(res, func() { ended++ })
		if tt.use(res.Body); ended != tt.ends {
			t.Errorf("%s: the attempt ended %d times, want %d", tt.name, ended, tt.ends)
		}
		if err := res.Body.Close(); !errors.Is(err, io.ErrShortWrite) || body.closed == 0 {
			t.Errorf("%s: closed with %v", tt.name, err)
		}
	}
	switched := &source{Reader: strings.NewReader("")}
	for _, res := range []*http.Response{{StatusCode: http.StatusSwitchingProtocols, Body: switched}, {StatusCode: 200}} {
		body := res.Body
		if bound(res, func() {}); res.Body != body {
			t.Errorf("the body of a %d, %v, became %v", res.StatusCode, body, res.Body)
		}
	}
}

func TestWhatAnAttemptWithoutAResponseStandsFor(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		err   error
		class reason.Class
		final bool
	}{
		{"reset", t.Context(), io.ErrUnexpectedEOF, reason.Lost, false},
		{"the caller left", gone, io.ErrUnexpectedEOF, reason.Unknown, true},
		{"no such name", t.Context(), fmt.Errorf("dial: %w", &net.DNSError{IsNotFound: true}), reason.Lost, true},
		{"no answer of the name server", t.Context(), &net.DNSError{IsTimeout: true}, reason.Lost, false},
		{"not trusted", t.Context(), &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, reason.Lost, true},
		{"no record of TLS", t.Context(), fmt.Errorf("handshake: %w", tls.RecordHeaderError{}), reason.Lost, true},
		{"an alert", t.Context(), fmt.Errorf("handshake: %w", tls.AlertError(40)), reason.Lost, true},
		{"plain HTTP", t.Context(), fmt.Errorf("send: %w", http.ErrSchemeMismatch), reason.Lost, true},
		{"too large", t.Context(), fmt.Errorf("%w: x", ErrTooLarge), reason.Lost, true},
	} {
		if class, final := lost(tt.ctx, tt.err); class != tt.class || final != tt.final {
			t.Errorf("%s: %v, final %v; want %v, %v", tt.name, class, final, tt.class, tt.final)
		}
	}
}

// TestWhichRequestsAreSentAsTheyAre: only those that cannot go over many new connections, with
// nothing to add to them.
func TestWhichRequestsAreSentAsTheyAre(t *testing.T) {
	h2c := new(http.Protocols)
	h2c.SetUnencryptedHTTP2(true)
	g, err := headway.New(headway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		o    Options
		url  string
		n    int
		want bool
	}{
		{"the default", Options{}, "http://x", 1, true},
		{"HTTP/1", Options{Base: &http.Transport{Protocols: new(http.Protocols)}}, "http://x", 1, true},
		{"TLS", Options{}, "https://x", 1, false},
		{"HTTP/2 without TLS", Options{Base: &http.Transport{Protocols: h2c}}, "http://x", 1, false},
		{"an unknown transport", Options{Base: struct{ http.RoundTripper }{http.DefaultTransport}}, "http://x", 1, false},
		{"a timeout", Options{Timeout: time.Second}, "http://x", 1, false},
		{"a retry", Options{}, "http://x", 2, false},
	} {
		tr, err := New(g, tt.o)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		out, end, err := tr.outbound(req, tt.n)
		if err != nil || (out == req) != tt.want {
			t.Errorf("%s: as it is: %v, want %v; %v", tt.name, out == req, tt.want, err)
		}
		end()
		if ended := out.Context().Err() != nil; ended == tt.want {
			t.Errorf("%s: the context of the attempt has ended: %v", tt.name, ended)
		}
	}
}

func TestAnAttemptEndsByItsConnectionsOrItsCaller(t *testing.T) {
	ctx, end := onFewConnections(t.Context())
	trace := httptrace.ContextClientTrace(ctx)
	for range wire.MaxConnections + 1 {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if !errors.Is(context.Cause(ctx), ErrResent) {
		t.Errorf("after too many connections: %v", context.Cause(ctx))
	}
	end()
	ctx, end = onFewConnections(t.Context())
	if end(); !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Errorf("after its end: %v", context.Cause(ctx))
	}
}
