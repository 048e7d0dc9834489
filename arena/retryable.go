package arena

import (
	"net/http"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/headway-go/headway/internal/sim/scenario"
)

func retryable() Rival {
	return Rival{
		Name: "retryablehttp", Origin: OwnCode, Module: "github.com/hashicorp/go-retryablehttp",
		Configuration: "`NewClient` with its defaults: 4 retries, backoff from 1 s to 30 s, honours Retry-After; no pacing",
		New: func(_ *scenario.Scenario, wire http.RoundTripper) Sender {
			c := retryablehttp.NewClient()
			c.Logger = nil
			c.HTTPClient = &http.Client{Transport: wire}
			return retryableSender{c}
		},
	}
}

type retryableSender struct{ client *retryablehttp.Client }

// Send wraps the request as the library wants it.
func (r retryableSender) Send(req *http.Request) (*http.Response, error) {
	wrapped, err := retryablehttp.FromRequest(req)
	if err != nil {
		return nil, err
	}
	return r.client.Do(wrapped)
}
