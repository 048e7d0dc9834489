package dataverse_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/bulk/target"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/dataverse"
	"github.com/headway-go/headway/reason"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// tokens are the users' of a target file.
func tokens(name string) (string, bool) { return "token-of-" + name, true }

// loader loads into an environment over a network.
func loader(t testing.TB, e *environment, operation, more string) (*target.Target, dispatch.Params) {
	t.Helper()
	s := httptest.NewServer(e.Server)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		s.Close()
	})
	file := "target: t\ndataverse: {url: \"" + s.URL + "\", table: contacts, type: contact, operation: " + operation + ", key: [code]}\n" + more
	if operation == "create" {
		file = strings.Replace(file, ", key: [code]", "", 1)
	}
	if !strings.Contains(more, "identities:") {
		file += "auth: {bearer: \"${ANN}\"}\n"
	}
	c, err := target.Parse("target.yaml", []byte(file), tokens)
	if err != nil {
		t.Fatal(err)
	}
	return c.Target(client), c.Params
}

func rows(data ...string) bulk.Batch {
	b := bulk.Batch{Key: "k", Attempt: 1}
	for i, d := range data {
		b.Rows = append(b.Rows, bulk.Row{Number: int64(i), Data: json.RawMessage("{" + d + "}")})
	}
	return b
}

