package collect

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-go/headway/transport"
)

func TestOnlyErrorsThatQuoteNothingAreTold(t *testing.T) {
	const secret = "canary-4711"
	broken := "net/http: HTTP/1.x transport connection broken: "
	for _, c := range []struct {
		err  error
		told bool
	}{
		{fmt.Errorf("transport: reading the body of a 200 after 3 bytes: %w", io.ErrUnexpectedEOF), true},
		{fmt.Errorf("%w: a 200 with more than 4 bytes", transport.ErrTooLarge), true},
		{&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, true},
		{errors.New("net/http: server response headers exceeded 10485760 bytes; aborted"), true},
		{fmt.Errorf(broken+"malformed MIME header: missing colon: %q", secret), false},
		{fmt.Errorf("http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=%q", secret), false},
		{errors.New(secret), false},
	} {
		got := tellable(c.err)
		if strings.Contains(got.Error(), secret) || c.told && got.Error() != c.err.Error() || !c.told && got.Error() == c.err.Error() {
			t.Errorf("of %q is told: %q", c.err, got)
		}
		if !errors.Is(got, c.err) {
			t.Errorf("the cause of %q no longer matches", c.err)
		}
	}
}
