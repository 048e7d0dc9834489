package egress_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/reason"
)

func TestAddressesInAnswersLeadBack(t *testing.T) {
	for _, c := range []struct{ field, value, want string }{
		{"X-Goog-Upload-Url", "http://upstream/base/upload/v1beta/files?upload_id=a&key=k&upload_protocol=resumable", "http://proxy/p/upload/v1beta/files?upload_id=a&upload_protocol=resumable"},
		{"X-Goog-Upload-Url", "https://generativelanguage.googleapis.com/upload/v1beta/files?upload_id=a", "http://proxy/p/upload/v1beta/files?upload_id=a"},
		{"X-Goog-Upload-Url", "https://evil.example/upload", ""},
		{"Operation-Location", "http://upstream/base/ops/1", "/p/ops/1"},
		{"Content-Location", "/base/v1/x", "/p/v1/x"},
		{"Content-Location", "http://evil.example/x", ""},
		{"Location", "http://upstream/base/v1/x?access_token=t&a=1", "/p/v1/x?a=1"},
		{"Link", `<http://upstream/base/v1/x?page=2>; rel="next", <?page=1>; rel=prev; title="a, <b>", <https://evil.example/>; rel=docs`, `</p/v1/x?page=2>; rel="next", </p/v1/y?page=1>; rel=prev; title="a, <b>"`},
		{"Link", "nonsense", ""},
		{"Link", "<unclosed", ""},
	} {
		m := &mirror{header: http.Header{c.field: {c.value}}}
		x := newRig(t, provider.Gemini, m, func(p *egress.Provider, _ *egress.Options) {
			p.Description.Upstream = mustURL(t, "http://upstream/base")
		})
		res, _, err := x.ask(t, "GET", "/p/v1/y", "")
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Header.Get(c.field); got != c.want {
			t.Errorf("%s %q came back as %q, want %q", c.field, c.value, got, c.want)
		}
	}
}

// escaped is a text with an escape for each of its bytes.
func escaped(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return b.String()
}

func TestAddressesInBodiesLeadBack(t *testing.T) {
	const results = "https://api.anthropic.com/v1/messages/batches/b/results"
	for name, c := range map[string]struct{ body, want string }{
		"one":            {`{"id":"b","results_url": "` + results + `","n":1}`, `{"id":"b","results_url": "http://proxy/p/v1/messages/batches/b/results","n":1}`},
		"escaped":        {`{"results_url":"` + strings.ReplaceAll(results, "/", `\/`) + `"}`, `{"results_url":"http://proxy/p/v1/messages/batches/b/results"}`},
		"escaped name":   {`{"results\u005furl":"` + results + `"}`, `{"results\u005furl":"http://proxy/p/v1/messages/batches/b/results"}`},
		"all escaped":    {`{"a":"\\","` + escaped("results_url") + `" :"https://evil.example/x"}`, `{"a":"\\","` + escaped("results_url") + `" :null}`},
		"a name as text": {`{"a":"results_url","b":["results_url","` + results + `"]}`, `{"a":"results_url","b":["results_url","` + results + `"]}`},
		"a long name":    {`{"` + strings.Repeat("a", 2000) + `results_url":"` + results + `"}`, `{"` + strings.Repeat("a", 2000) + `results_url":"` + results + `"}`},
		"none yet":       {`{"results_url":null,"a":"` + results + `"}`, `{"results_url":null,"a":"` + results + `"}`},
		"a list":         {`{"data":[{"results_url":"` + results + `"},{"results_url":"http://upstream/v1/x"}]}`, `{"data":[{"results_url":"http://proxy/p/v1/messages/batches/b/results"},{"results_url":"http://proxy/p/v1/x"}]}`},
		"elsewhere":      {`{"results_url":"https://evil.example/x"}`, `{"results_url":null}`},
		"in a text":      {`{"a":"\"results_url\":\"` + results + `\""}`, `{"a":"\"results_url\":\"` + results + `\""}`},
		"cut short":      {`{"results_url":"https://api`, `{"results_url":"https://api`},
		"a name at last": {`{"a":"results_ur`, `{"a":"results_ur`},
		"nothing":        {``, ``},
		"far in":         {`{"pad":"` + strings.Repeat("x", 100_000) + `","results_url":"` + results + `"}`, `{"pad":"` + strings.Repeat("x", 100_000) + `","results_url":"http://proxy/p/v1/messages/batches/b/results"}`},
	} {
		up, _ := serveOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if v := r.Header.Get("Accept-Encoding"); v != "identity" {
				t.Errorf("%s: asked with Accept-Encoding %q", name, v)
			}
			w.Header().Set("Content-Type", "application/json")
			for rest := c.body; rest != ""; {
				n := min(5, len(rest))
				if len(rest) > 1000 {
					n = 1000
				}
				_, _ = io.WriteString(w, rest[:n])
				_ = http.NewResponseController(w).Flush()
				rest = rest[n:]
			}
		}))
		x := newRig(t, provider.Anthropic, up, nil)
		_, body, err := x.ask(t, "GET", "/p/v1/messages/batches/b", "")
		if err != nil || body != c.want {
			t.Errorf("%s: %.300q, error %v, want %.300q", name, body, err, c.want)
		}
	}
}

