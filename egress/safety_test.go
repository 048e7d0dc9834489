package egress_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/reason"
)

// mirror keeps the requests that reach it and answers with a header.
type mirror struct {
	got    []*http.Request
	bodies []string
	status int
	header http.Header
	body   string
}

func (m *mirror) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		all, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(all)
	}
	m.got, m.bodies = append(m.got, r), append(m.bodies, body)
	status, header := m.status, m.header.Clone()
	if status == 0 {
		status = 200
	}
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: r,
		Body: io.NopCloser(strings.NewReader(m.body)), ContentLength: int64(len(m.body)),
	}, nil
}

func TestPathsReachUpstreamAsTheyAre(t *testing.T) {
	for path, want := range map[string]string{
		"/p/v1/models":                  "http://upstream/base/v1/models",
		"/p/v1/models?a=1&b=%20":        "http://upstream/base/v1/models?a=1&b=%20",
		"/p/v1/files/a%2Fb":             "http://upstream/base/v1/files/a%2Fb",
		"/p/v1/x%20y":                   "http://upstream/base/v1/x%20y",
		"/p/v1//double":                 "http://upstream/base/v1//double",
		"/p/v1/trailing/":               "http://upstream/base/v1/trailing/",
		"/p/v1beta/models/m:countToken": "http://upstream/base/v1beta/models/m:countToken",
		"/p":                            "http://upstream/base",
		"/p/v1/%252e%252e/x":            "http://upstream/base/v1/%252e%252e/x",
	} {
		m := &mirror{}
		x := newRig(t, provider.OpenAI, m, func(p *egress.Provider, _ *egress.Options) {
			p.Description.Upstream = mustURL(t, "http://upstream/base")
		})
		if res, _, err := x.ask(t, "GET", path, ""); err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %v, %v", path, res, err)
		}
		if got := m.got[0].URL.String(); got != want {
			t.Errorf("%s reached %s, want %s", path, got, want)
		}
	}
}

func TestWhatIsNoCallOfAProviderIsRefused(t *testing.T) {
	m := &mirror{}
	x := newRig(t, provider.OpenAI, m, nil)
	transport := x.client.Transport.(*http.Transport)
	for first, want := range map[string]string{
		"GET http://evil.example/p/v1/models HTTP/1.1\r\nHost: evil.example":                  "400",
		"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443":                         "400",
		"GET /p/../q HTTP/1.1\r\nHost: h":                                                     "400",
		"GET /p/v1/..%2f..%2fadmin HTTP/1.1\r\nHost: h":                                       "400",
		"GET /p/%2e%2e/admin HTTP/1.1\r\nHost: h":                                             "400",
		"GET /p/v1/..\\admin HTTP/1.1\r\nHost: h":                                             "400",
		"GET /p/v1/..;x/admin HTTP/1.1\r\nHost: h":                                            "400",
		"TRACE /p/v1/models HTTP/1.1\r\nHost: h":                                              "405",
		"post /p/v1/chat/completions HTTP/1.1\r\nHost: h":                                     "405",
		"GET /q/v1/models HTTP/1.1\r\nHost: h":                                                "404",
		"GET / HTTP/1.1\r\nHost: h":                                                           "404",
		"GET /P/v1/models HTTP/1.1\r\nHost: h":                                                "404",
		"GET /p/v1/realtime HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket": "501",
	} {
		c, err := transport.DialContext(t.Context(), "tcp", "proxy")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(c, first+"\r\n\r\n") }()
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.Contains(line, " "+want+" ") {
			t.Errorf("%q was answered %q, %v, want %s", first, line, err, want)
		}
		_ = c.Close()
	}
	if len(m.got) != 0 {
		t.Errorf("%d requests reached upstream", len(m.got))
	}
	x.settled(t)
}

