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
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/reason"
)

func TestResponsesThatCannotBeReadAreExplained(t *testing.T) {
	page := strings.Repeat(`"x",`, 5000)
	for name, c := range map[string]struct {
		stream, media, body, want string
	}{
		"HTML":                     {"", "text/html; charset=utf-8", "\n<!DOCTYPE html><title>hunter2</title>", "expected JSON, got text/html (first bytes look like an HTML page): is base_url right? does the request need a login?"},
		"HTML under a false type":  {"", "application/json", "<html>", "expected JSON, got application/json (first bytes look like an HTML page): is base_url right? does the request need a login?"},
		"plain text":               {"", "text/plain", "hunter2", "expected JSON, got text/plain: an unexpected character at byte 1 of 7"},
		"a type that is no word":   {"", "hunter2 x/y", "hunter2", "expected JSON, got an unnamed type: an unexpected character at byte 1 of 7"},
		"invalid JSON":             {"", "application/json", `{"items":[hunter2]}`, "invalid JSON: an unexpected character at byte 11 of 19"},
		"JSON lines":               {"", "application/json", "{}\n{}", "invalid JSON: an unexpected character at byte 4 of 5"},
		"cut off":                  {"", "application/json", `{"items":["hunter2`, "invalid JSON: it ends in the middle, after 18 bytes"},
		"empty":                    {"", "application/json", "", "expected JSON, got an empty body"},
		"missing records":          {"", "", `{"data":[],"hunter2!":1,"next":null}`, "stream a: records expression .items gave null, want an array or objects; the response has the fields data, next, …"},
		"null records":             {"", "", `{"items":null}`, "records expression .items gave null, want an array or objects; the response has the fields items"},
		"many fields":              {"", "", `{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0,"j":0,"k":0}`, "the response has the fields a, b, c, d, e, f, g, h, i, j, …"},
		"empty object":             {"", "", `{}`, "gave null, want an array or objects; the response is an empty object"},
		"an array on top":          {"", "", `["hunter2"]`, "records expression .items failed: expected an object but got: array; the response is an array, which the expression . stands for"},
		"a text on top":            {"", "", `"hunter2"`, "expected an object but got: string; the response is a string"},
		"records of a wrong type":  {"", "", `{"items":"hunter2"}`, "records expression .items gave a string, want an array or objects"},
		"jq that fails":            {"records: '.items[]', key: .id", "", `{"rows":["hunter2"]}`, "records expression .items[] failed: cannot iterate over: null; the response has the fields rows"},
		"missing key":              {"records: .items, key: .id, bad_records: fail", "", `{"items":[{"id":"a"},{"uid":"hunter2"}]}`, "stream a: key expression .id gave null, want a text or a whole number, for record 2 of 2"},
		"empty key":                {"", "", `{"items":[{"id":""}]}`, "key expression .id gave an empty text for record 1 of 1"},
		"fractional key":           {"", "", `{"items":[{"id":1.5}]}`, "key expression .id gave a number with a fraction or an exponent, want a text or a whole number, for record 1 of 1"},
		"key with an exponent":     {"", "", `{"items":[{"id":1e3}]}`, "gave a number with a fraction or an exponent"},
		"key of an array":          {"", "", `{"items":[["hunter2"]]}`, "key expression .id failed: expected an object but got: array for record 1 of 1"},
		"key of many values":       {"records: .items, key: '.id, .id'", "", `{"items":[{"id":1}]}`, "key expression .id, .id gave 2 values, want one for record 1 of 1"},
		"long key":                 {"", "", `{"items":[{"id":"` + strings.Repeat("x", 1025) + `"}]}`, "gave a text of 1025 bytes, at most 1024 are a key"},
		"same key, other content":  {"records: .items, key: .id, bad_records: fail", "", `{"items":[{"id":"hunter2","v":1},{"id":2},{"id":"hunter2","v":2}]}`, "key expression .id is not unique: it gave the key of record 1 of the same page, which differs, for record 3 of 3"},
		"watermark of wrong type":  {"records: .items, key: .id, incremental: {cursor: .at, param: s}", "", `{"items":[{"id":1,"at":["hunter2"]}]}`, "stream a: incremental expression .at gave an array, want a text, a number or null, for record 1 of 1"},
		"fingerprint that fails":   {"records: .items, key: .id, fingerprint: '.x | keys'", "", `{"items":[{"id":1,"x":"hunter2"}]}`, "stream a: fingerprint expression .x | keys failed"},
		"Link that cannot be read": {"records: .items, key: .id, paginate: {link: true}", "", `{"items":[]}`, "stream a: the Link header cannot be read (RFC 8288)"},
		"deep":                     {"", "", strings.Repeat("[", 20000), "invalid JSON: an unexpected character at byte 10001 of 20000"},
		"a long page, cut":         {"", "", `{"items":[` + page, "it ends in the middle, after 20010 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			call := answering(c.body)
			call.Header = http.Header{"Link": {"hunter2"}, "Content-Type": {c.media}}
			if c.media == "" {
				call.Header.Set("Content-Type", "application/json")
			}
			got, err := list(t, connect(t, "https://h/v1", c.stream), call)
			f, ok := errors.AsType[*connector.Failure](err)
			if !ok || f.Reason != reason.InvalidResponse || f.Path != "/v1/a" || f.Status != 200 {
				t.Fatalf("got %d items, %#v", len(got.Items), err)
			}
			if !strings.HasPrefix(err.Error(), "GET /v1/a: 200 invalid_response: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
			if strings.Contains(err.Error(), canary) || len(err.Error()) > 500 || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has content or is too long: %v", err)
			}
		})
	}
}

