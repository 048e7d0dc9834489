package cli

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

// doorway is a listener whose connections are pipes, so that time can be virtual.
type doorway struct {
	conns chan net.Conn
	once  sync.Once
	shut  chan struct{}
}

func (d *doorway) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.shut:
		return nil, net.ErrClosed
	}
}

func (d *doorway) Close() error   { d.once.Do(func() { close(d.shut) }); return nil }
func (d *doorway) Addr() net.Addr { return &net.TCPAddr{} }

func TestStoppingDrainsAndThenCuts(t *testing.T) {
	tests := []struct {
		name    string
		latency string
		status  int // of the request under way; 0 is cut
		after   time.Duration
	}{
		{"a short request is answered", "4s", 200, 3 * time.Second},
		{"a long one is cut", "1h", 0, drainTime},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := scenario.Parse("slow.yaml", []byte("name: slow\nprovider: {latency: {p50: "+tt.latency+", uplink_p50: 1ms, uplink_p99: 1ms}}\n"))
				if err != nil {
					t.Fatal(err)
				}
				var log bytes.Buffer
				handler, err := serve.New(s, serve.Options{Log: &log})
				if err != nil {
					t.Fatal(err)
				}
				door := &doorway{conns: make(chan net.Conn), shut: make(chan struct{})}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ended := make(chan error, 1)
				go func() { ended <- serveUntil(ctx, door, handler, io.Discard) }()
				transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
					here, there := net.Pipe()
					door.conns <- there
					return here, nil
				}}
				defer transport.CloseIdleConnections()
				status := make(chan int, 1)
				go func() {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://provider/conversations", nil)
					if err != nil {
						status <- -1
						return
					}
					res, err := transport.RoundTrip(r)
					if err != nil {
						status <- 0
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					status <- res.StatusCode
				}()
				time.Sleep(time.Second)
				stop()
				asked := time.Now()
				err = <-ended
				if took := time.Since(asked); err != nil || took < tt.after || took > tt.after+time.Second {
					t.Errorf("it ended with %v after %s, want no error after %s", err, took, tt.after)
				}
				if got := <-status; got != tt.status {
					t.Errorf("status %d, want %d", got, tt.status)
				}
				// Whole, whether it was answered or not.
				if got := bytes.Count(log.Bytes(), []byte("\n")); got != 1 || handler.Stats().Admitted != 1 {
					t.Errorf("%d lines in the log and %d admitted, want one each", got, handler.Stats().Admitted)
				}
			})
		})
	}
}

func TestSlowHeadersAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := &doorway{conns: make(chan net.Conn), shut: make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serveUntil(ctx, door, http.NotFoundHandler(), io.Discard) }()
		here, there := net.Pipe()
		door.conns <- there
		began := time.Now()
		if _, err := io.WriteString(here, "GET / HTTP/1.1\r\nHost:"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, here); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != headerTimeout {
			t.Errorf("half a header is cut off after %s, want %s", took, headerTimeout)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
