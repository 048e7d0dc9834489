package egress_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/reason"
)

// TestEachAttemptHasItsSpan below that of the call, which is below the client's. The
// provider gets the attempt's; the query, which may hold a key, is in none.
func TestEachAttemptHasItsSpan(t *testing.T) {
	span := func(n int) string { return fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-%016d-01", n) }
	synctest.Test(t, func(t *testing.T) {
		m := &mirror{body: "{}"}
		next := tripper(func(r *http.Request) (*http.Response, error) {
			m.status = []int{503, 200}[len(m.got)]
			time.Sleep(time.Second)
			return m.RoundTrip(r)
		})
		var parents []string
		x := newRig(t, provider.OpenAI, next, func(p *egress.Provider, o *egress.Options) {
			p.Retries = 1
			o.NewSpan = func(parent string) string {
				parents = append(parents, parent)
				return span(len(parents))
			}
		})
		client := span(99)
		began := time.Now()
		if _, _, err := x.ask(t, "POST", "/p/v1/chat/completions?trace=CANARY", chatBody("m", false), "Traceparent: "+client); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := strings.Join(parents, " "); got != strings.Join([]string{client, span(1), span(1)}, " ") {
			t.Errorf("the spans' parents are %s", got)
		}
		c := x.last(t)
		if c.TraceParent != client || c.Span != span(1) || len(c.Traced) != 2 || len(m.got) != 2 {
			t.Fatalf("the log is %+v", c)
		}
		for i, want := range []struct {
			status int
			class  reason.Class
		}{{503, reason.Overloaded}, {200, reason.OK}} {
			a, sent := c.Traced[i], m.got[i]
			if a.Span != span(i+2) || sent.Header.Get("Traceparent") != a.Span || a.Status != want.status || a.Class != want.class || a.Whole != time.Second {
				t.Errorf("attempt %d: %+v, the provider got %s", i, a, sent.Header.Get("Traceparent"))
			}
			if a.Host != sent.URL.Hostname() || a.Port != sent.URL.Port() || !strings.HasSuffix(a.URL, "/chat/completions") || strings.Contains(fmt.Sprint(a), "CANARY") {
				t.Errorf("attempt %d went to %s, logged as %+v", i, sent.URL, a)
			}
		}
		if c.Traced[0].Began.Sub(began) != 0 || c.Traced[1].Began.Sub(began) < time.Second {
			t.Errorf("begun at %v and %v of %v", c.Traced[0].Began, c.Traced[1].Began, began)
		}
	})
}

// TestNoSpanWithoutTraces: nothing is collected for nobody.
func TestNoSpanWithoutTraces(t *testing.T) {
	m := &mirror{}
	x := newRig(t, provider.OpenAI, m, nil)
	if _, _, err := x.ask(t, "GET", "/p/v1/models", ""); err != nil {
		t.Fatal(err)
	}
	if c := x.last(t); c.Span != "" || c.Traced != nil || m.got[0].Header["Traceparent"] != nil {
		t.Errorf("the log is %+v", c)
	}
}