func TestHeadersDoNotLeak(t *testing.T) {
	m := &mirror{header: http.Header{
		"Set-Cookie": {"a=b"}, "Alt-Svc": {"h3"}, "X-Headway-Scale": {"9"}, "X-Request-Id": {"r1"},
		"X-Ratelimit-Remaining-Requests": {"5"}, "Connection": {"X-Private"}, "X-Private": {"1"}, "Content-Type": {"application/json"},
	}}
	x := newRig(t, provider.OpenAI, m, nil)
	res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody("m", false),
		"Authorization: Bearer client-key", "X-Api-Key: client-key", "Cookie: c=d", "X-Forwarded-For: 10.0.0.1", "X-Headway-Tenant: t",
		"Openai-Beta: x=1", "X-Stainless-Lang: go", "Accept-Encoding: gzip", "Forwarded: for=1")
	if err != nil {
		t.Fatal(err)
	}
	h := m.got[0].Header
	for _, name := range []string{"X-Api-Key", "Cookie", "X-Forwarded-For", "X-Headway-Tenant", "Forwarded"} {
		if h.Get(name) != "" {
			t.Errorf("%s reached upstream", name)
		}
	}
	got := map[string]string{}
	for _, name := range []string{"Authorization", "Openai-Beta", "X-Stainless-Lang", "Accept-Encoding", "Content-Type"} {
		got[name] = h.Get(name)
	}
	want := map[string]string{
		"Authorization": "Bearer " + providerKey, "Openai-Beta": "x=1", "X-Stainless-Lang": "go", "Accept-Encoding": "identity", "Content-Type": "application/json",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if m.got[0].Host != "upstream" {
		t.Errorf("host %q", m.got[0].Host)
	}
	for _, name := range []string{"Set-Cookie", "Alt-Svc", "X-Headway-Scale", "X-Private"} {
		if res.Header.Get(name) != "" {
			t.Errorf("%s came back", name)
		}
	}
	for _, name := range []string{"X-Request-Id", "X-Ratelimit-Remaining-Requests"} {
		if res.Header.Get(name) == "" {
			t.Errorf("%s did not come back", name)
		}
	}
}

func TestRedirectsLeadBackOrNowhere(t *testing.T) {
	for location, want := range map[string]string{
		"/base/v2/x?a=1":                 "/p/v2/x?a=1",
		"http://upstream/base/v2/x":      "/p/v2/x",
		"http://upstream/base/v2/x?key=": "/p/v2/x",
		"y":                              "/p/v1/y",
		"http://upstream/elsewhere":      "",
		"http://upstream/basement":       "",
		"https://upstream/base/v2/x":     "",
		"http://evil.example/base/v2/x":  "",
		"//evil.example/base/v2/x":       "",
		"http://u:p@upstream/base/x":     "",
		"http://%zz":                     "",
	} {
		m := &mirror{status: 302, header: http.Header{"Location": {location}}}
		x := newRig(t, provider.OpenAI, m, func(p *egress.Provider, _ *egress.Options) {
			p.Description.Upstream = mustURL(t, "http://upstream/base")
		})
		res, _, err := x.ask(t, "GET", "/p/v1/x", "")
		if err != nil || res.StatusCode != 302 {
			t.Fatal(res, err)
		}
		if got := res.Header.Get("Location"); got != want {
			t.Errorf("Location %q came back as %q, want %q", location, got, want)
		}
		if len(m.got) != 1 {
			t.Errorf("%d requests: a redirect was followed", len(m.got))
		}
	}
}

// ring makes keys; the secrets come back by their IDs.
func ring(t *testing.T, all ...keys.Key) (*keys.Ring, map[string]string) {
	t.Helper()
	secrets := map[string]string{}
	for i := range all {
		secrets[all[i].ID], all[i].Hash = keys.Generate()
	}
	r, err := keys.New(all)
	if err != nil {
		t.Fatal(err)
	}
	return r, secrets
}

