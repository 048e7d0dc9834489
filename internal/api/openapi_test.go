package api_test

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/samples"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

// described loads the document as it is served. Strict closes every schema, so
// that a member that is not described does not pass.
func described(t *testing.T, strict bool) *openapi3.T {
	t.Helper()
	served := newWorld(t, nil).do("GET", "/v1/openapi.json", "", "").Body.Bytes()
	if strict {
		var tree any
		if err := json.Unmarshal(served, &tree); err != nil {
			t.Fatal(err)
		}
		seal(tree)
		var err error
		if served, err = json.Marshal(tree); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := openapi3.NewLoader().LoadFromData(served)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func seal(tree any) {
	switch node := tree.(type) {
	case map[string]any:
		if _, ok := node["properties"].(map[string]any); ok && node["type"] == "object" {
			node["additionalProperties"] = false
		}
		for _, below := range node {
			seal(below)
		}
	case []any:
		for _, below := range node {
			seal(below)
		}
	}
}

func TestTheDocumentIsValidOpenAPI31(t *testing.T) {
	doc := described(t, false)
	if !doc.IsOpenAPI31OrLater() {
		t.Errorf("version %q", doc.OpenAPI)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEveryRouteIsDescribedAndEveryDescribedRouteExists(t *testing.T) {
	doc := described(t, false)
	var want []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			want = append(want, method+" "+path)
		}
	}
	slices.Sort(want)
	got := newWorld(t, nil).Routes()
	if !slices.Equal(got, want) {
		t.Errorf("routes\n%s\ndescribed\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// checked answers a request and holds request, answer and document together.
type checked struct {
	t      *testing.T
	router routers.Router
	seen   map[string]map[int]bool // operation -> status
}

func newChecked(t *testing.T) *checked {
	t.Helper()
	openapi3filter.RegisterBodyDecoder("text/event-stream", openapi3filter.PlainBodyDecoder)
	router, err := legacy.NewRouter(described(t, true))
	if err != nil {
		t.Fatal(err)
	}
	return &checked{t, router, map[string]map[int]bool{}}
}

// check sends a request; valid says that it is as described.
func (c *checked) check(w http.Handler, r *http.Request, valid bool, status int) *httptest.ResponseRecorder {
	c.t.Helper()
	about := r.Method + " " + r.URL.String()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	route, params, err := c.router.FindRoute(r)
	if err != nil {
		c.t.Fatalf("%s: %v", about, err)
	}
	in := &openapi3filter.RequestValidationInput{
		Request: r, Route: route, PathParams: params,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	if err := openapi3filter.ValidateRequest(c.t.Context(), in); (err == nil) != valid {
		c.t.Errorf("%s: request as described %v, want %v: %v", about, err == nil, valid, err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	if rec.Code != status {
		c.t.Errorf("%s: status %d, want %d: %s", about, rec.Code, status, rec.Body)
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: rec.Code, Header: rec.Header(),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	out.SetBodyBytes(rec.Body.Bytes())
	if err := openapi3filter.ValidateResponse(c.t.Context(), out); err != nil {
		c.t.Errorf("%s: answer %d is not as described: %v\n%s", about, rec.Code, err, rec.Body)
	}
	id := route.Operation.OperationID
	if c.seen[id] == nil {
		c.seen[id] = map[int]bool{}
	}
	c.seen[id][rec.Code] = true
	return rec
}

func TestAnswersOfEveryHandlerAreAsDescribed(t *testing.T) {
	w, c := newWorld(t, nil), newChecked(t)
	ask := func(method, path, key, body string, status int) *httptest.ResponseRecorder {
		t.Helper()
		return c.check(w, request(method, path, key, body), status < 400 || status == 404 || status == 403, status)
	}
	// What the client did wrong by the document, and what it could not know.
	wrong := func(method, path, body string, status int) {
		t.Helper()
		c.check(w, request(method, path, "admin", body), false, status)
	}
	other := func(method, path, key, body string, status int) *httptest.ResponseRecorder {
		t.Helper()
		return c.check(w, request(method, path, key, body), true, status)
	}

	ask("GET", "/v1", "plain", "", 200)
	other("GET", "/v1?x=1", "plain", "", 400)
	a := into[api.Approval](t, ask("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"m","expected_input_tokens":9000,"expected_output_tokens":5,"tenant":"a","agent":"x","reason":"why"}`, 200), 200)
	other("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"m","expected_input_tokens":9000}`, 429)
	ask("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"nobody"}`, 404)
	ask("POST", "/v1/quota/approve", "plain", `{"provider":"nobody","model":"m"}`, 404)
	ask("POST", "/v1/quota/approve", "team-a", `{"model":"m","tenant":"b"}`, 403)
	other("POST", "/v1/quota/approve", "plain", `{"model":"m"}`, 400)
	wrong("POST", "/v1/quota/approve", `{"provider":"openai","model":"m","expected_input_tokens":-1}`, 400)
	wrong("POST", "/v1/quota/approve", `{"provider":"openai","model":"m","brust":1}`, 400)
	other("POST", "/v1/quota/approve", "nobody", `{"model":"m"}`, 401)
	other("POST", "/v1/quota/approve", "busy", `{"model":"m"}`, 429)
	wrong("POST", "/v1/quota/approve", `{"model":"`+strings.Repeat("m", api.MaxBody)+`"}`, 413)
	text := request("POST", "/v1/quota/approve", "plain", `{}`)
	text.Header.Set("Content-Type", "text/plain")
	c.check(w, text, false, 415)

	ask("POST", "/v1/quota/usage", "plain", `{"permit":"`+a.Permit+`","input_tokens":9100,"cached_tokens":10,"output_tokens":7}`, 200)
	other("POST", "/v1/quota/usage", "plain", `{"permit":"`+a.Permit+`","input_tokens":1}`, 409)
	other("POST", "/v1/quota/usage", "team-b", `{"permit":"`+a.Permit+`","cancel":true}`, 410)
	other("POST", "/v1/quota/usage", "plain", `{"permit":"p"}`, 400)

	ask("GET", "/v1/quota/snapshot?provider=openai", "plain", "", 200)
	ask("GET", "/v1/quota/snapshot?provider=nobody", "plain", "", 404)
	other("GET", "/v1/quota/snapshot", "plain", "", 400)
	ask("GET", "/v1/quota/forecast?provider=openai&model=m", "plain", "", 200)
	ask("GET", "/v1/quota/forecast?tenant=b", "team-a", "", 403)
	ask("GET", "/v1/quota/statistics?provider=openai", "admin", "", 200)
	ask("GET", "/v1/quota/statistics", "plain", "", 403)
	ask("GET", "/v1/quota/config?provider=openai", "admin", "", 200)
	ask("GET", "/v1/quota/config?provider=nobody", "admin", "", 404)
	ask("PATCH", "/v1/quota/config?provider=openai", "admin", `{"models":{"m":{"burst":3}},"tenants":{"b":{"agents":{"x":{"callsPerMinute":5}}}}}`, 200)
	other("PATCH", "/v1/quota/config?provider=openai", "admin", `{"models":{"m":{"burst":-3}}}`, 400)
	ask("GET", "/v1/quota/snapshot?provider=openai", "admin", "", 200)
	ask("GET", "/v1/quota/config?provider=openai", "admin", "", 200)

	for _, path := range []string{"/v1/rate", "/v1/connections", "/v1/runs", "/v1/gaps"} {
		ask("GET", path, "admin", "", 200)
		ask("GET", path+"?limit=1", "admin", "", 200)
		ask("GET", path+"?connection=archive", "admin", "", 200)
		wrong("GET", path+"?limit=0", "", 400)
		ask("GET", path, "team-a", "", 403)
	}
	ask("GET", "/v1/gaps?status=all", "admin", "", 200)
	ask("GET", "/v1/calls", "admin", "", 200)
	ask("GET", "/v1/calls?key=ops&model=m&limit=1", "admin", "", 200)
	ask("GET", "/v1/calls", "plain", "", 403)
	wrong("GET", "/v1/calls?limit=0", "", 400)
	ask("GET", "/v1/sparks", "admin", "", 200)
	ask("GET", "/v1/sparks?limit=1&after=a", "admin", "", 200)
	ask("GET", "/v1/sparks", "plain", "", 403)
	ask("GET", "/v1/usage", "admin", "", 200)
	ask("GET", "/v1/usage?by=day,provider,key,tenant,agent,model&from=2026-11-01&to=2026-11-30&limit=1", "admin", "", 200)
	ask("GET", "/v1/usage", "plain", "", 403)
	other("GET", "/v1/usage?by=weather", "admin", "", 400)
	other("GET", "/v1/usage?from=yesterday", "admin", "", 400)
	ask("GET", "/v1/samples?connection=archive", "admin", "", 200)
	ask("GET", "/v1/samples?connection=openai&span=day", "admin", "", 200)
	ask("GET", "/v1/samples?connection=nobody", "admin", "", 404)
	ask("GET", "/v1/samples?connection=archive", "team-a", "", 403)
	wrong("GET", "/v1/samples", "", 400)
	wrong("GET", "/v1/samples?connection=archive&span=year", "", 400)
	ask("GET", "/v1/rate?connection=nobody", "admin", "", 404)
	ask("GET", "/v1/connections?connection=nobody", "admin", "", 404)
	ask("GET", "/v1/runs/r5", "admin", "", 200)
	ask("GET", "/v1/runs/nobody", "admin", "", 404)
	ask("GET", "/v1/gaps/1", "admin", "", 200)
	ask("GET", "/v1/gaps/99", "admin", "", 404)
	wrong("GET", "/v1/gaps/x", "", 400)
	ask("POST", "/v1/gaps", "admin", `{"action":"quarantine","ids":[1,3]}`, 200)
	ask("POST", "/v1/gaps", "admin", `{"action":"retry","connection":"archive","stream":"messages","reason":"server_error"}`, 200)
	ask("POST", "/v1/gaps", "admin", `{"action":"retry","connection":"nobody"}`, 404)
	ask("POST", "/v1/gaps", "team-a", `{"action":"retry","all":true}`, 403)
	other("POST", "/v1/gaps", "admin", `{"action":"retry"}`, 400)
	ask("GET", "/v1/simulator", "admin", "", 200)
	ask("GET", "/v1/simulator?scenario=s", "admin", "", 200)
	ask("GET", "/v1/simulator", "plain", "", 403)
	ask("POST", "/v1/simulator", "admin", `{"source":"name: x","laws":["cycle"],"seed":2}`, 200)
	wrong("POST", "/v1/simulator", `{"source":"name: x","laws":[]}`, 400)
	ask("GET", "/v1/audit", "admin", "", 200)
	ask("GET", "/v1/audit?since=2026-11-01T00:00:00Z&limit=1&after=1", "admin", "", 200)
	wrong("GET", "/v1/audit?since=yesterday", "", 400)
	ask("GET", "/v1/audit", "team-a", "", 403)
	w.reader.fails = context.DeadlineExceeded
	for _, path := range []string{"/v1/rate", "/v1/connections", "/v1/runs", "/v1/gaps", "/v1/runs/r5", "/v1/gaps/1"} {
		other("GET", path, "admin", "", 500)
	}

	ask("GET", "/v1/keys", "admin", "", 200)
	ask("GET", "/v1/keys", "team-a", "", 403)
	ask("POST", "/v1/keys", "admin", `{"id":"new","tenant":"t","models":["m"],"uploads":true,"priority":1,"priority_max":2,"expires":"2999-01-31T00:00:00Z"}`, 200)
	wrong("POST", "/v1/keys", `{"id":"new","hash":"x"}`, 400)
	ask("GET", "/v1/keys", "admin", "", 200)
	ask("DELETE", "/v1/keys/new", "admin", "", 204)
	ask("DELETE", "/v1/keys/new", "admin", "", 404)

	ask("GET", "/v1/fleet", "admin", "", 200)
	ask("GET", "/v1/fleet", "team-a", "", 403)
	ask("GET", "/v1/schedule", "admin", "", 200)
	ask("GET", "/v1/schedule", "team-a", "", 403)
	ask("GET", "/v1/openapi.json", "", "", 200)
	ask("GET", "/healthz", "", "", 200)
	ask("GET", "/readyz", "", "", 200)
	w.notReady = &reason.Refusal{Reason: reason.Closed}
	other("GET", "/readyz", "", "", 503)
	ask("GET", "/metrics", "admin", "", 200)
	other("GET", "/metrics", "", "", 401)
	other("GET", "/v1/events?since="+strings.Repeat("x", 300), "plain", "", 400)
	w.hub.Close() // so that the stream ends
	ask("GET", "/v1/events?type=circuit&type=rate:throttle", "plain", "", 200)

	for path, item := range described(t, false).Paths.Map() {
		for method, op := range item.Operations() {
			seen := c.seen[op.OperationID]
			if !seen[200] && !seen[204] {
				t.Errorf("%s %s was never checked with success", method, path)
			}
			// What has a way to go wrong was seen to do so.
			if op.Responses.Len() > 2 && len(seen) < 2 {
				t.Errorf("%s %s was never checked with a problem", method, path)
			}
		}
	}
}

func TestEveryEventOfTheStreamIsAsDescribed(t *testing.T) {
	schema := described(t, true).Components.Schemas["Entry"].Value
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		for _, kind := range []event.Type{event.CollectionRate, event.Circuit, event.WarmStart, event.Phase, event.Deferral, event.ConnectionChanged, event.Warning, event.RunStart, event.RunEnd} {
			w.hub.Connection(event.Event{
				At: time.Now(), Type: kind, Connection: "chat", Run: "r", Reason: reason.ServerError, Rate: live()[0].Rate, Limits: live()[0].Limits,
				Circuit: &event.Breaker{}, Stream: "s", Phase: "p", Count: 1, Note: "n",
			})
		}
		for range 3 { // the third is refused, and the model comes back later
			w.do("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"m","expected_input_tokens":4000}`)
		}
		var last struct{ Permit string }
		answer := w.do("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"small","expected_input_tokens":100}`)
		if err := json.Unmarshal(answer.Body.Bytes(), &last); err != nil {
			t.Fatal(err)
		}
		w.do("POST", "/v1/quota/usage", "plain", `{"permit":"`+last.Permit+`","input_tokens":100}`)
		w.do("PATCH", "/v1/quota/config?provider=openai", "admin", `{"permitTtlMs":60000}`)
		time.Sleep(time.Minute)
		w.hub.Close()
		seen := map[string]bool{}
		for _, block := range blocks(w.do("GET", "/v1/events?since=another-1", "admin", "").Body.String()) {
			if block["data"] == "" {
				continue
			}
			var v any
			if err := json.Unmarshal([]byte(block["data"]), &v); err != nil {
				t.Fatal(err)
			}
			if err := schema.VisitJSON(v, openapi3.EnableJSONSchema2020()); err != nil {
				t.Errorf("%s: %v", block["data"], err)
			}
			seen[block["event"]] = true
		}
		for _, kind := range []string{"dropped", "collection_rate", "run_end", "rate:throttle", "rate:resume", "rate:denied", "rate:config", "llm:quota_exhausted"} {
			if !seen[kind] {
				t.Errorf("no %s among %v", kind, seen)
			}
		}
	})
}

// blocks are the parts of a stream with their fields; of comments nothing is left.
func blocks(stream string) (all []map[string]string) {
	for block := range strings.SplitSeq(stream, "\n\n") {
		fields := map[string]string{}
		for line := range strings.SplitSeq(block, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok && name != "" {
				fields[name] = value
			}
		}
		if len(fields) > 0 {
			all = append(all, fields)
		}
	}
	return all
}

var _ collect.Reader = (*shelf)(nil)

// answers are what the operations answer with, in Go; nil is what no struct stands for.
var answers = map[string]any{
	"index": api.Index{}, "approve": api.Approval{}, "usage": api.Settled{},
	"snapshot": quota.Snapshot{}, "forecast": []api.Forecast{}, "statistics": governor.Statistics{},
	"config": quota.Config{}, "patchConfig": api.Patched{},
	"keys": []api.IssuedKey{}, "issueKey": api.NewKey{}, "revokeKey": nil,
	"rate": []api.Rate{}, "samples": samples.Series{}, "sparks": []samples.Spark{}, "calls": []calls.Call{}, "used": []calls.Usage{}, "connections": []collect.ConnectionStatus{}, "schedule": []schedule.Status{}, "fleet": []fleet.Credential{},
	"runs": []collect.Run{}, "run": api.Trace{}, "gaps": []collect.Gap{}, "gap": collect.Gap{}, "actOnGaps": api.GapsChanged{}, "audit": []audit.Entry{}, "simulator": api.SimulatorMenu{}, "simulate": api.Simulated{},
	"events": nil, "describe": nil, "health": api.Health{}, "ready": api.Health{}, "metrics": nil,
}

// withheld are members that stores hold and no answer has.
var withheld = []string{"collect.Replay.Stream", "collect.Replay.After"}

// Each member of an answer is described, with its type and whether it may be
// missing, and nothing is described that no answer has.
func TestAnswersAreDescribedAsTheirStructsAre(t *testing.T) {
	doc := described(t, false)
	h := held{t: t, seen: map[reflect.Type]bool{}}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			v, known := answers[op.OperationID]
			if !known {
				t.Errorf("%s %s: no struct is given for %s", method, path, op.OperationID)
			}
			if v == nil {
				continue
			}
			h.value(op.OperationID, op.Responses.Status(200).Value.Content.Get("application/json").Schema, reflect.TypeOf(v))
		}
	}
	h.value("Entry", doc.Components.Schemas["Entry"], reflect.TypeFor[events.Entry]())
	h.value("Problem", doc.Components.Schemas["Problem"], reflect.TypeFor[api.Problem]())
	for _, must := range []reflect.Type{reflect.TypeFor[event.Event](), reflect.TypeFor[collect.Lane](), reflect.TypeFor[quota.Event]()} {
		if !h.seen[must] {
			t.Errorf("%s was not compared", must)
		}
	}
}

// held compares schemas with types.
type held struct {
	t    *testing.T
	seen map[reflect.Type]bool
}

var (
	texts = reflect.TypeFor[encoding.TextMarshaler]()
	jsons = reflect.TypeFor[json.Marshaler]()
)

// value compares the schema of one value with its type.
func (h *held) value(at string, ref *openapi3.SchemaRef, typ reflect.Type) {
	h.t.Helper()
	if ref == nil || ref.Value == nil {
		h.t.Errorf("%s: no schema for %s", at, typ)
		return
	}
	s := ref.Value
	for _, one := range s.OneOf { // a value or null
		if !one.Value.Type.Is("null") {
			s = one.Value
		}
	}
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	is := func(kinds ...string) {
		h.t.Helper()
		if s.Type == nil && (len(s.Enum) > 0 || s.Const != nil) {
			return
		}
		if !slices.ContainsFunc(kinds, s.Type.Includes) {
			h.t.Errorf("%s: described as %v, and is %s", at, s.Type, typ)
		}
	}
	switch {
	case typ == reflect.TypeFor[time.Time](), typ.Implements(texts):
		is("string")
	case typ.Implements(jsons), typ == reflect.TypeFor[json.RawMessage]():
	case typ.Kind() == reflect.Struct:
		is("object")
		if !h.seen[typ] {
			h.seen[typ] = true
			h.object(at, s, typ)
		}
	case typ.Kind() == reflect.Map:
		is("object")
		h.value(at+".*", s.AdditionalProperties.Schema, typ.Elem())
	case typ.Kind() == reflect.Slice:
		is("array")
		h.value(at+"[]", s.Items, typ.Elem())
	case typ.Kind() == reflect.String:
		is("string")
	case typ.Kind() == reflect.Bool:
		is("boolean")
	case typ.Kind() == reflect.Float64:
		is("number")
	case typ.Kind() == reflect.Interface:
	default:
		is("integer")
	}
}

// object compares the members of a struct.
func (h *held) object(at string, s *openapi3.Schema, typ reflect.Type) {
	h.t.Helper()
	properties, required := maps.Clone(s.Properties), slices.Clone(s.Required)
	for _, part := range s.AllOf {
		maps.Copy(properties, part.Value.Properties)
		required = append(required, part.Value.Required...)
	}
	in := map[string]bool{}
	for _, f := range members(typ) {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		in[name] = true
		ref, ok := properties[name]
		if !ok {
			h.t.Errorf("%s: %s.%s is answered as %s, which is not described", at, typ, f.Name, name)
			continue
		}
		mayMiss := strings.Contains(option, "omit")
		if must := slices.Contains(required, name); must == mayMiss {
			h.t.Errorf("%s.%s: described as required: %v, and it may be missing: %v", at, name, must, mayMiss)
		}
		h.value(at+"."+name, ref, f.Type)
	}
	for name := range properties {
		if !in[name] {
			h.t.Errorf("%s: %s is described, and %s has no such member", at, name, typ)
		}
	}
}

// members are the fields of a struct as JSON has them, with those of what is embedded.
func members(typ reflect.Type) (all []reflect.StructField) {
	for f := range typ.Fields() {
		tag, tagged := f.Tag.Lookup("json")
		switch name, _, _ := strings.Cut(tag, ","); {
		case f.Anonymous && name == "":
			e := f.Type
			if e.Kind() == reflect.Pointer {
				e = e.Elem()
			}
			all = append(all, members(e)...)
		case !f.IsExported(), tagged && name == "-", slices.Contains(withheld, typ.String()+"."+f.Name):
		default:
			all = append(all, f)
		}
	}
	return all
}
