package egress

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headway-go/headway/egress/provider"
)

// addressFields are response headers that hold one URL, which a client may follow with its
// credential.
var addressFields = [...]string{"Location", "Content-Location", "X-Goog-Upload-Url", "X-Goog-Upload-Control-Url", "Operation-Location", "Azure-Asyncoperation"}

// leads maps a URL in an answer to the path and query that reach it through the proxy. It
// returns "" for a URL of another host. Some providers use their public host name even when
// the upstream is configured with another one.
func (c *call) leads(address string, asked *url.URL) string {
	d := &c.up.Description
	if to := relocate(address, c.up.Name, d.Upstream, asked, d.Auth.Query); to != "" {
		return to
	}
	if own, ok := provider.Builtin(d.API); ok && own.Upstream != nil {
		return relocate(address, c.up.Name, own.Upstream, own.Upstream, d.Auth.Query)
	}
	return ""
}

// here returns the base URL by which the client reached the proxy, without a path.
func (c *call) here() string {
	scheme := "http://"
	if c.r.TLS != nil || strings.EqualFold(c.r.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "https://"
	}
	return scheme + c.r.Host
}

// relocate rewrites a Location of the upstream to lead through the proxy. It returns "" for
// another host: a client that followed it would bypass the quota and show its credential
// there. Query parameters that may hold a key are removed.
func relocate(location, name string, base, asked *url.URL, keys ...string) string {
	u, err := asked.Parse(location)
	if err != nil || u.Scheme != base.Scheme || u.Host != base.Host || u.User != nil {
		return ""
	}
	prefix := strings.TrimSuffix(base.EscapedPath(), "/")
	rest, ok := strings.CutPrefix(u.EscapedPath(), prefix)
	if !ok || rest != "" && rest[0] != '/' {
		return ""
	}
	to := "/" + name + rest
	if query := provider.Without(u.RawQuery, append(keys, "key", "$key", "api_key", "api-key", "access_token", "oauth_token")...); query != "" {
		to += "?" + query
	}
	return to
}

// readdress rewrites the URLs in an answer's header to lead through the proxy. It removes
// URLs of other hosts, since a client that follows one would show its Headway key there.
func (c *call) readdress(h http.Header, asked *url.URL) {
	for _, name := range addressFields {
		v := h.Get(name)
		if v == "" {
			continue
		}
		h.Del(name)
		to := c.leads(v, asked)
		if to != "" && !strings.HasSuffix(name, "Location") {
			to = c.here() + to // clients expect an absolute URL
		}
		if to != "" {
			h.Set(name, to)
		}
	}
	lines := h["Link"]
	h.Del("Link")
	for _, line := range lines {
		if line = c.links(line, asked); line != "" {
			h.Add("Link", line)
		}
	}
}

// links rewrites the links of one line of a Link field. Source: RFC 8288, section 3.
func (c *call) links(line string, asked *url.URL) string {
	var kept []string
	for {
		open := strings.IndexByte(line, '<')
		if open < 0 {
			return strings.Join(kept, ", ")
		}
		end := strings.IndexByte(line[open:], '>')
		if end < 0 {
			return strings.Join(kept, ", ")
		}
		address, rest := line[open+1:open+end], line[open+end+1:]
		// Parameters end at a comma outside of quotes, where the next link begins. An
		// angle bracket outside of quotes begins a link too, since a lenient reader
		// might follow it.
		next, quoted := len(rest), false
		for i := range len(rest) {
			if rest[i] == '"' {
				quoted = !quoted
			}
			if (rest[i] == ',' || rest[i] == '<') && !quoted {
				next = i
				break
			}
		}
		if to := c.leads(address, asked); to != "" {
			kept = append(kept, "<"+to+">"+strings.TrimRight(rest[:next], " \t"))
		}
		line = rest[next:]
	}
}

// maxAddress is about the longest URL in a body that is rewritten, in bytes.
const maxAddress = 8 << 10

// readdresser copies a JSON body and rewrites the URLs in members of given names to lead
// through the proxy. It recognizes names with escapes too. A URL of another host, or one
// that is too long, becomes null.
type readdresser struct {
	w     io.Writer
	names []string
	leads func(address string) string
	held  []byte // empty while inText
	// inText is set within a string that is not held back, but copied or, with leftOut,
	// dropped. escaped is set after a backslash in it.
	inText, leftOut, escaped bool
}