func TestKeys(t *testing.T) {
	r, secret := ring(t,
		keys.Key{ID: "a", Tenant: "team-a", Models: []string{"gpt-*"}, Providers: []string{"p"}, Priority: 3, PriorityMax: 5},
		keys.Key{ID: "free"},
		keys.Key{ID: "other", Providers: []string{"q"}},
		keys.Key{ID: "old", Expires: time.Unix(1, 0)},
	)
	for name, c := range map[string]struct {
		key    string
		model  string
		header []string
		status int
		call   egress.CallLog
	}{
		"bound key":                {secret["a"], "gpt-4", nil, 200, egress.CallLog{KeyID: "a", Tenant: "team-a", Priority: 3}},
		"greatest priority":        {secret["a"], "gpt-4", []string{"X-Headway-Priority: 99"}, 200, egress.CallLog{KeyID: "a", Tenant: "team-a", Priority: 5}},
		"another model":            {secret["a"], "o1", nil, 403, egress.CallLog{KeyID: "a", Tenant: "team-a", Priority: 3}},
		"another tenant":           {secret["a"], "gpt-4", []string{"X-Headway-Tenant: team-b"}, 403, egress.CallLog{KeyID: "a"}},
		"unbound key":              {secret["free"], "o1", []string{"X-Headway-Tenant: t", "X-Headway-Agent: g"}, 200, egress.CallLog{KeyID: "free", Tenant: "t", Agent: "g"}},
		"another provider":         {secret["other"], "gpt-4", nil, 403, egress.CallLog{KeyID: "other"}},
		"expired":                  {secret["old"], "gpt-4", nil, 401, egress.CallLog{}},
		"unknown":                  {"hw_nothing", "gpt-4", nil, 401, egress.CallLog{}},
		"none":                     {"", "gpt-4", nil, 401, egress.CallLog{}},
		"priority is not a number": {secret["free"], "o1", []string{"X-Headway-Priority: high"}, 400, egress.CallLog{KeyID: "free"}},
		"deadline is not a time":   {secret["free"], "o1", []string{"X-Headway-Deadline: soon"}, 400, egress.CallLog{KeyID: "free"}},
		"invalid timeout":          {secret["free"], "o1", []string{"X-Headway-Timeout: -1"}, 400, egress.CallLog{KeyID: "free"}},
		"tenant is too long":       {secret["free"], "o1", []string{"X-Headway-Tenant: " + strings.Repeat("x", 300)}, 400, egress.CallLog{KeyID: "free"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &mirror{body: "{}"}
			x := newRig(t, provider.OpenAI, m, func(_ *egress.Provider, o *egress.Options) { o.Keys = r })
			header := c.header
			if c.key != "" {
				header = append(header, "Authorization: Bearer "+c.key)
			}
			res, body, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody(c.model, false), header...)
			if err != nil || res.StatusCode != c.status {
				t.Fatalf("status %v, error %v, body %s", res, err, body)
			}
			if name == "priority is not a number" && !strings.Contains(body, "from -1000000 to 1000000") {
				t.Errorf("it does not say what may be: %s", body)
			}
			if sent := len(m.got) == 1; sent != (c.status == 200) {
				t.Errorf("it reached upstream: %v", sent)
			}
			got := x.last(t)
			if c.status < 400 || c.status == 403 {
				if got.KeyID != c.call.KeyID || got.Tenant != c.call.Tenant && c.status == 200 || got.Agent != c.call.Agent || got.Priority != c.call.Priority && c.status == 200 {
					t.Errorf("the log is %+v", got)
				}
			}
			if c.key != "" && strings.Contains(body+x.log.text(), c.key) {
				t.Error("the key is in the answer or the log")
			}
			x.settled(t)
		})
	}
}

func TestFailedKeysAreBounded(t *testing.T) {
	r, secret := ring(t, keys.Key{ID: "a"})
	x := newRig(t, provider.OpenAI, &mirror{}, func(_ *egress.Provider, o *egress.Options) {
		o.Keys, o.FailedKeys = r, keys.Limits{Burst: 2}
	})
	for i, want := range []int{401, 401, 429, 429} {
		if res, _, err := x.ask(t, "GET", "/p/v1/models", "", "Authorization: Bearer guess"); err != nil || res.StatusCode != want {
			t.Errorf("guess %d: %v, %v, want %d", i, res, err, want)
		}
	}
	if res, _, err := x.ask(t, "GET", "/p/v1/models", "", "Authorization: Bearer "+secret["a"]); err != nil || res.StatusCode != 200 {
		t.Errorf("a good key behind the same address: %v, %v", res, err)
	}
}

// TestAReloadGivesNobodyNewTries: unless it changes how many there are.
func TestAReloadGivesNobodyNewTries(t *testing.T) {
	r, _ := ring(t, keys.Key{ID: "a"})
	var o egress.Options
	x := newRig(t, provider.HTTP, &mirror{}, func(p *egress.Provider, all *egress.Options) {
		all.Keys, all.FailedKeys = r, keys.Limits{Burst: 2}
		o = *all
		o.Providers = []egress.Provider{*p}
	})
	for i, c := range []struct{ burst, want int }{{0, 401}, {2, 401}, {2, 429}, {2, 429}, {3, 401}} {
		if c.burst > 0 {
			o.FailedKeys.Burst = c.burst
			if err := x.proxy.Replace(o); err != nil {
				t.Fatal(err)
			}
		}
		if res, _, err := x.ask(t, "GET", "/p/v1/models", "", "Authorization: Bearer guess"); err != nil || res.StatusCode != c.want {
			t.Errorf("guess %d: %v, %v, want %d", i, res, err, c.want)
		}
	}
}

