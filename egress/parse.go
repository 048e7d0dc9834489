package egress

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/reason"
)

// parsed is what a call asks for.
type parsed struct {
	asked  provider.Call
	body   []byte // of a call that was read first
	plain  []byte // the body, or what it holds when it is compressed
	whole  bool   // the body was read first, and can be sent again
	upload upload // of a body that is streamed
}

// parse finds out what the call asks for. The body of one that may cost tokens
// is read first, bounded in size and time; any other is streamed.
func (c *call) parse() *provider.Refusal {
	r, d := c.r, &c.up.Description
	bound := c.up.MaxUpload
	if c.whole = r.Body == nil || r.Body == http.NoBody || c.readFirst(); c.whole {
		bound = c.up.MaxBody
	}
	if r.ContentLength > bound {
		return oversized(bound)
	}
	if c.whole {
		if fault := c.readBody(); fault != nil {
			return fault
		}
	}
	c.hasBody()
	c.plain = c.body
	unread := false
	if d.API != provider.HTTP && encoded(r.Header) {
		var fault *provider.Refusal
		if c.plain, fault = c.inflate(); fault != nil {
			return fault
		}
		unread = c.plain == nil
	}
	asked, err := d.Call(r.Method, c.path(), c.plain)
	if unread && asked.Metered {
		return &provider.Refusal{
			Status: http.StatusUnsupportedMediaType, Reason: reason.ClientError, RetryIn: noRetry,
			Message: "The body cannot be read: a call that costs tokens may be compressed with gzip only.",
		}
	}
	if err != nil {
		return invalid("The body is not what this call takes: " + err.Error() + ".")
	}
	c.asked = asked
	c.log.Model, c.log.Metered, c.log.Streamed = clip(asked.Model), asked.Metered, asked.Stream
	key := c.key
	if asked.Model == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		key.Models = nil // looking around needs no model
	}
	key.Uploads = key.Uploads && asked.Files // what runs a model has to name it
	if key.Permit(c.up.Name, asked.Model) != nil {
		return forbidden("The key may not use this provider or model.")
	}
	c.log.Budget = asked.Model
	if asked.Metered && c.up.Models != nil {
		if c.log.Budget = c.up.Models(asked.Model); c.log.Budget == "" {
			return unconfigured()
		}
	}
	return nil
}

// path is the rest of the path, decoded.
func (c *call) path() string {
	path, err := url.PathUnescape(c.rest)
	if err != nil {
		return c.rest // net/http has decoded it before, so this does not happen
	}
	return path
}

// readFirst reports whether the body has to be known before it is sent: when it
// is JSON, or may be, or when the call costs tokens whatever the client calls it.
// What costs nothing but a call only has to be known when it may be sent again, or the
// provider's profile looks into it.
func (c *call) readFirst() bool {
	if c.up.Description.API == provider.HTTP {
		resent := c.up.MaxBody
		switch {
		case c.up.Retries > 0:
		case c.up.ring != nil:
			resent = min(resent, maxProfiled)
		default:
			return c.profiles()
		}
		return 0 <= c.r.ContentLength && c.r.ContentLength <= resent
	}
	kind := mediaType(c.r.Header.Get("Content-Type"))
	if kind == "" || kind == "application/json" || strings.HasSuffix(kind, "+json") || strings.HasPrefix(kind, "text/") {
		return true
	}
	asked, _ := c.up.Description.Call(c.r.Method, c.path(), nil) // an error is for a metered one
	return asked.Metered
}

// mediaType is a content type without its parameters; "" when it cannot be read.
func mediaType(v string) string {
	if v == "application/json" || v == "text/event-stream" {
		return v // as nearly all are: nothing to parse
	}
	kind, _, _ := mime.ParseMediaType(v)
	return kind
}

// readBody reads the body whole.
func (c *call) readBody() *provider.Refusal {
	if c.r.Body == nil || c.r.Body == http.NoBody {
		return nil
	}
	// A client's word is believed only up to a little: it costs the client nothing.
	const trust = 64 << 10
	var b bytes.Buffer
	b.Grow(int(min(max(c.r.ContentLength, 0), trust)) + bytes.MinRead)
	_, err := b.ReadFrom(http.MaxBytesReader(c.w, c.r.Body, c.up.MaxBody))
	if err == nil {
		c.body = b.Bytes()
		return nil
	}
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return oversized(c.up.MaxBody)
	}
	if c.proxy.cutting.Err() != nil {
		return new(drained())
	}
	// net/http ends the context after a deadline too.
	if c.r.Context().Err() != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return &provider.Refusal{Status: statusClientGone, Reason: reason.Canceled}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return new(incomplete(http.StatusRequestTimeout))
	}
	return new(incomplete(http.StatusBadRequest))
}

// inflate gives what a compressed body holds, nil when it cannot be read. The
// bound of bodies holds for it too.
func (c *call) inflate() ([]byte, *provider.Refusal) {
	if !strings.EqualFold(strings.TrimSpace(c.r.Header.Get("Content-Encoding")), "gzip") || len(c.r.Header["Content-Encoding"]) > 1 {
		return nil, nil
	}
	from, err := gzip.NewReader(bytes.NewReader(c.body))
	if err != nil {
		return nil, nil
	}
	plain, err := io.ReadAll(io.LimitReader(from, c.up.MaxBody+1))
	if err != nil {
		return nil, nil
	}
	if int64(len(plain)) > c.up.MaxBody {
		return nil, oversized(c.up.MaxBody)
	}
	return plain, nil
}

// encoded reports whether a body is compressed.
func encoded(h http.Header) bool {
	v := h.Get("Content-Encoding")
	return v != "" && !strings.EqualFold(v, "identity")
}
