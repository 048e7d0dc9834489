package forward

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// tunnel is a connection that the program opened with CONNECT, and its target.
type tunnel struct {
	net.Conn
	scheme    string
	authority string

	asked atomic.Bool // it had a request
	late  atomic.Bool // the proxy ended it, since the program sent nothing in time
}

func (t *tunnel) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	if err != nil && isTimeout(err) {
		t.late.Store(true)
	}
	return n, err
}

type tunnelKey struct{}

// tunnelOf returns the tunnel of a connection of the inner server.
func tunnelOf(c net.Conn) *tunnel {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	t, _ := c.(*tunnel)
	return t
}

// tunnels is the listener of the inner server.
type tunnels struct {
	next   chan net.Conn
	closed <-chan struct{}
}

// give passes a connection to the server.
func (t *tunnels) give(c net.Conn) {
	select {
	case t.next <- c:
	case <-t.closed:
		_ = c.Close()
	}
}

func (t *tunnels) Accept() (net.Conn, error) {
	select {
	case c := <-t.next:
		return c, nil
	case <-t.closed:
		return nil, net.ErrClosed
	}
}

func (t *tunnels) Close() error   { return nil }
func (t *tunnels) Addr() net.Addr { return &net.TCPAddr{} }

// splice copies bytes in both directions until both sides have ended.
func (p *Proxy) splice(near, far net.Conn) {
	end := func() {
		_ = near.Close()
		_ = far.Close()
	}
	defer end()
	defer context.AfterFunc(p.ctx, end)()
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
			return
		}
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { pass(far, near) })
	both.Go(func() { pass(near, far) })
	both.Wait()
}

// unread returns a connection that first returns the bytes already read from it.
func unread(c net.Conn, from *bufio.Reader) net.Conn {
	n := from.Buffered()
	if n == 0 {
		return c
	}
	head, _ := from.Peek(n)
	return &begun{Conn: c, head: append([]byte(nil), head...)}
}

// begun is a connection with bytes that were already read.
type begun struct {
	net.Conn
	head []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.head) > 0 {
		n := copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	}
	return b.Conn.Read(p)
}

// CloseWrite closes the write side, or the whole connection if it has no such side.
func (b *begun) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return b.Close()
}

// dial connects to an address, through the proxy of the environment if there is one.
func dial(ctx context.Context, authority string) (net.Conn, error) {
	by, err := environment(authority)
	if err != nil {
		return nil, fmt.Errorf("forward: the proxy of the environment: %w", err)
	}
	d := net.Dialer{KeepAlive: 30 * time.Second}
	if by == nil {
		return d.DialContext(ctx, "tcp", authority)
	}
	if by.Scheme != "http" && by.Scheme != "https" {
		return nil, fmt.Errorf("forward: the proxy of the environment has the scheme %q; want http or https", by.Scheme)
	}
	host, port, _ := split(by.Host, map[string]string{"http": "80", "https": "443"}[by.Scheme])
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	if by.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: host})
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	conn, err = ask(conn, by, authority)
	if !stop() && err == nil {
		err = errors.Join(ctx.Err(), conn.Close())
	}
	return conn, err
}

// connected returns an error unless the proxy of the environment has opened a tunnel.
func connected(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: fmt.Errorf("the proxy of the environment answered %d", res.StatusCode)}
}

// ask asks a proxy for a tunnel.
func ask(conn net.Conn, by *url.URL, authority string) (net.Conn, error) {
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: authority}, Host: authority, Header: http.Header{}}
	if by.User != nil {
		password, _ := by.User.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(by.User.Username()+":"+password)))
	}
	in := bufio.NewReader(conn)
	err := r.Write(conn)
	var res *http.Response
	if err == nil {
		res, err = http.ReadResponse(in, r) //nolint:bodyclose // What follows the head of a tunnel is the tunnel.
	}
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("forward: the proxy of the environment answered %d", res.StatusCode)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return unread(conn, in), nil
}

// plain is a writer that adds no field to the provider's, and lets trailers pass.
type plain struct {
	http.ResponseWriter
	chunks bool // a body of known length cannot have trailers, as it can in HTTP/2

	mu sync.Mutex // flushes come from other goroutines
}

func (w *plain) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.Header()
	if w.chunks && h["Trailer"] != nil {
		delete(h, "Content-Length")
	}
	for _, name := range [...]string{"Date", "Content-Type"} { // which net/http would add
		if _, ok := h[name]; !ok {
			h[name] = nil
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *plain) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ResponseWriter.Write(b)
}

func (w *plain) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *plain) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// pass prepares the relay of an answer. One of known length is not flushed at each write, so
// what came before an early end is flushed then.
func (p *Proxy) pass(res *http.Response) error {
	if res.ContentLength > 0 && res.StatusCode != http.StatusSwitchingProtocols {
		res.Body = &flushing{ReadCloser: res.Body, to: callOf(res.Request.Context()).out}
	}
	return nil
}

type flushing struct {
	io.ReadCloser
	to  *plain
	err error
}

func (f *flushing) Read(b []byte) (n int, err error) {
	if f.err == nil {
		n, f.err = f.ReadCloser.Read(b)
		if errors.Is(f.err, io.EOF) {
			return n, io.EOF
		}
		if n > 0 || f.err == nil {
			return n, nil // an error follows once this was written
		}
	}
	_ = f.to.FlushError()
	return 0, f.err
}

// buffers are the copy buffers for bodies.
type buffers struct{}

var bufferPool = sync.Pool{New: func() any { return new([copyBytes]byte) }}

func (buffers) Get() []byte { return bufferPool.Get().(*[copyBytes]byte)[:] }

func (buffers) Put(b []byte) {
	if cap(b) == copyBytes {
		bufferPool.Put((*[copyBytes]byte)(b[:copyBytes]))
	}
}