// TestAKeyInAQueryTakesNothingElseWithIt: the other parameters go upstream.
func TestAKeyInAQueryTakesNothingElseWithIt(t *testing.T) {
	m := &mirror{body: "{}"}
	r, secret := ring(t, keys.Key{ID: "a"})
	x := newRig(t, provider.HTTP, m, func(_ *egress.Provider, o *egress.Options) { o.Keys = r })
	res, _, err := x.ask(t, "GET", "/p/x?alt=sse&sig="+secret["a"]+"&n=2", "", "Authorization: Bearer "+secret["a"])
	if err != nil || res.StatusCode != 200 || m.got[0].URL.RawQuery != "alt=sse&n=2" {
		t.Errorf("%v, %v, upstream got %v", res, err, m.got)
	}
}

func TestPassThroughPassesTheClientsKey(t *testing.T) {
	m := &mirror{body: "{}"}
	r, secret := ring(t, keys.Key{ID: "a"})
	x := newRig(t, provider.Anthropic, m, func(p *egress.Provider, o *egress.Options) { p.Key, o.Keys = "", r })
	if res, _, err := x.ask(t, "POST", "/p/v1/messages", chatBody("m", false), "X-Api-Key: mine"); err != nil || res.StatusCode != 401 {
		t.Fatalf("without a Headway key: %v, %v", res, err)
	}
	if res, _, err := x.ask(t, "POST", "/p/v1/messages", chatBody("m", false), "X-Api-Key: mine", "X-Headway-Key: "+secret["a"]); err != nil || res.StatusCode != 200 {
		t.Fatalf("with both keys: %v, %v", res, err)
	}
	if got := m.got[0].Header; got.Get("X-Api-Key") != "mine" || got.Get("X-Headway-Key") != "" {
		t.Errorf("upstream got %v", got)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	const most = 1 << 10
	big := chatBody(strings.Repeat("m", most), false)
	for name, c := range map[string]struct {
		body   io.Reader
		kind   string
		header string
		status int
	}{
		"announced":        {strings.NewReader(big), "application/json", "", 413},
		"not announced":    {io.MultiReader(strings.NewReader(big)), "application/json", "", 413},
		"fits":             {strings.NewReader(chatBody("m", false)), "application/json", "", 200},
		"hidden as text":   {io.MultiReader(strings.NewReader(big)), "image/png", "", 413},
		"compressed":       {strings.NewReader(chatBody("m", false)), "application/json", "gzip", 415},
		"not JSON":         {strings.NewReader("<xml/>"), "application/json", "", 400},
		"nothing":          {strings.NewReader(""), "application/json", "", 400},
		"metered as image": {strings.NewReader(chatBody("m", false)), "image/png", "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			m := &mirror{body: "{}"}
			x := newRig(t, provider.OpenAI, m, func(p *egress.Provider, _ *egress.Options) { p.MaxBody = most })
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/p/v1/chat/completions", c.body)
			r.Header.Set("Content-Type", c.kind)
			if c.header != "" {
				r.Header.Set("Content-Encoding", c.header)
			}
			w := httptest.NewRecorder()
			x.proxy.ServeHTTP(w, r)
			if w.Code != c.status || (len(m.got) == 1) != (c.status == 200) {
				t.Errorf("status %d with %d sent, body %s", w.Code, len(m.got), w.Body)
			}
			if got := x.last(t); got.Status != c.status || got.Metered != (c.status == 200) && c.status != 415 {
				t.Errorf("the log is %+v", got)
			}
			x.settled(t)
		})
	}
}

