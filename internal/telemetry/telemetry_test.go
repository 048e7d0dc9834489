package telemetry_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/telemetry"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// collector keeps what is exported to it. In protobuf texts and ids stand as
// they are, so that they can be looked for in the bytes.
type collector struct {
	*httptest.Server
	mu   sync.Mutex
	got  map[string]*bytes.Buffer // by path
	keys map[string]bool          // of the field Api-Key
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{got: map[string]*bytes.Buffer{}, keys: map[string]bool{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.keys[r.Header.Get("Api-Key")] = true
		if c.got[r.URL.Path] == nil {
			c.got[r.URL.Path] = new(bytes.Buffer)
		}
		c.got[r.URL.Path].Write(b)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) received(path string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.got[path] == nil {
		return ""
	}
	return c.got[path].String()
}

const (
	trace  = "0af7651916cd43dd8448eb211c80319c"
	parent = "00-" + trace + "-b7ad6b7169203331-01"
)

func registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "headway_things_total", Help: "Things."})
	c.Inc()
	r.MustRegister(c)
	return r
}

func TestSpansAndMetricsAreSent(t *testing.T) {
	c := newCollector(t)
	tel, err := telemetry.Start(t.Context(), telemetry.Config{
		Endpoint: c.URL + "/base", Headers: map[string]string{"Api-Key": "canary"}, Version: "v1",
	}, registry())
	if err != nil {
		t.Fatal(err)
	}
	tel.Call(egress.CallLog{
		Began: time.Now(), Provider: "openai", Method: "POST", Model: "small", Tenant: "team", TraceParent: parent, Law: "cycle",
		Status: 200, Ending: egress.Complete, Class: reason.OK, Attempts: 2, Wait: time.Second, Header: time.Second, Whole: 3 * time.Second,
		Used: quota.Usage{Input: 12, Output: 34}, Reported: true, Span: "00-" + trace + "-00f067aa0ba902b7-01",
		Traced: []egress.Attempt{
			{Span: "00-" + trace + "-1111111111111111-01", Began: time.Now(), Status: 503, Class: reason.Overloaded, Host: "api.one.example", URL: "https://api.one.example/v1/first"},
			{Span: "00-" + trace + "-2222222222222222-01", Began: time.Now(), Status: 200, Class: reason.OK, Host: "api.two.example", Port: "8443", URL: "https://api.two.example:8443/v1/second"},
		},
	})
	tel.Call(egress.CallLog{Began: time.Now(), Provider: "openai", Method: "POST", Status: 429, Ending: egress.Refused, Code: "RATE_THROTTLED", Reason: reason.Deadline})
	if err := tel.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	id, err := hex.DecodeString(trace)
	if err != nil {
		t.Fatal(err)
	}
	spans := c.received("/base/v1/traces")
	for _, span := range []string{"\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", "\x11\x11\x11\x11\x11\x11\x11\x11", "\x22\x22\x22\x22\x22\x22\x22\x22"} {
		if !strings.Contains(spans, span) {
			t.Errorf("there is no span %x", span)
		}
	}
	if n := strings.Count(spans, "\x00\xf0\x67\xaa\x0b\xa9\x02\xb7"); n != 3 {
		t.Errorf("the call's span is named %d times, want as itself and as the parent of two", n)
	}
	for name, want := range map[string]int{"headway.wait_ms": 4, "headway.law": 3, "headway.reason": 2} {
		if n := strings.Count(spans, name); n != want { // of two calls and two attempts
			t.Errorf("%s is on %d spans, want %d", name, n, want)
		}
	}
	if n := strings.Count(spans, "http.request.resend_count"); n != 1 {
		t.Errorf("%d attempts are said to be repeated, want one", n)
	}
	for _, want := range []string{
		"server.address", "api.one.example", "server.port", "url.full", "https://api.two.example:8443/v1/second", "error.type", "overloaded",
		string(id), "POST openai", "http.request.method", "http.response.status_code", "gen_ai.request.model", "small", "gen_ai.usage.input_tokens",
		"headway.wait_ms", "headway.law", "cycle", "headway.reason", "headway.code", "RATE_THROTTLED", "http.request.resend_count", "service.version",
	} {
		if !strings.Contains(spans, want) {
			t.Errorf("the spans lack %q", want)
		}
	}
	if figures := c.received("/base/v1/metrics"); !strings.Contains(figures, "headway_things_total") {
		t.Error("the metrics were not sent")
	}
	if strings.Contains(spans, "canary") || !c.keys["canary"] || len(c.keys) != 1 {
		t.Error("the header belongs to every export, and into none of what is exported")
	}
}

func TestSampling(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sample float64
		parent string
		sent   bool
	}{
		{"none of new traces", -1, "", false},
		{"a trace that the client follows", -1, parent, true},
		{"all by default", 0, "", true},
		{"not what the client does not follow", 0, parent[:len(parent)-1] + "0", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCollector(t)
			tel, err := telemetry.Start(t.Context(), telemetry.Config{Endpoint: c.URL, Sample: tt.sample}, registry())
			if err != nil {
				t.Fatal(err)
			}
			tel.Call(egress.CallLog{Began: time.Now(), Provider: "openai", Method: "POST", TraceParent: tt.parent, Status: 200, Ending: egress.Complete})
			if err := tel.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := c.received("/v1/traces") != ""; got != tt.sent {
				t.Errorf("a span was sent: %v, want %v", got, tt.sent)
			}
		})
	}
}

// TestAnAbsentCollectorHoldsNothingUp: calls go on and the end comes in time.
func TestAnAbsentCollectorHoldsNothingUp(t *testing.T) {
	c := newCollector(t)
	c.Close()
	tel, err := telemetry.Start(t.Context(), telemetry.Config{Endpoint: c.URL}, registry())
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 { // more than the queue holds
		tel.Call(egress.CallLog{Began: time.Now(), Provider: "openai", Method: "POST", Status: 200, Ending: egress.Complete})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := tel.Stop(ctx); err == nil {
		t.Error("the end does not tell that spans were lost")
	}
}

// TestTheEndCutsWhatIsBeingSent: a collector that is silent gets no more once the time to
// stop is over, and nothing goes on in the background.
func TestTheEndCutsWhatIsBeingSent(t *testing.T) {
	asked, left := make(chan struct{}, 100), make(chan struct{}, 100)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	}))
	defer silent.Close()
	tel, err := telemetry.Start(t.Context(), telemetry.Config{Endpoint: silent.URL}, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for range 2_000 {
		tel.Call(egress.CallLog{Began: time.Now(), Provider: "openai", Method: "POST", Status: 200, Ending: egress.Complete})
	}
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := tel.Stop(ctx); err == nil {
		t.Error("the end does not tell that spans were lost")
	}
	select {
	case <-left:
	case <-time.After(5 * time.Second): // half of the time that one try has
		t.Error("spans are still being sent after the end")
	}
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	for field, c := range map[string]telemetry.Config{
		"endpoint": {Endpoint: "localhost:4318"}, "user": {Endpoint: "http://me:secret@localhost"},
		"interval": {Endpoint: "http://localhost", Interval: time.Millisecond}, "sample": {Endpoint: "http://localhost", Sample: 2},
	} {
		if _, err := telemetry.Start(t.Context(), c, registry()); err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