func (d *readdresser) Write(p []byte) (int, error) {
	n := len(p)
	if d.inText {
		end := d.rest(p)
		if !d.leftOut {
			if _, err := d.w.Write(p[:end]); err != nil {
				return 0, err
			}
		}
		p = p[end:]
	}
	d.held = append(d.held, p...)
	return n, d.pass()
}

// Close writes the bytes that are held back.
func (d *readdresser) Close() error { return d.write(len(d.held)) }

// begin records that the input ends within a string, with the bytes after its opening quote.
func (d *readdresser) begin(begun []byte, leftOut bool) {
	d.inText, d.leftOut, d.escaped = true, leftOut, false
	d.rest(begun)
}

// rest returns how many bytes belong to the current string.
func (d *readdresser) rest(p []byte) int {
	for i, c := range p {
		switch {
		case d.escaped:
			d.escaped = false
		case c == '\\':
			d.escaped = true
		case c == '"':
			d.inText = false
			return i + 1
		}
	}
	return len(p)
}

// pass writes the bytes whose meaning is certain.
func (d *readdresser) pass() error {
	for at := 0; ; {
		open := bytes.IndexByte(d.held[at:], '"')
		if open < 0 {
			return d.write(len(d.held))
		}
		open += at
		after := pastText(d.held, open)
		switch {
		case after < 0 && d.short(d.held[open:]):
			return d.write(open)
		case after < 0:
			d.begin(d.held[open+1:], false)
			return d.write(len(d.held))
		case !d.named(d.held[open:after]):
			at = after
			continue
		}
		from, to, whole := value(d.held, after)
		if !whole {
			if len(d.held)-open < maxAddress {
				return d.write(open)
			}
			return d.shorten(after, from)
		}
		at = 0
		var address string
		if json.Unmarshal(d.held[from:to], &address) != nil || address == "" {
			if err := d.write(after); err != nil {
				return err
			}
			continue
		}
		by := []byte("null")
		if there := d.leads(address); there != "" {
			by, _ = json.Marshal(there) // a string never fails
		}
		rest := bytes.Clone(d.held[to:])
		d.held = append(d.held[:from], by...)
		if err := d.write(len(d.held)); err != nil {
			return err
		}
		d.held = rest
	}
}

// short reports whether a string is short enough to be one of the names. An escape takes six
// bytes for one.
func (d *readdresser) short(text []byte) bool {
	return slices.ContainsFunc(d.names, func(name string) bool { return len(text) <= 6*len(name)+len(`""`) })
}

// named reports whether a string, with its quotes, is one of the names.
func (d *readdresser) named(text []byte) bool {
	name := text[1 : len(text)-1]
	if bytes.IndexByte(name, '\\') < 0 {
		return slices.ContainsFunc(d.names, func(n string) bool { return n == string(name) })
	}
	var plain string
	return d.short(text) && json.Unmarshal(text, &plain) == nil && slices.Contains(d.names, plain)
}

// shorten handles a value that is too long to hold back, of a member whose name ends at an
// offset: it drops white space, and replaces a URL with null.
func (d *readdresser) shorten(named, from int) error {
	if from == len(d.held) {
		colon := slices.DeleteFunc(d.held[named:], func(c byte) bool { return c != ':' })
		d.held = d.held[:named+len(colon)]
		return nil
	}
	d.begin(d.held[from+1:], true)
	d.held = append(d.held[:from], "null"...)
	return d.write(len(d.held))
}

// write writes the first n held bytes.
func (d *readdresser) write(n int) error {
	if n <= 0 {
		return nil
	}
	_, err := d.w.Write(d.held[:n])
	d.held = append(d.held[:0], d.held[n:]...)
	return err
}

// value finds the string value of a member whose name ends at an offset. whole is false when
// more bytes are needed. The value is empty if it is not a string.
func value(b []byte, at int) (from, to int, whole bool) {
	colon := false
	for ; at < len(b); at++ {
		switch c := b[at]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		case c == ':' && !colon:
			colon = true
		case c != '"' || !colon:
			return at, at, true
		default:
			if end := pastText(b, at); end >= 0 {
				return at, end, true
			}
			return at, at, false
		}
	}
	return at, at, false
}

// pastText returns the offset after the string that begins at an offset; -1 when its end is
// missing.
func pastText(b []byte, at int) int {
	for at++; at < len(b); at++ {
		switch b[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return -1
}