func TestUploadsAreStreamedAndBounded(t *testing.T) {
	for _, c := range []struct {
		size   int
		status int
	}{{1 << 20, 200}, {1<<20 + 1, 413}} {
		for _, announced := range []bool{true, false} {
			m := &mirror{body: "{}"}
			x := newRig(t, provider.OpenAI, m, func(p *egress.Provider, _ *egress.Options) { p.MaxBody, p.MaxUpload = 1<<10, 1<<20 })
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/p/v1/files", io.LimitReader(zeros{}, int64(c.size)))
			r.Header.Set("Content-Type", "application/octet-stream")
			if announced {
				r.ContentLength = int64(c.size)
			}
			w := httptest.NewRecorder()
			x.proxy.ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("%d bytes, announced %v: status %d, want %d", c.size, announced, w.Code, c.status)
			}
			if got := x.last(t); c.status == 200 && got.Sent != int64(c.size) {
				t.Errorf("the log has %d bytes, want %d", got.Sent, c.size)
			}
			x.settled(t)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestABodyThatDoesNotComeIsNotWaitedFor: neither one of a call nor one that net/http
// reads to its end because the call is refused.
func TestABodyThatDoesNotComeIsNotWaitedFor(t *testing.T) {
	const length, chunked = "Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
	for name, c := range map[string]struct {
		path, body string
		bound      time.Duration // 0: the default
		status     string
		why        reason.Reason
	}{
		"of a known length":     {"/p/v1/chat/completions", length, 0, " 408 ", reason.Timeout},
		"in chunks":             {"/p/v1/chat/completions", chunked, 0, " 408 ", reason.Timeout},
		"with a bound":          {"/p/v1/chat/completions", length, 10 * time.Second, " 408 ", reason.Timeout},
		"of a refused call":     {"/p/v1/../x", length, 10 * time.Second, " 400 ", reason.ClientError},
		"of an unknown address": {"/q/v1/x", chunked, 10 * time.Second, " 404 ", reason.NotFound},
	} {
		bubble(t, name, func(t *testing.T) {
			x := newRig(t, provider.OpenAI, &mirror{}, func(p *egress.Provider, _ *egress.Options) { p.BodyTimeout = c.bound })
			conn, err := x.client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "proxy")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			began, want := time.Now(), c.bound
			if want == 0 || c.path[1] == 'q' {
				want = egress.DefaultBodyTimeout
			}
			if _, err := io.WriteString(conn, "POST "+c.path+" HTTP/1.1\r\nHost: h\r\n"+c.body); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil || !strings.Contains(line, c.status) || time.Since(began) != want {
				t.Errorf("answered %q, %v after %v", line, err, time.Since(began))
			}
			synctest.Wait()
			if got := x.last(t); got.Reason != c.why || got.Ending != egress.Refused {
				t.Errorf("the log is %+v", got)
			}
		})
	}
}

// TestWhatACallMaySayOfItself: names and priorities have bounds, and a Headway key goes
// where it is looked for.
func TestWhatACallMaySayOfItself(t *testing.T) {
	r, secret := ring(t, keys.Key{ID: "a", PriorityMax: 1_000_000})
	long := strings.Repeat("n", 256)
	for name, c := range map[string]struct {
		keys, ours bool // keys are asked for; the provider's is ours
		header     []string
		status     int
		priority   int
	}{
		"a long tenant":            {false, true, []string{"X-Headway-Tenant: " + long}, 200, 0},
		"a tenant that is longer":  {false, true, []string{"X-Headway-Tenant: " + long + "n"}, 400, 0},
		"a long agent":             {false, true, []string{"X-Headway-Tenant: t", "X-Headway-Agent: " + long}, 200, 0},
		"an agent that is longer":  {false, true, []string{"X-Headway-Tenant: t", "X-Headway-Agent: " + long + "n"}, 400, 0},
		"the highest priority":     {false, true, []string{"X-Headway-Priority: 1000000"}, 200, 1_000_000},
		"one that is higher":       {false, true, []string{"X-Headway-Priority: 1000001"}, 400, 0},
		"the lowest priority":      {false, true, []string{"X-Headway-Priority: -1000000"}, 200, -1_000_000},
		"one that is lower":        {false, true, []string{"X-Headway-Priority: -1000001"}, 400, 0},
		"a priority that is a key": {false, true, []string{"X-Headway-Priority: 1e3"}, 400, 0},
		"in the provider's place":  {true, true, []string{"Authorization: Bearer " + secret["a"]}, 200, 0},
		"beside the client's key":  {true, false, []string{"Authorization: Bearer sk", "X-Headway-Key: " + secret["a"]}, 200, 0},
		"in the client's place":    {true, false, []string{"Authorization: Bearer " + secret["a"]}, 401, 0},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRig(t, provider.OpenAI, &mirror{body: "{}"}, func(p *egress.Provider, o *egress.Options) {
				if c.keys {
					o.Keys = r
				}
				if !c.ours {
					p.Key = ""
				}
			})
			res, body, err := x.ask(t, "GET", "/p/v1/models", "", c.header...)
			if err != nil || res.StatusCode != c.status || x.last(t).Priority != c.priority || c.status != 200 && res.Header.Get("X-Headway-Wait-Ms") != "" {
				t.Errorf("%v, %v, priority %d: %s", res, err, x.last(t).Priority, body)
			}
		})
	}
}

