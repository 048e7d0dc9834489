//go:build unix

package hold_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/sim/serve"
)

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
