package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/golden"
)

func FuzzParse(f *testing.F) {
	golden.Seeds(f)
	archive, names := bad(f)
	for _, name := range names {
		src, _ := archive.File(name)
		f.Add([]byte(src))
	}
	for _, file := range []string{"../../examples/chat-archive.yaml", "../../examples/github-issues.yaml"} {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Add([]byte(everything))
	f.Fuzz(func(t *testing.T, src []byte) {
		cfg, err := Parse("fuzz.yaml", src, environment)
		if err != nil {
			e, ok := errors.AsType[*ConfigError](err)
			if !ok || cfg != nil || len(e.Problems) == 0 {
				t.Fatalf("got %v, %v", cfg, err)
			}
			for _, p := range e.Problems {
				if p.Message == "" || strings.ContainsAny(p.Error(), "\n\r") {
					t.Fatalf("not one line: %q", p.Error())
				}
				// A format that does not fit its arguments, unless the file says so itself.
				if strings.Contains(p.Message, "%!") && !bytes.Contains(src, []byte("%!")) {
					t.Fatalf("a badly formatted message: %q", p.Error())
				}
				if p.Line < 0 || p.Line > bytes.Count(src, []byte{'\n'})+bytes.Count(src, []byte{'\r'})+1 || (p.Line > 0) != (p.Column > 0) {
					t.Fatalf("the problem is at %d:%d: %v", p.Line, p.Column, p)
				}
			}
			return
		}
		c, err := New(cfg)
		if err != nil {
			t.Fatalf("a config that was loaded is refused: %v", err)
		}
		if err := Describe(cfg).Write(&strings.Builder{}); err != nil {
			t.Fatal(err)
		}
		if cfg.Provider.Auth.Kind == OAuth2Auth {
			return // would ask the token endpoint
		}
		for _, s := range c.Streams() {
			call := answering(`{"items":[]}`)
			_, _ = c.List(t.Context(), call, connector.ListRequest{Stream: s.Name})
			if call.sent != nil && call.sent.URL.Host != cfg.Provider.BaseURL.Host {
				t.Fatalf("a request went to %s", call.sent.URL.Host)
			}
		}
	})
}

func FuzzListBody(f *testing.F) {
	golden.Seeds(f)
	for _, body := range []string{
		`{"items":[{"id":1,"at":"x"},{"id":"b","at":2}],"next":"n"}`, `{"items":null}`, `[]`, `"x"`, ``, `{"items":[1]}`, `{"items":[{"id":1.5}]}`,
		`{"items":[{"id":9007199254740993},{"id":"9007199254740993"}]}`, `{"\u0069tems":[],"items":[{"id":"é\ud800"}]}`, "\ufeff{\"items\" : [ ] }", `<html>`,
		`{"items":[{"id":"a"}],"next":"/b"}`, "{\"items\":[{\"id\":\"\xff\"}]}", `{"items":[{"id":-0,"at":-0.0}]}`,
	} {
		f.Add([]byte(body), `<https://h/v1/a?p=2>; rel="next"`)
	}
	var connectors []*Connector
	for _, stream := range []string{
		"records: .items, key: .id, incremental: {cursor: .at, param: s}, fingerprint: .at, paginate: {cursor: .next, param: p}",
		"records: '.items[]?', key: '.id', paginate: {next_url: .next}",
		"records: ., key: ., paginate: {link: true}",
		"records: .items, key: '.id | tostring', paginate: {page: {param: p}}",
	} {
		connectors = append(connectors, connect(f, "https://h/v1", stream))
	}
	f.Fuzz(func(t *testing.T, body []byte, link string) {
		for _, c := range connectors {
			call := answering(string(body))
			call.Header = http.Header{"Content-Type": {"application/json"}, "Link": {link}}
			page, err := list(t, c, call)
			if err != nil {
				if _, ok := errors.AsType[*connector.Failure](err); !ok {
					t.Fatalf("got %T: %v", err, err)
				}
				continue
			}
			seen := map[string]bool{}
			for _, item := range page.Items {
				if item.Key == "" || seen[item.Key] {
					t.Fatalf("key %q is empty or there twice", item.Key)
				}
				seen[item.Key] = true
				if !json.Valid(item.Data) || bytes.ContainsAny(item.Data, "\n\r") {
					t.Fatalf("data is not one line of JSON: %q", item.Data)
				}
			}
			if page.Next == "" {
				continue
			}
			if _, err := c.List(t.Context(), call, connector.ListRequest{Stream: "a", Cursor: page.Next}); err == nil && call.sent.URL.Host != "h" {
				t.Fatalf("the next page is at %s", call.sent.URL.Host)
			}
		}
	})
}

func FuzzNextLink(f *testing.F) {
	golden.Seeds(f)
	for _, s := range []string{`<u>; rel=next`, `<a>; rel="prev", <b>; title="x, \"y"; rel="next"`, `<`, `<u>;;=`, `<u>; rel="`, `,,`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		next, err := nextLink(http.Header{"Link": {s}})
		if next != "" && (err != nil || !strings.Contains(s, "<"+next+">")) {
			t.Fatalf("%q gave %q, %v", s, next, err)
		}
	})
}

// BenchmarkList reads a page of 100 records of about 1 KiB, by plain field
// paths and by the same expressions through jq.
func BenchmarkList(b *testing.B) {
	items := make([]string, 100)
	for i := range items {
		items[i] = fmt.Sprintf(`{"id": %d, "updated_at": "2024-05-01T00:00:%02dZ", "text": %q, "tags": [1, 2, {"a": null}]}`, i, i%60, strings.Repeat("x", 900))
	}
	body := `{"items": [` + strings.Join(items, ",\n") + `], "next": "n"}`
	for name, stream := range map[string]string{
		"paths": "records: .items, key: .id, incremental: {cursor: .updated_at, param: s}, paginate: {cursor: .next, param: c}",
		"jq":    "records: (.items), key: (.id), incremental: {cursor: (.updated_at), param: s}, paginate: {cursor: (.next), param: c}",
	} {
		b.Run(name, func(b *testing.B) {
			c, call := connect(b, "https://h", stream), answering(body)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if page, err := list(b, c, call); err != nil || len(page.Items) != 100 {
					b.Fatal(err)
				}
			}
		})
	}
}