func TestTheClientUnderstandsEveryAnswer(t *testing.T) {
	done, refused, later := dispatch.Done, dispatch.Refused, dispatch.Later
	for _, tt := range []struct {
		name      string
		operation string
		opt       dataverse.Options
		yaml      string
		rows      []string
		want      dispatch.Outcome
		held      int64
	}{
		{name: "created", operation: "create", rows: []string{`"n":1`, `"n":2`}, want: dispatch.Outcome{Class: reason.OK}, held: 2},
		{name: "upserted", operation: "upsert", rows: []string{`"code":"O'Neil & co"`, `"code":7`}, want: dispatch.Outcome{Class: reason.OK}, held: 2},
		{
			name: "update of what is not there", operation: "update", rows: []string{`"code":"a"`},
			want: dispatch.Outcome{Class: reason.Rejected, Reason: reason.NotFound, Divisible: true},
		},
		{
			name: "all or none", operation: "upsert", rows: []string{`"code":"a"`, `"code":"b","sim_fault":"reject"`},
			want: dispatch.Outcome{Class: reason.Rejected, Reason: reason.ClientError, Divisible: true},
		},
		{
			name: "in part", operation: "upsert", opt: dataverse.Options{Tables: dataverse.Elastic},
			rows: []string{`"code":"a"`, `"code":"b","sim_fault":"reject"`, `"code":"c","sim_fault":"throttle"`},
			want: dispatch.Outcome{Class: reason.OK, Rows: []dispatch.Verdict{done, refused, later}}, held: 1,
		},
		{
			name: "creates in part", operation: "create", opt: dataverse.Options{Tables: dataverse.Elastic},
			rows: []string{`"n":1`, `"n":2,"sim_fault":"reject"`},
			want: dispatch.Outcome{Class: reason.OK, Rows: []dispatch.Verdict{done, refused}}, held: 1,
		},
		{
			name: "too many rows", operation: "upsert", opt: dataverse.Options{MaxRows: 1}, rows: []string{`"code":"a"`, `"code":"b"`},
			want: dispatch.Outcome{Class: reason.Rejected, Reason: reason.ClientError, TooLarge: true},
		},
		{
			name: "cut after it was written", operation: "upsert", rows: []string{`"code":"a","sim_fault":"cut"`},
			want: dispatch.Outcome{Class: reason.Lost, Reason: reason.Unreachable, Doubt: true}, held: 1,
		},
		{
			name: "garbage after it was written", operation: "create", rows: []string{`"n":1,"sim_fault":"garbage"`},
			want: dispatch.Outcome{Class: reason.Failed, Reason: reason.InvalidResponse, Doubt: true}, held: 1,
		},
		{
			name: "unauthorized", operation: "upsert", opt: dataverse.Options{Faults: []dataverse.Fault{{Trouble: dataverse.Unauthorized, At: 1}}}, rows: []string{`"code":"a"`},
			want: dispatch.Outcome{Class: reason.Rejected, Reason: reason.Unauthorized},
		},
		{
			name: "broken", operation: "upsert", opt: dataverse.Options{Faults: []dataverse.Fault{{Trouble: dataverse.Broken, At: 1}}}, rows: []string{`"code":"a"`},
			want: dispatch.Outcome{Class: reason.Failed, Reason: reason.ServerError, Doubt: true},
		},
		{
			name: "throttled", operation: "upsert", yaml: limited("{kind: busy_time, limit: 1ms, window: 60s}"),
			opt: dataverse.Options{Overhead: time.Millisecond, Faults: nil}, rows: []string{`"code":"a"`},
			want: dispatch.Outcome{Class: reason.Throttled, Reason: reason.RateLimited.Reason(), RetryAfter: time.Minute, HasRetryAfter: true, Budget: 1200 * time.Second, Window: 300 * time.Second},
			held: 1, // of the one before
		},
		{
			name: "throttled in scaled time", operation: "upsert", yaml: limited("{kind: busy_time, limit: 1ms, window: 400ms}"),
			opt: dataverse.Options{Overhead: 100 * time.Millisecond, RowTime: -1, Scale: 100}, rows: []string{`"code":"a"`},
			want: dispatch.Outcome{Class: reason.Throttled, Reason: reason.RateLimited.Reason(), RetryAfter: 5 * time.Second, HasRetryAfter: true, Budget: 1200 * time.Second, Window: 300 * time.Second},
			held: 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.yaml == "" {
				tt.yaml = quick
				tt.opt.Overhead, tt.opt.RowTime = -1, -1
			}
			e := environ(t, tt.yaml, tt.opt, nil)
			to, _ := loader(t, e, tt.operation, "")
			if tt.want.Class == reason.Throttled {
				if first := to.Send(t.Context(), 0, rows(tt.rows...)); first.Class != reason.OK {
					t.Fatalf("the first: %+v", first)
				}
			}
			got := to.Send(t.Context(), 0, rows(tt.rows...))
			// The rest of a wait is known with a precision of one second.
			if wait := got.RetryAfter - tt.want.RetryAfter; wait > -time.Second && wait <= 0 {
				got.RetryAfter = tt.want.RetryAfter
			}
			tt.want.Parallelism = 4
			if diff := cmp.Diff(tt.want, got.Outcome, cmp.Transformer("hint", func(o dispatch.Outcome) dispatch.Outcome {
				if o.Class == reason.Lost {
					o.Parallelism = 0 // there was no answer to tell it
				}
				if !o.Class.Throttle() {
					o.Budget, o.Window = 0, 0 // what the client concludes of the hint
				}
				return o
			})); diff != "" {
				t.Errorf("%v %s", got.Err, diff)
			}
			if c := e.contacts(); c.Rows != tt.held {
				t.Errorf("%+v, want %d rows", c, tt.held)
			}
			for i, v := range got.Rows {
				if v == refused && got.Problems[i].Status != 400 {
					t.Errorf("row %d: %+v", i, got.Problems[i])
				}
			}
		})
	}
}

// list is an input of rows {"code":"0"} and so on.
type list struct{ next, n int }

func (l *list) Next() (bulk.Row, error) {
	if l.next == l.n {
		return bulk.Row{}, io.EOF
	}
	l.next++
	return bulk.Row{Data: fmt.Appendf(nil, `{"code":"%d","name":"row %d"}`, l.next, l.next)}, nil
}

func (l *list) Identity() journal.Input {
	return journal.Input{Name: "list", Format: "test", Size: int64(l.n), Hash: "1"}
}

// load loads rows and compares what the client and the environment counted.
func load(t *testing.T, e *environment, n int, operation, more string) bulk.Summary {
	t.Helper()
	to, params := loader(t, e, operation, more)
	sum, err := bulk.Run(t.Context(), &list{n: n}, to, bulk.Options{Dir: t.TempDir(), Params: params})
	if err != nil || sum.State != bulk.Drained {
		t.Fatalf("%v %+v %s", err, sum, sum.Cause)
	}
	c := e.contacts()
	if sum.Acknowledged+sum.Rejected+sum.Uncertain != int64(n) || sum.Acknowledged > c.Rows || sum.Acknowledged+sum.Uncertain < c.Rows {
		t.Errorf("the client knows of %d acknowledged, %d rejected, %d uncertain of %d; held are %+v", sum.Acknowledged, sum.Rejected, sum.Uncertain, n, c)
	}
	return sum
}

