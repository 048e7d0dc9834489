package dataverse

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

// bulk handles CreateMultiple, UpdateMultiple and UpsertMultiple.
func (p port) bulk(in *request) {
	set, action := in.r.PathValue("set"), in.r.PathValue("action")
	op, known := actions[action]
	if !known || !plain(set) {
		p.nowhere(in)
		return
	}
	rows, err := p.api.targets(set, in.body)
	switch {
	case err != nil:
		refuse(in.w, malformed(err), nil)
		return
	case len(rows) > p.api.opt.MaxRows:
		tooLarge(in.w)
		return
	}
	v, b, ok := p.run(in, set, op, rows)
	if !ok {
		return
	}
	defer v.Leave()
	switch {
	case b.failed >= 0 && p.api.opt.Tables == Elastic && len(rows) > 1:
		first := b.rows[b.failed].problem
		first.status = http.StatusBadRequest
		var each map[string]string
		if annotated(in.r.Header) {
			each = rowsOf(b.rows)
		}
		refuse(v, first, each)
	case b.failed >= 0:
		o := b.rows[b.failed].problem
		o.message += fmt.Sprintf(" (Targets[%d])", b.failed)
		refuse(v, o, nil)
	case op != create:
		v.WriteHeader(http.StatusNoContent)
	default:
		ids := make([]string, len(b.rows))
		for i, o := range b.rows {
			ids[i] = o.id.String()
		}
		send(v, http.StatusOK, map[string]any{
			"@odata.context": origin(in.r) + "$metadata#" + namespace + "CreateMultipleResponse", "Ids": ids,
		})
	}
}

// create creates one row.
func (p port) create(in *request) {
	set := in.r.PathValue("set")
	if !plain(set) {
		p.nowhere(in)
		return
	}
	fields, err := in.fields()
	if err != nil {
		refuse(in.w, malformed(err), nil)
		return
	}
	r, err := p.api.row(set, strings.TrimSuffix(set, "s")+"id", fields)
	if err != nil {
		refuse(in.w, malformed(fmt.Errorf("the row %w", err)), nil)
		return
	}
	p.one(in, set, create, r)
}

// patch updates or upserts one row.
func (p port) patch(in *request) {
	set, id, err := reference(in.r.PathValue("entity"))
	if err != nil || !plain(set) {
		p.nowhere(in)
		return
	}
	fields, err := in.fields()
	if err != nil {
		refuse(in.w, malformed(err), nil)
		return
	}
	delete(fields, "@odata.id") // the path has it
	r, err := p.api.row(set, "", fields)
	if err != nil {
		refuse(in.w, malformed(fmt.Errorf("the row %w", err)), nil)
		return
	}
	r.id, r.named, r.byKey = id, true, strings.Contains(in.r.PathValue("entity"), "=")
	r.fails = p.api.fails(&r)
	op := upsert
	if in.r.Header.Get("If-Match") == "*" {
		op = update
	}
	p.one(in, set, op, r)
}

// one writes a single row and responds.
func (p port) one(in *request, set string, op operation, r row) {
	v, b, ok := p.run(in, set, op, []row{r})
	if !ok {
		return
	}
	defer v.Leave()
	if b.failed >= 0 {
		refuse(v, b.rows[0].problem, nil)
		return
	}
	v.Header().Set("Odata-Entityid", origin(in.r)+set+"("+b.rows[0].id.String()+")")
	v.WriteHeader(http.StatusNoContent)
}

// run takes rows through the limits, executes and writes them. ok is false if it has
// responded, or the client has disconnected.
func (p port) run(in *request, set string, op operation, rows []row) (v *serve.Visit, b batch, ok bool) {
	v, gone, ok := p.enter(in, len(rows))
	if !ok {
		return nil, b, false
	}
	b, ok = p.api.write(in, set, op, rows)
	v.Wrote(b.written)
	p.leave(in, v)
	switch {
	case gone:
		v.Leave()
	case !ok:
		refuse(v, notFound(set), nil)
		v.Leave()
	case b.cut:
		v.Cut()
	case b.garbled:
		v.Header().Set("Content-Type", "text/html")
		v.WriteHeader(http.StatusOK)
		_, _ = v.Write([]byte("<html><body>this is not JSON")) // the client may have disconnected
		v.Leave()
	default:
		return v, b, true
	}
	return nil, b, false
}

