package egress

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/golden"
)

// readdressed passes a body on in pieces of n bytes.
func readdressed(t *testing.T, body []byte, n int) string {
	t.Helper()
	var out bytes.Buffer
	d := &readdresser{w: &out, names: []string{"results_url", "url"}, leads: func(address string) string {
		if rest, ok := strings.CutPrefix(address, "https://upstream/"); ok {
			return "http://proxy/p/" + rest
		}
		return ""
	}}
	for len(body) > 0 {
		piece := body[:min(n, len(body))]
		if m, err := d.Write(piece); err != nil || m != len(piece) {
			t.Fatalf("%d of %d written: %v", m, len(piece), err)
		}
		if len(d.held) > maxAddress+len(piece)+64 {
			t.Fatalf("%d bytes are held back", len(d.held))
		}
		body = body[len(piece):]
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestAddressesThatAreTooLongLeadNowhere(t *testing.T) {
	long := "https://evil.example/" + strings.Repeat(`x\"\\`, maxAddress)
	for name, c := range map[string]struct{ body, want string }{
		"an address":            {`{"a":1,"results_url": "` + long + `","b":"c d"}`, `{"a":1,"results_url":null,"b":"c d"}`},
		"blanks before it":      {`{"a b":1,"url":` + strings.Repeat(" \n", maxAddress) + `"https://evil.example/","b":2}`, `{"a b":1,"url":null,"b":2}`},
		"blanks and no text":    {`{"url"` + strings.Repeat("\t", 2*maxAddress) + `:7}`, `{"url":7}`},
		"two, and one of ours":  {`[{"url":"` + long + `"},{"url":"` + long + `"},{"url":"https://upstream/v1"}]`, `[{"url":null},{"url":null},{"url":"http://proxy/p/v1"}]`},
		"a long text elsewhere": {`{"a":"` + long + `"}`, `{"a":"` + long + `"}`},
	} {
		for _, n := range []int{1, 7, 4096} {
			var got bytes.Buffer // without blanks, some of which stay
			if err := json.Compact(&got, []byte(readdressed(t, []byte(c.body), n))); err != nil || got.String() != c.want {
				t.Errorf("%s, in pieces of %d: %.200s, %v, want %.200s", name, n, got.String(), err, c.want)
			}
		}
	}
}

// FuzzReaddress: however a body comes in pieces, it goes on the same, and every
// member of the names leads through the proxy or nowhere.
func FuzzReaddress(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte(`{"results_url":"https://upstream/v1/x","url":null}`), 3)
	f.Add([]byte(`{"u\u0072l":"https://evil.example","\u0075\u0072\u006c" :"https://evil.example","a":"u\u0072l"}`), 2)
	f.Add([]byte(`[{"url" : "https:\/\/evil.example"},"url",{"a":"\"url\":\"x\""}]`), 1)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		if len(body) > maxAddress/2 {
			return
		}
		n = min(max(n, 1), 64)
		got := readdressed(t, body, n)
		if whole := readdressed(t, body, len(body)+1); got != whole {
			t.Fatalf("in pieces of %d: %q, in one: %q", n, got, whole)
		}
		var before, after any
		if json.Unmarshal(body, &before) != nil {
			return
		}
		if err := json.Unmarshal([]byte(got), &after); err != nil {
			t.Fatalf("%q became %q: %v", body, got, err)
		}
		leadsBack(t, body, after)
	})
}

func leadsBack(t *testing.T, body []byte, v any) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			leadsBack(t, body, e)
		}
	case map[string]any:
		for name, e := range v {
			if address, ok := e.(string); ok && (name == "url" || name == "results_url") && address != "" && !strings.HasPrefix(address, "http://proxy/p/") {
				t.Fatalf("%q: %s leads to %q", body, name, address)
			}
			leadsBack(t, body, e)
		}
	}
}

// FuzzLinks: no link of a Link field leads past the proxy.
func FuzzLinks(f *testing.F) {
	golden.Seeds(f)
	f.Add(`<https://upstream/base/x>; rel="next", <https://evil.example/>; rel=docs`)
	f.Add(`<?page=1>; title="a, <b>"`)
	f.Fuzz(func(t *testing.T, line string) {
		c := &call{accepted: accepted{up: &upstream{Provider: Provider{Name: "p", Description: provider.Description{Upstream: &url.URL{Scheme: "https", Host: "upstream", Path: "/base"}}}}}}
		line = c.links(line, c.up.Description.Upstream)
		quoted := false
		for i := 0; i < len(line); i++ {
			switch {
			case line[i] == '"':
				quoted = !quoted
			case line[i] == '<' && !quoted: // in a text nobody follows it
				if !strings.HasPrefix(line[i:], "</p") {
					t.Fatalf("it leads to %q", line)
				}
				i += strings.IndexByte(line[i:], '>')
			}
		}
	})
}

// TestAddressesAtTheEdge: an address as long as may be, a text that begins with an
// escape and is cut, what is not a member, and a body that breaks off.
func TestAddressesAtTheEdge(t *testing.T) {
	const name = `{"url":"https://upstream/`
	ours := func(size int) string { // what is held back of it has a size
		return name + strings.Repeat("x", size-len(name)+len("{"))
	}
	for want, pieces := range map[string][]string{
		`{"url":"http://proxy/p/` + ours(maxAddress - 1)[len(name):] + `"}`: {ours(maxAddress - 1), `"}`},
		`{"url":null}`: {ours(maxAddress), `"}`},
		`{"a":"\"` + strings.Repeat("x", 100) + `end","url":"http://proxy/p/v1"}`: {`{"a":"\"` + strings.Repeat("x", 100), `end","url":"https://upstream/v1"}`},
		`{"url":""}`:                      {`{"url":""}`},
		`["url" "https://evil.example/"]`: {`["url" "https://evil.example/"]`},
		`{"url":"https://evil`:            {`{"url":`, `"https://evil`},
		`{"url" : `:                       {`{"url"`, ` : `},
		`{"ur`:                            {`{"ur`},
	} {
		var out bytes.Buffer
		d := &readdresser{w: &out, names: []string{"url"}, leads: func(address string) string {
			return "http://proxy/p/" + strings.TrimPrefix(address, "https://upstream/")
		}}
		for _, p := range pieces {
			if _, err := d.Write([]byte(p)); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%.80q became %.80q, want %.80q", pieces, out.String(), want)
		}
	}
}