func TestRecordsKeepTheProvidersBytes(t *testing.T) {
	for name, c := range map[string]struct {
		stream, body string
		want         []connector.Item
	}{
		"plain paths": {
			"records: .data.items, key: .id",
			"\ufeff{\"data\": {\"items\": [ {\"z\": 1.10, \"id\": 9007199254740993,\n \"t\": \"<\u2028\\u00e9\"}, {\"id\":\"-7\"}, {\"id\": -0} ]}}",
			[]connector.Item{
				{Key: "9007199254740993", Data: []byte("{\"z\":1.10,\"id\":9007199254740993,\"t\":\"<\u2028\\u00e9\"}")},
				{Key: "-7", Data: []byte(`{"id":"-7"}`)}, {Key: "0", Data: []byte(`{"id":-0}`)},
			},
		},
		"jq, one record after the other": {
			"records: '.items[] | select(.ok)', key: '.id | tostring'",
			`{"items":[{"ok":true,"id":9007199254740993,"n":1.10},{"ok":false},{"ok":true,"id":"b"}]}`,
			[]connector.Item{
				{Key: "9007199254740993", Data: []byte(`{"id":9007199254740993,"n":1.10,"ok":true}`)},
				{Key: "b", Data: []byte(`{"id":"b","ok":true}`)},
			},
		},
		"jq key of plain records":      {"records: .items, key: '.a + .b'", `{"items":[{"b":"y","a":"x"}]}`, []connector.Item{{Key: "xy", Data: []byte(`{"b":"y","a":"x"}`)}}},
		"plain key of jq records":      {"records: '[.items[]]', key: .a.b", `{"items":[{"b":"y","a":{"b":"x"}}]}`, []connector.Item{{Key: "x", Data: []byte(`{"a":{"b":"x"},"b":"y"}`)}}},
		"an array of numbers":          {"records: ., key: .", ` [3, "4"] `, []connector.Item{{Key: "3", Data: []byte(`3`)}, {Key: "4", Data: []byte(`"4"`)}}},
		"one object":                   {"records: .item, key: .id", `{"item":{"id":1}}`, []connector.Item{{Key: "1", Data: []byte(`{"id":1}`)}}},
		"an empty array":               {"", `{"items":[]}`, []connector.Item{}},
		"nothing selected":             {"records: '.items[]', key: .id", `{"items":[]}`, []connector.Item{}},
		"identical records":            {"", `{"items":[{"id":1},{"id":2},{"id": 1}]}`, []connector.Item{{Key: "1", Data: []byte(`{"id":1}`)}, {Key: "2", Data: []byte(`{"id":2}`)}}},
		"the later of two same fields": {"", `{"items":[{"id":9}],"items":[{"id":1,"id":2}]}`, []connector.Item{{Key: "2", Data: []byte(`{"id":1,"id":2}`)}}},
		"bytes that are no UTF-8":      {"", "{\"items\":[{\"id\":\"a\xffb\"}]}", []connector.Item{{Key: "a\ufffdb", Data: []byte("{\"id\":\"a\ufffdb\"}")}}},
		"fingerprints": {
			"records: .items, key: .id, fingerprint: .v",
			`{"items":[{"id":1,"v":"x"},{"id":2,"v":[1, 2.0]},{"id":3}]}`,
			[]connector.Item{
				{Key: "1", Data: []byte(`{"id":1,"v":"x"}`), Fingerprint: "x"},
				{Key: "2", Data: []byte(`{"id":2,"v":[1,2.0]}`), Fingerprint: "[1,2.0]"}, {Key: "3", Data: []byte(`{"id":3}`)},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			page, err := list(t, connect(t, "https://h", c.stream), answering(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, page.Items); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestALongFingerprintIsItsDigest(t *testing.T) {
	body := fmt.Sprintf(`{"items":[{"id":1,"v":%q}]}`, strings.Repeat("x", 200))
	page, err := list(t, connect(t, "https://h", "records: .items, key: .id, fingerprint: .v"), answering(body))
	if err != nil {
		t.Fatal(err)
	}
	if got := page.Items[0].Fingerprint; len(got) != 71 || !strings.HasPrefix(got, "sha256:") {
		t.Errorf("got %q", got)
	}
}

func TestNoContentIsAnEmptyPage(t *testing.T) {
	call := &canned{Response: connector.Response{Status: http.StatusNoContent}}
	c := connect(t, "https://h", "records: .items, key: .id, paginate: {cursor: .next, param: c}, detail: {stream: d, path: '/a/{key}', records: ., key: .id}")
	page, err := list(t, c, call)
	if err != nil || len(page.Items) != 0 || page.Next != "" {
		t.Errorf("got %+v, %v", page, err)
	}
	if records, err := c.Detail(t.Context(), call, "a", connector.Item{Key: "1"}); err != nil || len(records) != 0 {
		t.Errorf("got %+v, %v", records, err)
	}
}

func TestServerTimeIsTheDateHeader(t *testing.T) {
	for date, want := range map[string]time.Time{
		"Tue, 15 Nov 1994 08:12:31 GMT": time.Date(1994, 11, 15, 8, 12, 31, 0, time.UTC),
		"":                              {},
		"yesterday":                     {},
	} {
		call := answering(`{"items":[]}`)
		call.Header = http.Header{"Date": {date}}
		page, err := list(t, connect(t, "https://h", ""), call)
		if err != nil || !page.ServerTime.Equal(want) {
			t.Errorf("%q gave %v, %v", date, page.ServerTime, err)
		}
	}
}

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
