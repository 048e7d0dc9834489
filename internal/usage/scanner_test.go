package usage_test

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
)

const (
	events = "text/event-stream; charset=utf-8"
	object = "application/json"
)

// said is a body as an API sends it, and the expected report.
type said struct {
	name  string
	shape usage.Shape
	kind  string
	body  string
	want  usage.Report
}

func tokens(input, cached, output int64) quota.Usage {
	return quota.Usage{Input: input, Cached: cached, Output: output}
}

// reasoned adds reasoning tokens, which are part of the output.
func reasoned(input, cached, output, reasoning int64) quota.Usage {
	return quota.Usage{Input: input, Cached: cached, Output: output, Reasoning: reasoning}
}

var bodies = []said{
	{
		"chat", usage.OpenAIChat, object,
		`{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there","refusal":null},"finish_reason":"stop"}],
		"usage":{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,"prompt_tokens_details":{"cached_tokens":1920,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":250}}}`,
		usage.Report{Usage: reasoned(2006, 1920, 300, 250), Reported: true, Ended: true, Flowed: 300},
	},
	{
		"chat stream", usage.OpenAIChat, events,
		`data: {"id":"c","choices":[],"prompt_filter_results":[{"content_filter_results":{}}],"usage":null}

data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

data: {"id":"c","choices":[{"index":0,"delta":{"content":"The cat sat on"},"finish_reason":null}],"usage":null}

data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":null}

data: {"id":"c","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":3}}}

data: [DONE]

`,
		usage.Report{Usage: tokens(19, 3, 10), Reported: true, Ended: true, Flowed: 10},
	},
	{
		"chat stream without usage", usage.OpenAIChat, events,
		"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n" +
			"data: {\"choices\":[{\"delta\":{\"content\":\"c\"}}]}\n\ndata: [DONE]\n\n",
		usage.Report{Usage: tokens(0, 0, 3), Ended: true, Flowed: 3},
	},
	{
		"chat stream cut short", usage.OpenAIChat, events,
		"data: {\"choices\":[{\"delta\":{\"content\":\"\\u4eba\\u5de5\\u667a\\u80fd\"}}]}\n\ndata: {\"choices\":[{\"del",
		usage.Report{Usage: tokens(0, 0, 5), Flowed: 5},
	},
	{
		"chat stream that counts in every chunk", usage.OpenAIChat, events,
		"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":40}}\n\n",
		usage.Report{Usage: tokens(5, 0, 40), Flowed: 40},
	},
	{
		"chat stream with tool calls in CR lines", usage.OpenAIChat, events,
		": comment\rdata:{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"find\",\"arguments\":\"\"}}]}}]}\r\r" +
			"data:{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"q\\\":\"}}]}}]}\r\rdata:[DONE]\r\r",
		usage.Report{Usage: tokens(0, 0, 3), Ended: true, Flowed: 3},
	},
	{
		"chat stream in lines of data", usage.OpenAIChat, events,
		"\ufeffdata: {\"choices\":[],\nid: 1\ndata: \"usage\":{\"prompt_tokens\":7,\r\ndata: \"completion_tokens\":\ndata:1}}\nretry: 10\n\n",
		usage.Report{Usage: tokens(7, 0, 1), Reported: true, Flowed: 1},
	},
	{
		"chat stream with a number broken over lines", usage.OpenAIChat, events,
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1\ndata: 2}}\n\n",
		usage.Report{Usage: tokens(1, 0, 0), Reported: true},
	},
	{
		"chat stream with an event cut short", usage.OpenAIChat, events,
		"data: {\"error\":{\"code\":\"429\",\"param\":[[\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":4}}\n\n",
		usage.Report{Usage: tokens(4, 0, 0), Reported: true},
	},
	{
		"chat stream with words for nothing", usage.OpenAIChat, events,
		"data: {\"choices\":[{\"finish_reason\":\"\"}],\"error\":false,\"usage\":{\"prompt_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\n",
		usage.Report{Usage: tokens(4, 4, 0)},
	},
	{
		"chat error in a stream", usage.OpenAIChat, events,
		"data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n" +
			"data: {\"error\":{\"message\":\"m\",\"type\":\"tokens\",\"param\":null,\"code\":\"rate_limit_exceeded\"}}\n\n",
		usage.Report{Usage: tokens(0, 0, 2), Flowed: 2, Problem: usage.RateLimited},
	},
	{
		"chat quota spent in a body", usage.OpenAIChat, object,
		`{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"You exceeded"}}`,
		usage.Report{Ended: true, Problem: usage.QuotaSpent},
	},
	{
		"chat error that is a string", usage.OpenAIChat, object, `{"error":"no such model"}`,
		usage.Report{Ended: true, Problem: usage.OtherProblem},
	},
	{
		"completions", usage.OpenAIChat, "",
		` {"object":"text_completion","choices":[{"text":"abcd","finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":7}}`,
		usage.Report{Usage: tokens(5, 0, 7), Reported: true, Ended: true, Flowed: 7},
	},
	{
		"embeddings", usage.OpenAIEmbeddings, object,
		`{"object":"list","data":[{"embedding":[0.1,-2e-3],"index":0}],"usage":{"prompt_tokens":8,"total_tokens":8}}`,
		usage.Report{Usage: tokens(8, 0, 0), Reported: true, Ended: true},
	},
	{
		"embeddings with a total only", usage.OpenAIEmbeddings, object,
		`{"data":[],"usage":{"total_tokens":8}}`,
		usage.Report{Usage: tokens(8, 0, 0), Reported: true, Ended: true},
	},
	{
		"responses", usage.OpenAIResponses, object,
		`{"id":"r","object":"response","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}],
		"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":12},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":64},"total_tokens":123}}`,
		usage.Report{Usage: reasoned(36, 12, 87, 64), Reported: true, Ended: true, Flowed: 87},
	},
	{
		"responses stream", usage.OpenAIResponses, events,
		`event: response.created
data: {"type":"response.created","response":{"id":"r","status":"in_progress","error":null,"usage":null}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","item_id":"m","delta":"Some words."}

event: response.audio.delta
data: {"type":"response.audio.delta","delta":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}

event: response.output_text.done
data: {"type":"response.output_text.done","item_id":"m","text":"Some words. And so on, without an end."}

event: response.incomplete
data: {"type":"response.incomplete","response":{"id":"r","status":"incomplete","error":null,"output":[{"content":[{"text":"Some words."}]}],"usage":{"input_tokens":37,"input_tokens_details":{"cached_tokens":0},"output_tokens":2}}}

`,
		usage.Report{Usage: tokens(37, 0, 2), Reported: true, Ended: true, Flowed: 3},
	},
	{
		"responses stream with early usage", usage.OpenAIResponses, events,
		"data: {\"type\":\"response.in_progress\",\"response\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n",
		usage.Report{Usage: tokens(9, 0, 1), Flowed: 1},
	},
	{
		"responses failed in a stream", usage.OpenAIResponses, events,
		"data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_is_overloaded\",\"message\":\"m\"},\"usage\":null}}\n\n",
		usage.Report{Ended: true, Problem: usage.Overloaded},
	},
	{
		"responses error event", usage.OpenAIResponses, events,
		"event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"m\",\"param\":null}\n\n",
		usage.Report{Problem: usage.RateLimited},
	},
	{
		"messages", usage.Anthropic, object,
		`{"type":"message","content":[{"type":"text","text":"abcd"},{"type":"tool_use","name":"find","input":{"q":"x"}}],"stop_reason":"end_turn",
		"usage":{"input_tokens":10,"cache_creation_input_tokens":200,"cache_read_input_tokens":3000,"output_tokens":50,"cache_creation":{"ephemeral_5m_input_tokens":200}}}`,
		usage.Report{Usage: tokens(3210, 3000, 50), Reported: true, Ended: true, Flowed: 50},
	},
	{
		"messages stream", usage.Anthropic, events,
		`event: message_start
data: {"type":"message_start","message":{"type":"message","content":[],"usage":{"input_tokens":25,"cache_creation_input_tokens":null,"cache_read_input_tokens":1000,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello!!!"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"q\":"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":15}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":30,"output_tokens":20,"iterations":[{"input_tokens":7,"output_tokens":9}]}}

event: message_stop
data: {"type":"message_stop"}

`,
		usage.Report{Usage: tokens(1030, 1000, 20), Reported: true, Ended: true, Flowed: 20},
	},
	{
		"messages stream cut short", usage.Anthropic, events,
		`event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":25,"cache_read_input_tokens":5,"output_tokens":1}}}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"one two three four"}}`,
		usage.Report{Usage: tokens(30, 5, 5), Flowed: 5},
	},
	{
		"messages error in a stream", usage.Anthropic, events,
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"},\"request_id\":null}\n\n",
		usage.Report{Problem: usage.Overloaded},
	},
	{
		"generateContent", usage.Gemini, object,
		`{"candidates":[{"content":{"parts":[{"text":"abcd"}],"role":"model"},"finishReason":"STOP"}],
		"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":40,"candidatesTokenCount":20,"thoughtsTokenCount":30,"toolUsePromptTokenCount":5,"totalTokenCount":155,"promptTokensDetails":[{"modality":"TEXT","tokenCount":100}]}}`,
		usage.Report{Usage: reasoned(105, 40, 50, 30), Reported: true, Ended: true, Flowed: 50},
	},
	{
		"generateContent stream", usage.Gemini, events,
		"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"one\"}]}}],\"usageMetadata\": {\"promptTokenCount\": 9,\"totalTokenCount\": 9}}\r\n\r\n" +
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"functionCall\": {\"name\":\"f\",\"args\":{\"a\":[1,{\"b\":\"c\"}]}}}]},\"finishReason\": \"STOP\"}],\"usageMetadata\": {\"promptTokenCount\": 9,\"candidatesTokenCount\": 4,\"thoughtsTokenCount\": 100}}\r\n\r\n",
		usage.Report{Usage: reasoned(9, 0, 104, 100), Reported: true, Ended: true, Flowed: 104},
	},
	{
		"generateContent call cut short", usage.Gemini, events,
		`data: {"candidates":[{"content":{"parts":[{"functionCall":{"a":[1,2,3,4,5,6,7,8,9,"0123456789\n"]}`,
		usage.Report{Usage: tokens(0, 0, 10), Flowed: 10},
	},
	{
		"generateContent array", usage.Gemini, object,
		"[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"one\"}]}}],\"usageMetadata\":{\"promptTokenCount\":9}}\r\n,\r\n" +
			"{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"two\"}]},\"finishReason\":\"MAX_TOKENS\"}],\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":2}}\r\n]",
		usage.Report{Usage: tokens(9, 0, 2), Reported: true, Ended: true, Flowed: 2},
	},
	{
		"generateContent refuses the prompt", usage.Gemini, object,
		`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":6,"totalTokenCount":6}}`,
		usage.Report{Usage: tokens(6, 0, 0), Reported: true, Ended: true},
	},
	{
		"generateContent bare error in a stream", usage.Gemini, events,
		"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"one\"}]}}]}\r\n\r\n{\n  \"error\": {\n    \"code\": 503,\n    \"status\": \"UNAVAILABLE\"\n  }\n}\n\n",
		usage.Report{Usage: tokens(0, 0, 1), Flowed: 1, Problem: usage.Overloaded},
	},
	{
		"generateContent day's quota in an array", usage.Gemini, object,
		`[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel"}]}]}}]`,
		usage.Report{Ended: true, Problem: usage.QuotaSpent},
	},
	{
		"figures without sense", usage.OpenAIChat, object,
		`{"usage":{"prompt_tokens":-5,"prompt_tokens":1e300,"completion_tokens":"12","prompt_tokens_details":{"cached_tokens":99999999999999999999}}}`,
		usage.Report{Usage: tokens(quota.MaxTokens, quota.MaxTokens, 12), Reported: true, Ended: true, Flowed: 12},
	},
	{
		"names in escapes", usage.OpenAIChat, object,
		`{"us\u0061ge":{"prompt_tokens":1,"completion\u005ftokens":2},"x":"\"usage\":{\"prompt_tokens\":9}"}`,
		usage.Report{Usage: tokens(1, 0, 2), Reported: true, Ended: true, Flowed: 2},
	},
	{
		"names elsewhere", usage.OpenAIChat, object,
		`{"choices":[{"message":{"usage":{"prompt_tokens":9}}}],"other":{"usage":{"prompt_tokens":8}},"logs":["prompt_tokens",{"error":{"code":"429"}}]}`,
		usage.Report{Ended: true},
	},
	{"no JSON", usage.OpenAIChat, object, `<html>}]"}}]] [1,2 {{{{`, usage.Report{}},
	{"no shape", usage.None, object, `{"usage":{"prompt_tokens":9}}`, usage.Report{}},
	{"sound", usage.OpenAIResponses, "audio/mpeg", `{"usage":{"input_tokens":9}}`, usage.Report{}},
}