// hasty are the times of a load, scaled down.
const hasty = "load: {target_time: 160ms, parallelism: {max: 4, min_increase_interval: 80ms}}\n"

// The load that the scenarios model has 72,493 rows.
func TestALargeLoadGoesIn(t *testing.T) {
	const scale = 120
	rows := longtest.Size(15_000, 72_493)
	e := environ(t, "", dataverse.Options{Scale: scale}, nil)
	began := time.Now()
	sum := load(t, e, rows, "upsert", strings.Replace(hasty, "160ms", "80ms", 1))
	st := e.Standing()
	if c := st.Sets["contacts"]; c.Rows != int64(rows) || c.Creates != int64(rows) || c.Updates != 0 || sum.Acknowledged != int64(rows) {
		t.Errorf("%+v, %d acknowledged", c, sum.Acknowledged)
	}
	if one := st.Servers["server-1"]; one.Throttled != 0 || one.Peak > 4 {
		t.Errorf("%+v, want no throttle and no more than the hint", one)
	}
	t.Logf("%.0f rows a second, of %s", float64(rows)/time.Since(began).Seconds()/scale, time.Since(began))
}

func TestALoadWithTroubleLosesNothing(t *testing.T) {
	faults := []dataverse.Fault{
		{Trouble: dataverse.Cut, At: 3}, {Trouble: dataverse.Garbage, At: 6}, {Trouble: dataverse.TooLarge, At: 9}, {Trouble: dataverse.Broken, At: 12},
	}
	const two = "identities: [{name: a, auth: {bearer: \"${ANN}\"}}, {name: b, auth: {bearer: \"${BOB}\"}}]\n"
	for _, tt := range []struct {
		name, operation string
		tables          dataverse.Kind
		uncertain       bool
	}{
		{"upserts into a standard table", "upsert", dataverse.Standard, false},
		{"upserts into an elastic table", "upsert", dataverse.Elastic, false},
		{"creates in a standard table", "create", dataverse.Standard, true},
		{"creates in an elastic table", "create", dataverse.Elastic, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := environ(t, "", dataverse.Options{Scale: 200, Servers: 2, Tables: tt.tables, FailEvery: 500, Faults: faults, Hint: 4, Hints: []dataverse.Hint{{After: 20 * time.Second, Parallelism: 1}}}, nil)
			sum := load(t, e, 5000, tt.operation, hasty+two)
			c := e.contacts()
			if sum.Rejected < 1 || sum.Rejected > 40 || sum.Uncertain > 0 != tt.uncertain || c.Duplicates != 0 {
				t.Errorf("%d rejected and %d uncertain, held %+v", sum.Rejected, sum.Uncertain, c)
			}
			if !tt.uncertain && c.Rows != sum.Acknowledged {
				t.Errorf("%d acknowledged, held %+v", sum.Acknowledged, c)
			}
			if n := len(e.Standing().Users); n != 2 {
				t.Errorf("%d users, want both", n)
			}
		})
	}
}

// environment calls its handler directly, so that it works in a bubble too.
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

// contacts returns the rows that the set holds.
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

func ExampleNew() {
	api, err := dataverse.New(dataverse.Options{Scale: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	provider, err := serve.New(api.Scenario(), serve.Options{APIs: []serve.API{api}})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(provider)
	defer server.Close()
	for range 2 {
		r, err := http.NewRequest(http.MethodPost, server.URL+"/api/data/v9.2/contacts/Microsoft.Dynamics.CRM.UpsertMultiple",
			strings.NewReader(`{"Targets":[{"@odata.type":"Microsoft.Dynamics.CRM.contact","@odata.id":"contacts(code='a')","name":"Ann"}]}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		r.Header.Set("Authorization", "Bearer ann")
		res, err := server.Client().Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = res.Body.Close()
		fmt.Println(res.StatusCode, res.Header.Get("X-Ms-Dop-Hint"))
	}
	held := api.Standing().Sets["contacts"]
	fmt.Println(held.Rows, "row,", held.Creates, "created,", held.Updates, "updated")
	// Output:
	// 204 4
	// 204 4
	// 1 row, 1 created, 1 updated
}