// TestMembersThatTheOwnerNamesLeadThroughTheProxy: a plain API pages by addresses of
// its own in the body, and a client that follows one would show it the Headway key.
func TestMembersThatTheOwnerNamesLeadThroughTheProxy(t *testing.T) {
	for _, kind := range []string{"application/json", "application/hal+json"} {
		m := &mirror{header: http.Header{"Content-Type": {kind}}, body: `{"next":"http://upstream/items?page=2","prev":"https://evil.example/","other":"http://upstream/x"}`}
		x := newRig(t, provider.HTTP, m, func(p *egress.Provider, _ *egress.Options) {
			d, err := provider.New(provider.Settings{API: provider.HTTP, Upstream: "http://upstream", Addresses: []string{"next", "prev"}})
			if err != nil {
				t.Fatal(err)
			}
			p.Description = d
		})
		_, body, err := x.ask(t, "GET", "/p/items", "")
		if want := `{"next":"http://proxy/p/items?page=2","prev":null,"other":"http://upstream/x"}`; err != nil || body != want {
			t.Errorf("%s: %s, error %v, want %s", kind, body, err, want)
		}
	}
	for _, bad := range []string{"", `a"b`, "a\\b", "a\nb", strings.Repeat("x", 129)} {
		if _, err := provider.New(provider.Settings{API: provider.HTTP, Upstream: "http://upstream", Addresses: []string{bad}}); err == nil || !strings.Contains(err.Error(), "addresses[0] is") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestAHeadwayKeyNeverLeaves puts keys wherever a client may, and follows every
// address that comes back.
func TestAHeadwayKeyNeverLeaves(t *testing.T) {
	for _, passing := range []bool{false, true} {
		for _, api := range provider.APIs() {
			m := &mirror{header: http.Header{
				"Location": {"http://upstream/next?x=1"}, "Link": {"<http://upstream/linked>; rel=next"},
				"X-Goog-Upload-Url": {"http://upstream/upload?upload_id=1"}, "Content-Type": {"application/json"},
			}, body: `{"results_url":"http://upstream/results"}`}
			r, secrets := ring(t, keys.Key{ID: "a"})
			secret := secrets["a"]
			x := newRig(t, api, m, func(p *egress.Provider, o *egress.Options) {
				o.Keys = r
				p.Description.RequestHeaders = []string{"X-*"}
				if passing {
					p.Key = ""
				}
			})
			follow := []string{"/p/v1/x"}
			for _, query := range []string{"?key=", "?k%65y=", "?api_key=", "?a=1&token=", "?q=pre-"} {
				follow = append(follow, "/p/v1/x"+query+secret, "/p/v1/x"+query+url.QueryEscape(secret)+"&b=2", "/p/v1/x"+query+strings.ReplaceAll(secret, "_", "%5F"))
			}
			header := []string{"X-Headway-Key: " + secret}
			for _, name := range []string{"Authorization: Bearer ", "X-Api-Key: ", "Api-Key: ", "X-Goog-Api-Key: ", "Ocp-Apim-Subscription-Key: ", "X-Custom: ", "Cookie: k=", "User-Agent: ", "Referer: http://h/?k=", "X-Request-Id: "} {
				header = append(header, name+secret)
			}
			seen := map[string]bool{}
			for len(follow) > 0 && len(seen) < 60 {
				path := follow[0]
				follow = follow[1:]
				if seen[path] {
					continue
				}
				seen[path] = true
				res, body, err := x.ask(t, "GET", path, "", header...)
				if err != nil || res.StatusCode >= 500 {
					t.Fatalf("%s %s: %v, error %v", api, path, res, err)
				}
				for _, v := range []string{res.Header.Get("Location"), res.Header.Get("X-Goog-Upload-Url"), res.Header.Get("Link"), body} {
					if strings.Contains(v, "upstream") && (api == provider.Anthropic || v != body) {
						t.Errorf("%s: the client is sent to %s", api, v)
					}
				}
				if to := res.Header.Get("Location"); to != "" {
					follow = append(follow, to)
				}
			}
			if len(m.got) < 10 {
				t.Fatalf("%s: %d requests reached upstream", api, len(m.got))
			}
			for _, r := range m.got {
				var all []string
				for name, values := range r.Header {
					all = append(append(all, name), values...)
				}
				decoded, _ := url.QueryUnescape(r.URL.RawQuery)
				all = append(all, r.URL.String(), decoded, r.Host)
				if slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, secret) }) {
					t.Errorf("%s: the Headway key went upstream: %s %v", api, r.URL, r.Header)
				}
			}
			if res, _, err := x.ask(t, "GET", "/p/v1/"+secret, "", header...); err != nil || res.StatusCode != 400 {
				t.Errorf("%s: in the path: %v, error %v", api, res, err)
			}
		}
	}
}

func TestFoundKeys(t *testing.T) {
	secret, _ := keys.Generate()
	for text, want := range map[string]bool{
		secret: true, "x" + secret + "y": true, "hw_hw_" + secret[3:]: true, "hw_": false, secret[:len(secret)-1]: false, "": false, "hw_short hw_": false,
	} {
		if keys.Found(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func TestOffersOfOtherProtocolsArePassedOver(t *testing.T) {
	for header, want := range map[string]int{
		// What the JDK's HttpClient and curl --http2 send.
		"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c": 200,
		"Connection: upgrade\r\nUpgrade: TLS/1.3, foo":                                                                    200,
		"Connection: Upgrade": 200,
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13": 501,
		"Connection: Upgrade\r\nUpgrade: h2c, WebSocket":                         501,
	} {
		m := &mirror{}
		x := newRig(t, provider.OpenAI, m, nil)
		body := chatBody("m", false)
		if got := x.raw(t, "POST /p/v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"+header+"\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body); got != want {
			t.Errorf("%q was answered with %d, want %d", header, got, want)
		}
		for _, r := range m.got {
			for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
				if r.Header.Get(name) != "" {
					t.Errorf("%s went upstream", name)
				}
			}
		}
	}
}

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
		if c.Traced[0].Wait != 0 || c.Traced[1].Wait <= 0 || c.Traced[0].Wait+c.Traced[1].Wait != c.Wait {
			t.Errorf("waited %v and %v of %v", c.Traced[0].Wait, c.Traced[1].Wait, c.Wait)
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
