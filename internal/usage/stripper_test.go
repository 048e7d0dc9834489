package usage_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/usage"
)

// strip returns what a Stripper leaves of a stream that arrives in parts.
func strip(t interface{ Fatal(...any) }, parts ...string) string {
	var b bytes.Buffer
	s := usage.NewStripper(&b)
	for _, p := range parts {
		if n, err := s.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatal("Write gave", n, err, "for", len(p))
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// chunks are the data of events before and after stripping.
var chunks = []struct{ in, out string }{
	{`{"id":"c","choices":[{"delta":{"content":"usage"}}],"usage":null}`, `{"id":"c","choices":[{"delta":{"content":"usage"}}]}`},
	{`{"usage":null,"choices":[]}`, `{"choices":[]}`},
	{`{ "a": 1, "usage" : null , "b": 2 }`, `{ "a": 1, "b": 2 }`},
	{`{"usage":null}`, `{}`},
	{`{"id":"c","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, ""},
	{`{"choices":[],"usa\u0067e":null}`, `{"choices":[]}`},
	{`{"choices":[],"\u0075\u0073\u0061\u0067\u0065":{"prompt_tokens":1}}`, ""},
	{`{ "usage" : { } , "choices" : [ ] }`, ""},
	{`{"choices":null,"usage":{"prompt_tokens":1}}`, ""},
	{`{"object":"chat.completion.chunk","usage":{"prompt_tokens":1}}`, ""},
	// What stays as it is.
	{`{"object":"other","usage":{"prompt_tokens":1}}`, `{"object":"other","usage":{"prompt_tokens":1}}`},
	{`{"choices":[null],"usage":{"prompt_tokens":1}}`, `{"choices":[null],"usage":{"prompt_tokens":1}}`},
	{`{"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}`, `{"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}`},
	{`{"choices":[{"delta":{"content":"\"usage\":null"}}]}`, `{"choices":[{"delta":{"content":"\"usage\":null"}}]}`},
	{`{"choices":[],"x":{"usage":{"a":1}}}`, `{"choices":[],"x":{"usage":{"a":1}}}`},
	{`{"choices":[],"usage":{"a":1}`, `{"choices":[],"usage":{"a":1}`},
	{`{"choices":[],"usage":{"a":1}} x`, `{"choices":[],"usage":{"a":1}} x`},
	{`{"choices":[],"usage":0}`, `{"choices":[],"usage":0}`},
	{`{"usage":{"a":1}}`, `{"usage":{"a":1}}`},
	{`{"usage"`, `{"usage"`},
	{`[DONE]`, `[DONE]`},
	{`"usage"`, `"usage"`},
	{``, ``},
}

// lay puts data in an event.
func lay(data, space, end string) string { return "data:" + space + data + end + end }

func TestStripperByEvent(t *testing.T) {
	for _, c := range chunks {
		for _, end := range []string{"\n", "\r\n", "\r"} {
			want := lay(c.out, " ", end)
			if c.out == "" && c.in != "" {
				want = ""
			}
			if got := strip(t, lay(c.in, " ", end)); got != want {
				t.Errorf("of %q is left %q, want %q", lay(c.in, " ", end), got, want)
			}
		}
	}
}

func TestStripperOnLinesOfData(t *testing.T) {
	got := strip(t, "event: chunk\ndata: {\"a\":1,\ndata:\"usage\"\ndata: : null,\r\ndata: \"b\":2}\nid: 7\n\n")
	if want := "event: chunk\ndata: {\"a\":1,\ndata:\ndata: \r\ndata: \"b\":2}\nid: 7\n\n"; got != want {
		t.Errorf("left is %q, want %q", got, want)
	}
	if got := strip(t, "data: {\"choices\":[],\ndata: \"usage\":{}}\n\ndata: [DONE]\n\n"); got != "data: [DONE]\n\n" {
		t.Errorf("left is %q", got)
	}
}

func TestStripperAtTheEnd(t *testing.T) {
	for in, want := range map[string]string{
		`data: {"choices":[],"usage":{}}`:         "",
		"data: {\"choices\":[],\"usage\":{}}\n":   "",
		`data: {"choices":[],"usage":null}`:       `data: {"choices":[]}`,
		`data: {"choices":[],"usage":nu`:          `data: {"choices":[],"usage":nu`,
		"{\"error\":{\"message\":\"\"},\n\"a\":1": "{\"error\":{\"message\":\"\"},\n\"a\":1",
	} {
		if got := strip(t, in); got != want {
			t.Errorf("of %q is left %q, want %q", in, got, want)
		}
	}
}

func TestStripperHoldsOneEventOnly(t *testing.T) {
	var b bytes.Buffer
	s := usage.NewStripper(&b)
	for _, step := range []struct{ in, out string }{
		{"data: {\"a\":1}\n", ""},
		{"\n", "data: {\"a\":1}\n\n"},
		{": still here\r\n\r\ndata: [DO", ": still here\r\n\r\n"},
		{"NE]\n\r", "data: [DONE]\n\r"},
		{"\n", "\n"},
		{"data: {\"choices\":[],\"usage\":{}}\r\r", ""},
		{"\n", ""},
		{"\n", "\n"},
	} {
		b.Reset()
		_, _ = s.Write([]byte(step.in)) // a buffer never fails
		if got := b.String(); got != step.out {
			t.Errorf("after %q came %q, want %q", step.in, got, step.out)
		}
	}
}

func TestStripperPassesLongEvents(t *testing.T) {
	for _, length := range []int{usage.MaxEvent, usage.MaxEvent + 1} {
		pad := length - len(`data: {"choices":[],"usage":{},"pad":""}`) - 2
		event := `data: {"choices":[],"usage":{},"pad":"` + strings.Repeat("x", pad) + "\"}\n\n"
		after := "data: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n"
		want := "data: [DONE]\n\n"
		if length > usage.MaxEvent {
			want = event + want
		}
		if got := strip(t, event[:99], event[99:5000], event[5000:]+after); got != want {
			t.Errorf("with an event of %d bytes %d bytes are left, want %d", len(event), len(got), len(want))
		}
	}
}

func TestStripperPassesTheEndOfALongEvent(t *testing.T) {
	long := "data: " + strings.Repeat("x", usage.MaxEvent) + "\r\n\r"
	if got := strip(t, "data: {\"choices\":[],\"usage\":{}}\n\n", long, "\n"); got != long+"\n" {
		t.Errorf("%d bytes are left, want %d", len(got), len(long)+1)
	}
}

func TestStripperLeavesNoResidue(t *testing.T) {
	const chunk, end = `{"choices":[{"delta":{"content":"a"}}]`, "data: [DONE]\n\n"
	long := strings.Repeat("x", 3<<20)
	for name, c := range map[string]struct{ in, want string }{
		"a byte order mark":           {"\uFEFFdata: " + chunk + `,"usage":null}` + "\n\n" + end, "\uFEFFdata: " + chunk + "}\n\n" + end},
		"the chunk of usage after it": {"\uFEFFdata: {\"choices\":[],\"usage\":{\"total_tokens\":1}}\n\n" + end, end},
		"several lines":               {"data: {\"choices\":[],\ndata: \"usage\":{\ndata: \"total_tokens\":1}}\n\n" + end, end},
		"several lines and a null":    {"id: 7\ndata: " + chunk + ",\ndata: \"usage\":\ndata: null}\n\n" + end, "id: 7\ndata: " + chunk + "\ndata: \ndata: }\n\n" + end},
		"more than 1 MiB":             {`data: {"choices":[{"delta":{"content":"` + long + `"}}],"usage":null}` + "\n\n" + end, `data: {"choices":[{"delta":{"content":"` + long + `"}}]}` + "\n\n" + end},
	} {
		for _, size := range []int{1 << 30, 4096, 7} {
			if size == 7 && len(c.in) > 1<<20 {
				continue
			}
			var parts []string
			for rest := c.in; rest != ""; {
				n := min(size, len(rest))
				parts, rest = append(parts, rest[:n]), rest[n:]
			}
			if got := strip(t, parts...); got != c.want {
				t.Errorf("%s in pieces of %d: %d bytes are left, want %d; %.200q", name, size, len(got), len(c.want), got)
			}
		}
	}
}

type failing struct{ left int }

var errFull = errors.New("full")

func (f *failing) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestStripperTellsErrors(t *testing.T) {
	s := usage.NewStripper(&failing{1})
	if _, err := io.WriteString(s, "data: 1\n\ndata: 2\n\n"); !errors.Is(err, errFull) {
		t.Errorf("Write gave %v", err)
	}
	s = usage.NewStripper(&failing{})
	if _, err := io.WriteString(s, "data: 1\n"); err != nil {
		t.Errorf("Write gave %v before an event is whole", err)
	}
	if err := s.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close gave %v", err)
	}
}

// split cuts a text anywhere.
func split(t *rapid.T, longest int, s string) []string {
	var parts []string
	for len(s) > 0 {
		n := rapid.IntRange(1, min(len(s), longest)).Draw(t, "n")
		parts, s = append(parts, s[:n]), s[n:]
	}
	return parts
}

func TestStripperProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in, want strings.Builder
		end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "end")
		for range rapid.IntRange(0, 12).Draw(t, "events") {
			c := rapid.SampledFrom(chunks).Draw(t, "chunk")
			space := rapid.SampledFrom([]string{"", " "}).Draw(t, "space")
			extra := rapid.SampledFrom([]string{"", ": comment" + end, "event: message" + end, end}).Draw(t, "extra")
			in.WriteString(extra + lay(c.in, space, end))
			switch {
			case c.out != "" || c.in == "":
				want.WriteString(extra + lay(c.out, space, end))
			case extra == end: // an event of its own
				want.WriteString(end)
			}
		}
		if got := strip(t, split(t, 40, in.String())...); got != want.String() {
			t.Fatalf("of %q is left %q, want %q", in.String(), got, want.String())
		}
	})
}

func TestStripperIsIdentityWithoutUsage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := strings.ReplaceAll(rapid.StringMatching(`((data|event|id): ?|[{}":,\n\r a-z\[\]]|usag|\n\n)*`).Draw(t, "in"), `"usage"`, "")
		if got := strip(t, split(t, 40, in)...); got != in {
			t.Fatalf("of %q is left %q", in, got)
		}
	})
}

func ExampleStripper() {
	var client strings.Builder
	s := usage.NewStripper(&client)
	_, err := io.WriteString(s, `data: {"choices":[{"delta":{"content":"hi"}}],"usage":null}

data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}

data: [DONE]

`)
	if err == nil {
		err = s.Close()
	}
	fmt.Printf("%s%v\n", client.String(), err)
	// Output:
	// data: {"choices":[{"delta":{"content":"hi"}}]}
	//
	// data: [DONE]
	//
	// <nil>
}

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
		`{"stream_options":null,"stream":true}`, `{"stream":true,"stream_options":{"include_usage":yes}}`, ` {"a":-1.5e+7,"stream" :true}`, `{"stream":false}`,
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