// TestABodyThatIsNone is sent as none, whatever the API is.
func TestABodyThatIsNone(t *testing.T) {
	for _, api := range []provider.API{provider.HTTP, provider.OpenAI} {
		for _, method := range []string{"GET", "DELETE", "POST"} {
			m := &mirror{body: "{}"}
			x := newRig(t, api, m, nil)
			r, err := http.NewRequestWithContext(t.Context(), method, "http://proxy/p/v1/files/f", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := x.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if got := m.got[0]; got.Body != http.NoBody || got.ContentLength != 0 {
				t.Errorf("%s %s: upstream got a body %T of %d bytes", api, method, got.Body, got.ContentLength)
			}
		}
	}
}

// TestABodyIsSentOnceByNetHTTP: who calls the handler may have a request with a body that
// can be had again; one that is streamed here cannot.
func TestABodyIsSentOnceByNetHTTP(t *testing.T) {
	m := &mirror{body: "{}"}
	x := newRig(t, provider.HTTP, m, nil)
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/p/x", strings.NewReader("text"))
	r.GetBody = func() (io.ReadCloser, error) { return http.NoBody, nil }
	x.proxy.ServeHTTP(httptest.NewRecorder(), r)
	if m.got[0].GetBody != nil || m.bodies[0] != "text" {
		t.Errorf("%q was sent, and can be had again", m.bodies[0])
	}
}

// TestWhatCostsNothingMayBeCompressed in any way: only calls that cost tokens are read.
func TestWhatCostsNothingMayBeCompressed(t *testing.T) {
	for path, status := range map[string]int{"/p/v1/vector_stores": 200, "/p/v1/chat/completions": 415, "/p/v1/embeddings": 415} {
		m := &mirror{body: "{}"}
		x := newRig(t, provider.OpenAI, m, nil)
		res, body, err := x.ask(t, "POST", path, "\x8b\x03", "Content-Encoding: br")
		if err != nil || res.StatusCode != status || status == 200 && (m.bodies[0] != "\x8b\x03" || m.got[0].Header.Get("Content-Encoding") != "br") {
			t.Errorf("%s: %v, %v: %s", path, res, err, body)
		}
	}
}

// TestABodyThatIsCompressedTwiceIsNotRead, though the outer way is known.
func TestABodyThatIsCompressedTwiceIsNotRead(t *testing.T) {
	for _, c := range []struct {
		encodings []string
		status    int
	}{{[]string{"gzip"}, 200}, {[]string{"gzip", "br"}, 415}, {[]string{"gzip, br"}, 415}} {
		m := &mirror{body: "{}"}
		x := newRig(t, provider.OpenAI, m, nil)
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/p/v1/chat/completions", strings.NewReader(packed(t, chatBody("m", false))))
		r.Header["Content-Encoding"] = c.encodings
		w := httptest.NewRecorder()
		if x.proxy.ServeHTTP(w, r); w.Code != c.status || (len(m.got) == 1) != (c.status == 200) {
			t.Errorf("%v: %d, %s", c.encodings, w.Code, w.Body)
		}
	}
}

// TestAPlainAPIsBodyIsPassedOnAsItComes when it is not to be sent again.
func TestAPlainAPIsBodyIsPassedOnAsItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		came := make(chan struct{})
		x := newRig(t, provider.HTTP, tripper(func(r *http.Request) (*http.Response, error) {
			if _, err := io.ReadFull(r.Body, make([]byte, 4)); err != nil {
				return nil, err
			}
			close(came)
			return (&mirror{body: "{}"}).RoundTrip(r)
		}), nil)
		from, to := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://proxy/p/rows", from)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = 8
		go func() {
			_, _ = io.WriteString(to, "half")
			<-came // or it waits for ever
			_, _ = io.WriteString(to, "half")
			_ = to.Close()
		}()
		res, err := x.client.Do(r)
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		_ = res.Body.Close()
	})
}

// TestAKeyForSomeModelsMayLookAround: at everything, as long as no other model is named.
func TestAKeyForSomeModelsMayLookAround(t *testing.T) {
	r, secret := ring(t, keys.Key{ID: "a", Models: []string{"gpt-*"}})
	x := newRig(t, provider.OpenAI, &mirror{body: "{}"}, func(_ *egress.Provider, o *egress.Options) { o.Keys = r })
	for body, status := range map[string]int{"": 200, `{"model":"gpt-1"}`: 200, `{"model":"other"}`: 403} {
		if res, text, err := x.ask(t, "GET", "/p/v1/models", body, "Authorization: Bearer "+secret["a"]); err != nil || res.StatusCode != status {
			t.Errorf("%s: %v, %v: %s", body, res, err, text)
		}
	}
}
