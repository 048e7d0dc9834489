package dataverse

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

// Dataverse's codes.
const (
	codeRequests   = "0x80072322" // -2147015902
	codeExecution  = "0x80072321" // -2147015903
	codeConcurrent = "0x80072326" // -2147015898
	codeNoMember   = "0x80072560"
	codePrivilege  = "0x80040220"
	codeNoResource = "0x8006088a"
	codePayload    = "0x80048d19"
	codeTooLong    = "0x80044331"
	codeKeyHeld    = "0x80060892"
	codeHeld       = "0x80040237"
	codeNoKey      = "0x80060891"
	codeNoRow      = "0x80040217"
	codeUnexpected = "0x80040216"
)

// problem is an error as OData has it.
type problem struct {
	status        int
	code, message string
}

// details is the annotation with the status of each row.
const details = "@Microsoft.PowerApps.CDS.ErrorDetails.Plugin.BulkApiErrorDetails"

// refuse answers with an error, and with annotations where there are some.
func refuse(w http.ResponseWriter, p problem, annotations map[string]string) {
	body := map[string]string{"code": p.code, "message": p.message}
	maps.Copy(body, annotations)
	send(w, p.status, map[string]any{"error": body})
}

func send(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("dataverse: " + err.Error()) // texts and numbers always can be
	}
	w.Header().Set("Content-Type", "application/json; odata.metadata=minimal")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone away
}

func notFound(segment string) problem {
	return problem{http.StatusNotFound, codeNoResource, fmt.Sprintf("Resource not found for the segment '%s'.", segment)}
}

// malformed is a body that cannot be read.
func malformed(err error) problem {
	return problem{http.StatusBadRequest, codePayload, "Error identified in Payload provided by the user for Entity :'', InnerException : " + err.Error()}
}

// rowsOf is the annotation about the rows of an elastic table.
func rowsOf(rows []outcome) map[string]string {
	type detail struct {
		RequestIndex int
		ID           string `json:"Id"`
		StatusCode   int
	}
	list := make([]detail, len(rows))
	for i, o := range rows {
		list[i] = detail{i, o.id.String(), o.status}
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic("dataverse: " + err.Error()) // texts and numbers always can be
	}
	return map[string]string{details: string(text)}
}

// annotated says whether a request prefers annotations about errors.
func annotated(h http.Header) bool {
	for _, line := range h.Values("Prefer") {
		_, wanted, ok := strings.Cut(line, "odata.include-annotations=")
		wanted = strings.TrimPrefix(wanted, `"`)
		if ok && (strings.HasPrefix(wanted, "*") || strings.Contains(wanted, "Microsoft.PowerApps.CDS.ErrorDetails.")) {
			return true
		}
	}
	return false
}

// throttled words the refusal by a limit, in times unscaled.
func throttled(q *serve.Quota, scale float64) problem {
	window := 300.0
	if q.Window > 0 {
		window = q.Window.Seconds() * scale
	}
	p := problem{status: http.StatusTooManyRequests}
	switch q.Kind {
	case scenario.Concurrency:
		p.code, p.message = codeConcurrent, fmt.Sprintf("Number of concurrent requests exceeded the limit of %.0f.", q.Limit)
	case scenario.BusyTime:
		p.code, p.message = codeExecution, fmt.Sprintf("Combined execution time of incoming requests exceeded limit of %s milliseconds over time window of %.0f seconds. "+
			"Decrease number of concurrent requests or reduce the duration of requests and try again later.", grouped(int64(q.Limit*scale*1000+0.5)), window)
	case scenario.TokenBucket, scenario.FixedWindow, scenario.SlidingWindow, scenario.CostWindow, scenario.Slowdown:
		p.code, p.message = codeRequests, fmt.Sprintf("Number of requests exceeded the limit of %.0f over time window of %.0f seconds.", q.Limit, window)
	}
	return p
}

// grouped writes a number with commas.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
