package usage

import "slices"

// Inject sets stream_options.include_usage in the body of a request to OpenAI
// chat. All other bytes stay as they are: order, numbers, white space, members
// that are there twice. Changed is false, and out is body, if the client asked
// for usage itself, if the call is not a stream, or if body is not a JSON object.
func Inject(body []byte) (out []byte, changed bool) {
	var o, options object
	if !o.parse(body, 0) || blank(body, o.close+1) != len(body) {
		return body, false
	}
	stream := o.last("stream")
	if stream < 0 || string(o.valueOf(stream)) != "true" {
		return body, false
	}
	at := o.last("stream_options")
	if at < 0 {
		return insert(body, o.open+1, o.open+1, `"stream_options":{"include_usage":true},`), true
	}
	m := o.members[at]
	if string(o.valueOf(at)) == "null" {
		return insert(body, m.value, m.valueEnd, `{"include_usage":true}`), true
	}
	if !options.parse(body[:m.valueEnd], m.value) {
		return body, false
	}
	switch asked := options.last("include_usage"); {
	case asked < 0 && len(options.members) == 0:
		return insert(body, options.open+1, options.open+1, `"include_usage":true`), true
	case asked < 0:
		return insert(body, options.open+1, options.open+1, `"include_usage":true,`), true
	case string(options.valueOf(asked)) == "true":
		return body, false
	default:
		m := options.members[asked]
		return insert(body, m.value, m.valueEnd, "true"), true
	}
}

// insert replaces text[from:to] in a copy.
func insert(text []byte, from, to int, by string) []byte {
	return slices.Concat(text[:from], []byte(by), text[to:])
}
