package wire

import (
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
)

// source is a body that counts how often it is closed.
type source struct {
	io.Reader
	closed int
}

func (s *source) Close() error { s.closed++; return nil }

// cut is a body that breaks off after some bytes.
func cut(head string, err error) io.Reader {
	return io.MultiReader(strings.NewReader(head), iotest.ErrReader(err))
}

func TestTheBeginningOfABodyIsPutBack(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name, head, all string
		body            io.Reader
		closed          int // before anybody reads it
		err             error
	}{
		{name: "short", body: strings.NewReader("abc"), head: "abc", all: "abc", closed: 1},
		{name: "empty", body: strings.NewReader(""), closed: 1},
		{name: "as long as what is looked at", body: strings.NewReader("abcd"), head: "abcd", all: "abcd"},
		{name: "longer", body: strings.NewReader("abcdefgh"), head: "abcd", all: "abcdefgh"},
		{name: "breaks off", body: cut("ab", broken), head: "ab", all: "ab", err: broken},
		{name: "breaks off later", body: cut("abcdef", broken), head: "abcd", all: "abcdef", err: broken},
	} {
		body := &source{Reader: tt.body}
		if tt.name == "breaks off" {
			body.Reader = &onlyOnce{Reader: tt.body} // its error is not given twice
		}
		res := &http.Response{Body: body}
		if head, whole := Peek(res, 4); string(head) != tt.head || body.closed != tt.closed || whole != (tt.closed > 0) {
			t.Errorf("%s: %q, closed %d times, whole %v", tt.name, head, body.closed, whole)
		}
		all, err := io.ReadAll(res.Body)
		if string(all) != tt.all || !errors.Is(err, tt.err) {
			t.Errorf("%s: then %q, %v", tt.name, all, err)
		}
		if res.Body.Close(); body.closed != 1 {
			t.Errorf("%s: closed %d times", tt.name, body.closed)
		}
	}
	if n, err := (failing{broken}).Read(make([]byte, 4)); n != 0 || !errors.Is(err, broken) {
		t.Errorf("an error comes again with %d bytes: %v", n, err)
	}
	for _, none := range []io.ReadCloser{nil, http.NoBody} {
		res := &http.Response{Body: none}
		if head, whole := Peek(res, 4); head != nil || !whole || res.Body != none {
			t.Errorf("%v became %v, with %q", none, res.Body, head)
		}
	}
}

// onlyOnce is a reader that is at its end after it gave an error.
type onlyOnce struct {
	io.Reader
	over bool
}

func (o *onlyOnce) Read(p []byte) (int, error) {
	if o.over {
		return 0, io.EOF
	}
	n, err := o.Reader.Read(p)
	o.over = err != nil
	return n, err
}

func TestOneRequestTakesThreeNewConnections(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	connected := 0
	ctx = FewConnections(ctx, cancel, func() { connected++ })
	trace := httptrace.ContextClientTrace(ctx)
	for n := 1; n <= MaxConnections; n++ {
		trace.GotConn(httptrace.GotConnInfo{})
		for range 5 {
			trace.GotConn(httptrace.GotConnInfo{Reused: true}) // costs the provider nothing new
		}
		if ctx.Err() != nil {
			t.Fatalf("ended after %d new connections: %v", n, context.Cause(ctx))
		}
	}
	trace.GotConn(httptrace.GotConnInfo{})
	if !errors.Is(context.Cause(ctx), ErrResent) {
		t.Errorf("after a fourth: %v", context.Cause(ctx))
	}
	if want := 6*MaxConnections + 1; connected != want {
		t.Errorf("%d connections were counted, want %d", connected, want)
	}
	httptrace.ContextClientTrace(FewConnections(t.Context(), cancel, nil)).GotConn(httptrace.GotConnInfo{})
}

func TestWhatAnErrorSaysOfTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		err               error
		unsent, untrusted bool
	}{
		"none":            {nil, false, false},
		"reset":           {&net.OpError{Op: "read", Err: io.ErrUnexpectedEOF}, false, false},
		"refused":         {fmt.Errorf("send: %w", &net.OpError{Op: "dial", Err: io.EOF}), true, false},
		"no such name":    {fmt.Errorf("dial: %w", &net.DNSError{IsNotFound: true}), true, false},
		"not trusted":     {&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, true, true},
		"no record of it": {fmt.Errorf("handshake: %w", tls.RecordHeaderError{}), true, true},
		"no way there":    {&net.OpError{Op: "proxyconnect", Err: errors.New("502")}, true, false},
		"an alert":        {fmt.Errorf("handshake: %w", tls.AlertError(40)), true, true},
	} {
		if unsent, untrusted := Unsent(c.err), Untrusted(c.err); unsent != c.unsent || untrusted != c.untrusted {
			t.Errorf("%s: unsent %v, untrusted %v; want %v, %v", name, unsent, untrusted, c.unsent, c.untrusted)
		}
	}
}
