package collect

import (
	"errors"
	"net/http"

	"github.com/headway-go/headway/connector"
)

// What a base URL with the wrong scheme looks like from here.
var (
	errSpeaksTLS   = errors.New("the provider speaks https here and not http: base_url has the wrong scheme or port")
	errSpeaksPlain = errors.New("the provider speaks http here and not https: base_url has the wrong scheme or port")
)

// plainToTLS reports whether a response says that its port speaks TLS alone.
func plainToTLS(res *http.Response, body []byte) bool {
	return res.Request != nil && res.Request.URL.Scheme == "http" && connector.SpeaksTLS(res.StatusCode, body)
}
