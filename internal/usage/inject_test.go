package usage_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/usage"
)

func TestInject(t *testing.T) {
	for _, c := range []struct{ name, in, out string }{
		{
			"first", `{"model":"m","stream":true,"seed":12345678901234567890,"t":1.10}`,
			`{"stream_options":{"include_usage":true},"model":"m","stream":true,"seed":12345678901234567890,"t":1.10}`,
		},
		{
			"white space and twice", " {\n \"a\": 1, \"a\": 2, \"stream\" : true }\n",
			" {\"stream_options\":{\"include_usage\":true},\n \"a\": 1, \"a\": 2, \"stream\" : true }\n",
		},
		{"other options", `{"stream":true,"stream_options":{"include_obfuscation":false}}`, `{"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}}`},
		{"no options", `{"stream_options": { } ,"stream":true}`, `{"stream_options": {"include_usage":true } ,"stream":true}`},
		{"null options", `{"stream_options": null,"stream":true}`, `{"stream_options": {"include_usage":true},"stream":true}`},
		{"asked not to", `{"stream_options":{"include_usage": false},"stream":true}`, `{"stream_options":{"include_usage": true},"stream":true}`},
		{"names in escapes", `{"str\u0065am":true,"stream_\u006fptions":{"a":1}}`, `{"str\u0065am":true,"stream_\u006fptions":{"include_usage":true,"a":1}}`},
		{"the last counts", `{"stream":false,"stream":true}`, `{"stream_options":{"include_usage":true},"stream":false,"stream":true}`},
		{
			"names elsewhere", `{"stream":true,"x":{"stream_options":{"include_usage":true}},"y":"\"stream_options\":{"}`,
			`{"stream_options":{"include_usage":true},"stream":true,"x":{"stream_options":{"include_usage":true}},"y":"\"stream_options\":{"}`,
		},
		// What stays as it is.
		{"no stream", `{"model":"m"}`, ""},
		{"stream is false", `{"stream":false}`, ""},
		{"the last is false", `{"stream":true,"stream":false}`, ""},
		{"stream is text", `{"stream":"true"}`, ""},
		{"stream is elsewhere", `{"x":{"stream":true}}`, ""},
		{"asked for", `{"stream":true,"stream_options":{"x":1,"include_usage":true}}`, ""},
		{"options are text", `{"stream":true,"stream_options":"include_usage"}`, ""},
		{"empty", ``, ""},
		{"empty object", `{}`, ""},
		{"array", `[{"stream":true}]`, ""},
		{"cut short", `{"stream":true`, ""},
		{"more after it", `{"stream":true}{}`, ""},
		{"no name", `{,"stream":true}`, ""},
		{"no value", `{"stream":true,"x":}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := []byte(c.in)
			out, changed := usage.Inject(in)
			want := c.out
			if want == "" {
				want = c.in
			}
			if string(out) != want || changed != (c.out != "") || string(in) != c.in {
				t.Errorf("Inject of %s gave %s, %v", c.in, out, changed)
			}
		})
	}
}

func ExampleInject() {
	body, changed := usage.Inject([]byte(`{"model":"gpt-5-mini","stream":true}`))
	fmt.Println(string(body), changed)
	// Output: {"stream_options":{"include_usage":true},"model":"gpt-5-mini","stream":true} true
}

func FuzzInject(f *testing.F) {
	golden.Seeds(f)
	for _, s := range []string{
		`{"stream":true}`, `{"stream":true,"stream_options":{"include_usage":false,"a":[1,{"b":"\\\""}]}}`,
		`{"stream_options":null,"stream":true}`, ` {"a":-1.5e+7,"stream" :true}`, `{"stream":false}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		was := bytes.Clone(body)
		out, changed := usage.Inject(body)
		if !bytes.Equal(was, body) {
			t.Fatal("the body was written to")
		}
		if !changed {
			if !bytes.Equal(out, body) {
				t.Fatalf("%q is unchanged but %q", body, out)
			}
			return
		}
		if !json.Valid(body) {
			if json.Valid(out) {
				t.Fatalf("%q was not JSON but %q is", body, out)
			}
			return
		}
		var before, after map[string]json.RawMessage
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%q became %q: %v", body, out, err)
		}
		if err := json.Unmarshal(body, &before); err != nil {
			t.Fatal(err)
		}
		var options map[string]json.RawMessage
		if err := json.Unmarshal(after["stream_options"], &options); err != nil || string(options["include_usage"]) != "true" {
			t.Fatalf("%q became %q: %v", body, out, err)
		}
		delete(before, "stream_options")
		delete(after, "stream_options")
		if len(before) != len(after) {
			t.Fatalf("%q became %q", body, out)
		}
		for name, value := range before {
			if !bytes.Equal(value, after[name]) {
				t.Fatalf("%s of %q became %q", name, body, after[name])
			}
		}
		if again, twice := usage.Inject(out); twice {
			t.Fatalf("%q became %q, then %q", body, out, again)
		}
	})
}