// read responds with one row.
func (p port) read(in *request) {
	set, id, err := reference(in.r.PathValue("entity"))
	if err != nil || !plain(set) {
		p.nowhere(in)
		return
	}
	v, gone, ok := p.enter(in, 1)
	if !ok {
		return
	}
	defer v.Leave()
	p.api.mu.Lock()
	var sum uint64
	var held bool
	if t := p.api.tables[set]; t != nil {
		sum, held = t.rows[id]
	}
	p.api.mu.Unlock()
	p.leave(in, v)
	switch {
	case gone:
	case !held:
		refuse(v, problem{http.StatusNotFound, codeNoRow, fmt.Sprintf("Entity of %s With Id = %s Does Not Exist", set, id)}, nil)
	default:
		send(v, http.StatusOK, map[string]string{
			"@odata.context": origin(in.r) + "$metadata#" + set + "/$entity",
			"@odata.id":      set + "(" + id.String() + ")",
			"@odata.etag":    fmt.Sprintf(`W/"%016x"`, sum),
		})
	}
}

// count responds with the number of rows of a set.
func (p port) count(in *request) {
	set := in.r.PathValue("set")
	if in.r.PathValue("action") != "$count" || !plain(set) {
		p.nowhere(in)
		return
	}
	v, gone, ok := p.enter(in, 1)
	if !ok {
		return
	}
	defer v.Leave()
	p.api.mu.Lock()
	n := 0
	if t := p.api.tables[set]; t != nil {
		n = len(t.rows)
	}
	p.api.mu.Unlock()
	p.leave(in, v)
	if gone {
		return
	}
	v.Header().Set("Content-Type", "text/plain")
	_, _ = v.Write([]byte(strconv.Itoa(n))) // the client may have disconnected
}

// plain reports whether a text can be a set's name.
func plain(set string) bool {
	return set != "" && len(set) <= 128 && strings.IndexFunc(set, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '_'
	}) < 0
}

// origin returns the prefix of the environment's URLs.
func origin(r *http.Request) string {
	return "http://" + r.Host + "/api/data/" + r.PathValue("version") + "/"
}

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

// problem is an error in OData's format.
type problem struct {
	status        int
	code, message string
}

// details is the annotation with the status of each row.
const details = "@Microsoft.PowerApps.CDS.ErrorDetails.Plugin.BulkApiErrorDetails"

// refuse responds with an error, and with annotations if there are any.
func refuse(w http.ResponseWriter, p problem, annotations map[string]string) {
	body := map[string]string{"code": p.code, "message": p.message}
	maps.Copy(body, annotations)
	send(w, p.status, map[string]any{"error": body})
}

func send(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("dataverse: " + err.Error()) // texts and numbers can always be encoded
	}
	w.Header().Set("Content-Type", "application/json; odata.metadata=minimal")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have disconnected
}

func notFound(segment string) problem {
	return problem{http.StatusNotFound, codeNoResource, fmt.Sprintf("Resource not found for the segment '%s'.", segment)}
}

// malformed returns the error for an unreadable body.
func malformed(err error) problem {
	return problem{http.StatusBadRequest, codePayload, "Error identified in Payload provided by the user for Entity :'', InnerException : " + err.Error()}
}

// rowsOf returns the annotation about the rows of an elastic table.
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
		panic("dataverse: " + err.Error()) // texts and numbers can always be encoded
	}
	return map[string]string{details: string(text)}
}

// annotated reports whether a request asks for annotations about errors.
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

// throttled returns the error for a refusal by a limit, with unscaled times.
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

// grouped formats a number with commas.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
