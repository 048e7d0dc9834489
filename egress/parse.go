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

// parsed is the result of the stage parse.
type parsed struct {
	asked  provider.Call
	body   []byte // set if it was read before sending
	plain  []byte // the body, decompressed
	whole  bool   // the body was read before sending, and can be sent again
	upload upload // of a body that is streamed
}

// parse finds out what the call asks for. It reads the body of a call that may cost tokens,
// bounded in size and time. Any other body is streamed.
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
		key.Models = nil // listing and the like need no model
	}
	key.Uploads = key.Uploads && asked.Files // a call that runs a model must name it
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

// path returns the rest of the path, decoded.
func (c *call) path() string {
	path, err := url.PathUnescape(c.rest)
	if err != nil {
		return c.rest // cannot happen: net/http has decoded the path before
	}
	return path
}

// readFirst reports whether the body must be read before it is sent: when it is JSON or may
// be, or when the call costs tokens whatever its content type. For a call that costs no
// tokens, that is so only if it may be retried or the provider's profile reads the body.
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
	asked, _ := c.up.Description.Call(c.r.Method, c.path(), nil) // metered calls alone give an error
	return asked.Metered
}

// mediaType returns a content type without its parameters; "" when it is invalid.
func mediaType(v string) string {
	if v == "application/json" || v == "text/event-stream" {
		return v // the usual value: nothing to parse
	}
	kind, _, _ := mime.ParseMediaType(v)
	return kind
}

// readBody reads the whole body.
func (c *call) readBody() *provider.Refusal {
	if c.r.Body == nil || c.r.Body == http.NoBody {
		return nil
	}
	// Allocate little for a Content-Length, which costs a client nothing to claim.
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
	// net/http cancels the context after a deadline too.
	if c.r.Context().Err() != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return &provider.Refusal{Status: statusClientGone, Reason: reason.Canceled}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return new(incomplete(http.StatusRequestTimeout))
	}
	return new(incomplete(http.StatusBadRequest))
}

// inflate decompresses a body. It returns nil when that fails or the result exceeds the bound
// of bodies.
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
