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

// addressFields are the response headers that hold one address which a client
// may follow with its credential.
var addressFields = [...]string{"Location", "Content-Location", "X-Goog-Upload-Url", "X-Goog-Upload-Control-Url", "Operation-Location", "Azure-Asyncoperation"}

// leads gives where an address in an answer leads through the proxy, as a path
// with its query; "" when it leads anywhere else. Some providers name their own
// host whatever the upstream is called here.
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

// here is the address by which the client reached the proxy, without a path.
func (c *call) here() string {
	scheme := "http://"
	if c.r.TLS != nil || strings.EqualFold(c.r.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "https://"
	}
	return scheme + c.r.Host
}

// relocate turns a Location of the upstream into one that leads through the
// proxy. It is "" when it leads anywhere else: whoever followed it would be past
// the quota, with whatever credential it holds.
//
// Parameters in which a key may stand are left out of its query.
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

// readdress has the addresses in an answer's header lead through the proxy. Those
// that lead elsewhere are taken out: a client that follows one would show its
// Headway key there.
func (c *call) readdress(h http.Header, asked *url.URL) {
	for _, name := range addressFields {
		v := h.Get(name)
		if v == "" {
			continue
		}
		h.Del(name)
		to := c.leads(v, asked)
		if to != "" && !strings.HasSuffix(name, "Location") {
			to = c.here() + to // what reads them takes an absolute URL
		}
		if to != "" {
			h.Set(name, to)
		}
	}
	lines := h["Link"]
	if len(lines) == 0 {
		return
	}
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
		// Parameters go on to the next link, which begins after a comma; one in a
		// quoted text does not.
		next, quoted := len(rest), false
		for i := range len(rest) {
			if rest[i] == '"' {
				quoted = !quoted
			}
			if rest[i] == ',' && !quoted {
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

// maxAddress is about the longest address in a body, in bytes.
const maxAddress = 8 << 10

// readdresser passes a JSON body on and has the addresses that its members of
// some names hold lead through the proxy. One that leads elsewhere, or is too long
// to be held back, becomes null.
type readdresser struct {
	w     io.Writer
	names [][]byte // with their quotes
	leads func(address string) string
	held  []byte
	// The rest of an address that is too long is left out; escaped says that a
	// backslash came last.
	skipping, escaped bool
}

func (d *readdresser) Write(p []byte) (int, error) {
	d.held = append(d.held, d.skip(p)...)
	return len(p), d.pass(false)
}

// skip gives what follows the text that is left out, if one is.
func (d *readdresser) skip(p []byte) []byte {
	if !d.skipping {
		return p
	}
	for i, c := range p {
		switch {
		case d.escaped:
			d.escaped = false
		case c == '\\':
			d.escaped = true
		case c == '"':
			d.skipping = false
			return p[i+1:]
		}
	}
	return nil
}

// Close writes what is held back.
func (d *readdresser) Close() error { return d.pass(true) }

// pass writes what is certain; at the end everything.
func (d *readdresser) pass(end bool) error {
	for {
		at, name := -1, []byte(nil)
		for _, n := range d.names {
			if i := bytes.Index(d.held, n); i >= 0 && (at < 0 || i < at) {
				at, name = i, n
			}
		}
		if at < 0 {
			keep := 0
			for _, n := range d.names { // a name may have begun
				keep = max(keep, min(len(n)-1, len(d.held)))
			}
			if end {
				keep = 0
			}
			return d.write(len(d.held) - keep)
		}
		from, to, whole := value(d.held, at+len(name))
		if !whole && !end {
			if len(d.held)-at < maxAddress {
				return d.write(at)
			}
			return d.shorten(at+len(name), from)
		}
		var address string
		if !whole || json.Unmarshal(d.held[from:to], &address) != nil || address == "" {
			if err := d.write(at + len(name)); err != nil {
				return err
			}
			continue
		}
		by := []byte("null")
		if there := d.leads(address); there != "" {
			by, _ = json.Marshal(there) // a text always can be
		}
		rest := bytes.Clone(d.held[to:])
		d.held = append(d.held[:from], by...)
		if err := d.write(len(d.held)); err != nil {
			return err
		}
		d.held = rest
	}
}

// shorten deals with the value of a member, whose name ends at an offset, that goes
// on for too long: blanks are left out, and an address, begun there, becomes null.
func (d *readdresser) shorten(named, from int) error {
	if from == len(d.held) {
		colon := slices.DeleteFunc(d.held[named:], func(c byte) bool { return c != ':' })
		d.held = d.held[:named+len(colon)]
		return nil
	}
	begun := d.held[from+1:]
	d.skipping, d.escaped = true, false
	d.skip(begun)
	d.held = append(d.held[:from], "null"...)
	return d.write(len(d.held))
}

// write passes the first n bytes on.
func (d *readdresser) write(n int) error {
	if n <= 0 {
		return nil
	}
	_, err := d.w.Write(d.held[:n])
	d.held = append(d.held[:0], d.held[n:]...)
	return err
}

// value finds the text that is the value of a member whose name ends at an
// offset. It is not whole when more bytes are needed to say; what is not text is
// empty.
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
			for i := at + 1; i < len(b); i++ {
				switch b[i] {
				case '\\':
					i++
				case '"':
					return at, i + 1, true
				}
			}
			return at, at, false
		}
	}
	return at, at, false
}