func TestReport(t *testing.T) {
	for _, b := range bodies {
		t.Run(b.name, func(t *testing.T) {
			s := usage.NewScanner(b.shape, b.kind)
			if n, err := s.Write([]byte(b.body)); n != len(b.body) || err != nil {
				t.Errorf("Write gave %d, %v for %d bytes", n, err, len(b.body))
			}
			if diff := cmp.Diff(b.want, s.Report()); diff != "" {
				t.Errorf("whole (-want +got):\n%s", diff)
			}
			s = usage.NewScanner(b.shape, b.kind)
			for i := range len(b.body) {
				_, _ = s.Write([]byte{b.body[i]}) // never fails
			}
			if diff := cmp.Diff(b.want, s.Report()); diff != "" {
				t.Errorf("byte by byte (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReportOfEscapedNames: JSON lets every letter of a name be written as an escape.
func TestReportOfEscapedNames(t *testing.T) {
	figure := regexp.MustCompile(`"\w*([tT]oken|usage|details)\w*"\s*:`)
	for _, b := range bodies {
		body := figure.ReplaceAllStringFunc(b.body, func(name string) string {
			var escaped strings.Builder
			end := strings.LastIndexByte(name, '"')
			for _, c := range []byte(name[1:end]) {
				fmt.Fprintf(&escaped, `\u%04X`, c)
			}
			return `"` + escaped.String() + name[end:]
		})
		s := usage.NewScanner(b.shape, b.kind)
		_, _ = io.WriteString(s, body) // never fails
		if diff := cmp.Diff(b.want, s.Report()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", b.name, diff)
		}
	}
}

func TestReportOnTheWay(t *testing.T) {
	for _, b := range bodies {
		s, last := usage.NewScanner(b.shape, b.kind), usage.Report{}
		for i := range len(b.body) {
			_, _ = s.Write([]byte{b.body[i]}) // never fails
			now := s.Report()
			if err := now.Usage.Validate(); err != nil {
				t.Fatalf("%s: after %d bytes: %v", b.name, i+1, err)
			}
			if now.Flowed < last.Flowed || (last.Reported && !now.Reported) || (last.Ended && !now.Ended) {
				t.Fatalf("%s: after %d bytes %+v follows %+v", b.name, i+1, now, last)
			}
			last = now
		}
	}
}

// endless is a body without an end.
var endless = []struct{ name, begin, more string }{
	{"deep arrays", `{"usage":`, "[[[[[[[["},
	{"deep arrays at the root", "", "[[[[[[[["},
	{"deep objects", "", `{"choices":{"delta":`},
	{"a string", `{"choices":[{"delta":{"content":"`, `never\n\u00e4 ends`},
	{"a name", `{"`, "usage"},
	{"a number", `{"usage":{"prompt_tokens":1`, "000000"},
	{"a code", `{"error":{"code":"`, "429"},
	{"members", `{"a":0`, `,"usage":{"prompt_tokens":1}`},
}

func TestMemoryIsBounded(t *testing.T) {
	for _, e := range endless {
		for _, kind := range []string{object, events} {
			s := usage.NewScanner(usage.OpenAIChat, kind)
			begin := e.begin
			if kind == events {
				begin = "data: " + begin
			}
			_, _ = s.Write([]byte(begin)) // never fails
			more := []byte(strings.Repeat(e.more, 4096))
			if n := testing.AllocsPerRun(50, func() { _, _ = s.Write(more) }); n != 0 {
				t.Errorf("%s as %s: %v allocations a write of %d bytes", e.name, kind, n, len(more))
			}
		}
	}
}

func TestShapeString(t *testing.T) {
	for shape, want := range map[usage.Shape]string{
		usage.None: "none", usage.OpenAIChat: "openai-chat", usage.OpenAIResponses: "openai-responses",
		usage.Anthropic: "anthropic", usage.Gemini: "gemini", usage.OpenAIEmbeddings: "openai-embeddings", 99: "unknown",
	} {
		if got := shape.String(); got != want {
			t.Errorf("Shape(%d) is %q, want %q", shape, got, want)
		}
	}
}

func ExampleScanner() {
	answer := strings.NewReader(`event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":25,"cache_read_input_tokens":1000,"output_tokens":1}}}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"Hello."}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}

event: message_stop
data: {"type":"message_stop"}

`)
	s := usage.NewScanner(usage.Anthropic, "text/event-stream")
	if _, err := io.Copy(io.Discard, io.TeeReader(answer, s)); err != nil {
		fmt.Println(err)
	}
	r := s.Report()
	fmt.Println(r.Usage.Input, r.Usage.Cached, r.Usage.Output, r.Reported, r.Ended)
	// Output: 1025 1000 3 true true
}
