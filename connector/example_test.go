package connector_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

func ExampleFailure() {
	f := &connector.Failure{
		Method: http.MethodGet, Path: "/items/{key}", Status: 503,
		Reason: reason.UpstreamPressure.Reason(), Stopped: reason.RetryBudget.Reason(),
	}
	fmt.Println(f)
	// Output:
	// GET /items/{key}: 503 upstream_pressure (not retried: retry_budget)
}

func ExampleInvalid() {
	req := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/items"}}
	f := connector.Invalid(req, &connector.Response{Status: 200}, errors.New("expected a list"))
	fmt.Println(f)
	// Output:
	// GET /items: 200 invalid_response: expected a list
}
