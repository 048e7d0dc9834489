package dataverse_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/dataverse"
)

// environment is one that is asked without a network, for bubbles too.
type environment struct {
	*dataverse.API
	*serve.Server
	t testing.TB
}

// quick has no limits, and takes no time.
const quick = "name: quick\nprovider: {latency: {p50: 2us, uplink_p50: 1us, uplink_p99: 1us}}\n"

// environ starts one: with the built-in scenario where none is given.
func environ(t testing.TB, yaml string, opt dataverse.Options, log io.Writer) *environment {
	t.Helper()
	api, err := dataverse.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	s := api.Scenario()
	if yaml != "" {
		if s, err = scenario.Parse("test.yaml", []byte(yaml)); err != nil {
			t.Fatal(err)
		}
	}
	server, err := serve.New(s, serve.Options{APIs: []serve.API{api}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return &environment{api, server, t}
}

// instant is an environment of batches that take no time.
func instant(t testing.TB, opt dataverse.Options) *environment {
	opt.Overhead, opt.RowTime = -1, -1
	return environ(t, quick, opt, nil)
}

// ask makes one request, of the Web API where the path does not begin with a slash; the header is of names and values.
func (e *environment) ask(user, method, path, body string, header ...string) *httptest.ResponseRecorder {
	e.t.Helper()
	if !strings.HasPrefix(path, "/") {
		path = "/api/data/v9.2/" + path
	}
	r := httptest.NewRequestWithContext(e.t.Context(), method, path, strings.NewReader(body))
	if user != "" {
		r.Header.Set("Authorization", "Bearer "+user)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				w.Code = 0 // it was cut
			}
		}()
		e.ServeHTTP(w, r)
	}()
	return w
}

// bulk sends rows to contacts; each is its fields, without braces.
func (e *environment) bulk(action string, rows ...string) *httptest.ResponseRecorder {
	e.t.Helper()
	return e.ask("ann", http.MethodPost, "contacts/Microsoft.Dynamics.CRM."+action, targets(rows...), "Prefer", `odata.include-annotations="*"`)
}

func targets(rows ...string) string {
	for i, r := range rows {
		rows[i] = `{"@odata.type":"Microsoft.Dynamics.CRM.contact"` + strings.TrimRight(","+r, ",") + "}"
	}
	return `{"Targets":[` + strings.Join(rows, ",") + `]}`
}

// contacts is what the set holds.
func (e *environment) contacts() dataverse.SetCounts { return e.Standing().Sets["contacts"] }

// fault is the code and message of an error, and the annotation about rows.
func fault(t testing.TB, w *httptest.ResponseRecorder) (code, message, rows string) {
	t.Helper()
	var body struct{ Error map[string]string }
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%d %q is not an error of OData: %v", w.Code, w.Body, err)
	}
	return body.Error["code"], body.Error["message"], body.Error["@Microsoft.PowerApps.CDS.ErrorDetails.Plugin.BulkApiErrorDetails"]
}

// want checks a status.
func want(t testing.TB, what string, w *httptest.ResponseRecorder, status int) {
	t.Helper()
	if w.Code != status {
		t.Errorf("%s: status %d %s, want %d", what, w.Code, w.Body, status)
	}
}
