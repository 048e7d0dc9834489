package collect

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/headway-go/headway/transport"
)

// withheld is an error whose own words may quote what the provider sent: a
// header, a line of a body. Those words go into no log, event or store; the
// cause stays matchable.
type withheld struct {
	what  string
	cause error
}

func (w *withheld) Error() string { return w.what }
func (w *withheld) Unwrap() error { return w.cause }

// spoken are errors whose text, and that of what net/http wraps around them,
// holds nothing of a response.
var spoken = []error{
	errRedirect, errRedirectLoop, transport.ErrTooLarge, transport.ErrResent,
	context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
	gzip.ErrHeader, gzip.ErrChecksum,
}

// plain are beginnings of texts of net/http that hold nothing of a response.
var plain = []string{
	"net/http: server response headers exceeded ",
	"http: server closed idle connection",
	"http2: timeout awaiting response headers",
	"stream error: ",
}

// tellable is the error as it may be told. net/http quotes what it could not
// parse, so an error passes only when it is known not to.
func tellable(err error) error {
	if transport.IsWrongScheme(err) {
		what := errSpeaksTLS
		if errors.Is(err, http.ErrSchemeMismatch) {
			what = errSpeaksPlain
		}
		return &withheld{what: what.Error(), cause: err}
	}
	for _, e := range spoken {
		if errors.Is(err, e) {
			return err
		}
	}
	if transport.IsTLS(err) {
		return err
	}
	_, network := errors.AsType[*net.OpError](err)
	_, name := errors.AsType[*net.DNSError](err)
	_, system := errors.AsType[syscall.Errno](err)
	_, packed := errors.AsType[flate.CorruptInputError](err)
	if network || name || system || packed {
		return err
	}
	text := err.Error()
	for _, beginning := range plain {
		if strings.HasPrefix(text, beginning) {
			return err
		}
	}
	what := "what came was not HTTP as it should be, and is not shown: it may hold what the provider sent"
	if strings.Contains(text, "http2: server sent GOAWAY") {
		what = "the provider ended the connection before it had answered (GOAWAY)"
	}
	return &withheld{what: what, cause: err}
}
