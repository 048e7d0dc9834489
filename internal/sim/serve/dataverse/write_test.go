package dataverse_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/dataverse"
)

const guid1, guid2 = "8f4c3f92-312b-ee11-bdf4-000d3a993550", "904c3f92-312b-ee11-bdf4-000d3a993550"

func byCode(code string) string {
	return `"@odata.id":"contacts(code='` + code + `')","code":"` + code + `"`
}

func TestBulkOperationsWriteRows(t *testing.T) {
	e := instant(t, dataverse.Options{})
	w := e.bulk("CreateMultiple", `"name":"Ann"`, `"name":"Bob"`, `"contactid":"`+guid1+`"`)
	var answer struct {
		Context string   `json:"@odata.context"`
		IDs     []string `json:"Ids"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 {
		t.Fatalf("%d %s %v", w.Code, w.Body, err)
	}
	if len(answer.IDs) != 3 || answer.IDs[0] == answer.IDs[1] || answer.IDs[2] != guid1 || !strings.HasSuffix(answer.Context, "#Microsoft.Dynamics.CRM.CreateMultipleResponse") {
		t.Errorf("answered %s", w.Body)
	}
	want(t, "a created row", e.ask("ann", "GET", "contacts("+answer.IDs[0]+")", ""), 200)
	want(t, "a row that is not there", e.ask("ann", "GET", "contacts("+guid2+")", ""), 404)
	want(t, "an update by id and by key", e.bulk("UpsertMultiple", byCode("x")), 204)
	want(t, "an update by id and by key", e.bulk("UpdateMultiple", `"contactid":"`+guid1+`","name":"Cy"`, byCode("x")+`,"n":1`), 204)
	if got := e.ask("ann", "GET", "contacts/$count", "").Body.String(); got != "4" {
		t.Errorf("count %s, want 4", got)
	}
	got := e.contacts()
	got.Checksum = ""
	if diff := cmp.Diff(dataverse.SetCounts{Rows: 4, Creates: 4, Updates: 2}, got); diff != "" {
		t.Error(diff)
	}
	user := e.Standing().Users
	for _, u := range user {
		if u.Batches != 3 || u.Rows != 6 || u.Admitted != 6 {
			t.Errorf("the user's traffic is %+v, want 3 batches of 6 rows in 6 requests", u)
		}
	}
	if len(user) != 1 {
		t.Errorf("%d users", len(user))
	}
}

func TestUpsertsAreIdempotent(t *testing.T) {
	e := instant(t, dataverse.Options{})
	load := func() *httptest.ResponseRecorder { return e.bulk("UpsertMultiple", byCode("a"), byCode("b")) }
	want(t, "first", load(), 204)
	once := e.contacts()
	want(t, "again", load(), 204)
	twice := e.contacts()
	if twice.Rows != 2 || twice.Updates != 2 || twice.Checksum != once.Checksum {
		t.Errorf("after one load %+v, after two %+v", once, twice)
	}
	want(t, "with other content", e.bulk("UpsertMultiple", byCode("a")+`,"n":2`), 204)
	if e.contacts().Checksum == once.Checksum {
		t.Error("the checksum does not see another content")
	}
}

func TestCreatesOfTheSameRowTwice(t *testing.T) {
	e := instant(t, dataverse.Options{AlternateKey: []string{"n", "code"}})
	want(t, "no name", e.bulk("CreateMultiple", `"name":"Ann"`, `"name":"Bob"`), 200)
	want(t, "no name, again", e.bulk("CreateMultiple", `"name":"Ann"`), 200)
	if c := e.contacts(); c.Rows != 3 || c.Creates != 3 || c.Duplicates != 1 {
		t.Errorf("%+v, want 3 rows of which one twice", c)
	}
	for _, tt := range []struct{ row, code string }{
		{`"contactid":"` + guid1 + `"`, "0x80040237"},
		{`"code":"a","n":1`, "0x80060892"},
	} {
		want(t, tt.row, e.bulk("CreateMultiple", tt.row), 200)
		w := e.bulk("CreateMultiple", tt.row)
		want(t, tt.row+" again", w, 412)
		if code, _, _ := fault(t, w); code != tt.code {
			t.Errorf("%s again: code %s, want %s", tt.row, code, tt.code)
		}
	}
	want(t, "half a key", e.bulk("CreateMultiple", `"code":"a"`), 200)
	want(t, "the row by its key", e.ask("ann", "GET", "contacts(n=1,code='a')", ""), 200)
	if c := e.contacts(); c.Rows != 6 || c.Refused != 2 {
		t.Errorf("%+v, want 6 rows and 2 refused", c)
	}
}

func TestAStandardTableTakesAllRowsOrNone(t *testing.T) {
	e := instant(t, dataverse.Options{})
	want(t, "before", e.bulk("UpsertMultiple", byCode("a"), `"name":"Ann"`), 204)
	before := e.contacts()
	for _, tt := range []struct {
		action, row, code string
		status            int
	}{
		{"UpsertMultiple", byCode("c") + `,"sim_fault":"reject"`, "0x80044331", 400},
		{"CreateMultiple", byCode("a"), "0x80060892", 412},
		{"UpdateMultiple", byCode("c"), "0x80060891", 404},
		{"UpdateMultiple", `"contactid":"` + guid1 + `"`, "0x80040217", 404},
		{"UpdateMultiple", `"name":"nobody"`, "0x80040216", 400},
	} {
		rows := []string{byCode("new"), `"name":"Ann"`, tt.row} // which writes before it fails
		if tt.action == "UpdateMultiple" {
			rows = []string{byCode("a") + `,"n":9`, byCode("a") + `,"n":10`, tt.row}
		}
		w := e.bulk(tt.action, rows...)
		code, message, details := fault(t, w)
		if w.Code != tt.status || code != tt.code || !strings.Contains(message, "Targets[2]") || details != "" {
			t.Errorf("%s of %s: %d %s", tt.action, tt.row, w.Code, w.Body)
		}
	}
	after := e.contacts()
	if before.Refused += 5; after != before {
		t.Errorf("held %+v before and %+v after, want the same", before, after)
	}
	want(t, "no trace of what was undone", e.bulk("CreateMultiple", byCode("new")), 200)
	want(t, "nor of a duplicate", e.bulk("CreateMultiple", `"name":"Ann"`), 200)
	if c := e.contacts(); c.Duplicates != 1 || c.Rows != 4 {
		t.Errorf("%+v, want the one duplicate of what is held", c)
	}
}

func TestAnElasticTableTakesTheRowsThatItCan(t *testing.T) {
	e := instant(t, dataverse.Options{Tables: dataverse.Elastic})
	rows := []string{byCode("a"), byCode("b") + `,"sim_fault":"reject"`, byCode("c") + `,"sim_fault":"throttle"`}
	statuses := func(w *httptest.ResponseRecorder) (out []int) {
		_, _, text := fault(t, w)
		var list []struct {
			RequestIndex int
			ID           string `json:"Id"`
			StatusCode   int
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for i, d := range list {
			if d.RequestIndex != i || len(d.ID) != 36 {
				t.Errorf("row %d: %+v", i, d)
			}
			out = append(out, d.StatusCode)
		}
		return out
	}
	first := e.bulk("UpsertMultiple", rows...)
	want(t, "in part", first, 400)
	if diff := cmp.Diff([]int{201, 400, 429}, statuses(first)); diff != "" {
		t.Error(diff)
	}
	again := e.bulk("UpsertMultiple", byCode("a"), byCode("b")+`,"sim_fault":"reject"`, byCode("c")+`,"sim_fault":"throttle"`)
	if diff := cmp.Diff([]int{200, 400, 201}, statuses(again)); diff != "" {
		t.Error(diff)
	}
	if c := e.contacts(); c.Rows != 2 || c.Refused != 3 {
		t.Errorf("%+v, want a and c, and 3 refused", c)
	}
	silent := e.ask("ann", http.MethodPost, "contacts/Microsoft.Dynamics.CRM.UpsertMultiple", targets(byCode("a"), byCode("b")+`,"sim_fault":"reject"`))
	if _, _, details := fault(t, silent); silent.Code != 400 || details != "" {
		t.Errorf("without a preference: %d %s, want no annotation", silent.Code, silent.Body)
	}
	narrow := e.ask("ann", http.MethodPost, "contacts/Microsoft.Dynamics.CRM.UpsertMultiple", targets(byCode("a"), byCode("b")+`,"sim_fault":"reject"`),
		"Prefer", "respond-async, odata.include-annotations=Microsoft.PowerApps.CDS.ErrorDetails.*")
	if _, _, details := fault(t, narrow); details == "" {
		t.Errorf("with a narrow preference: %s, want the annotation", narrow.Body)
	}
	want(t, "all of them", e.bulk("UpsertMultiple", byCode("a"), byCode("c")), 204)
}

func TestTheSameRowsFailAlways(t *testing.T) {
	failing := func(kind dataverse.Kind) (out []string) {
		e := instant(t, dataverse.Options{FailEvery: 10, Tables: kind})
		for i := range 300 {
			code := fmt.Sprint(i)
			if w := e.bulk("UpsertMultiple", byCode(code)); w.Code == 400 {
				out = append(out, code)
			}
		}
		if c := e.contacts(); c.Rows != int64(300-len(out)) {
			t.Errorf("%+v, want all but %d", c, len(out))
		}
		return out
	}
	standard := failing(dataverse.Standard)
	if len(standard) < 15 || len(standard) > 50 {
		t.Errorf("%d of 300 rows fail, want about 30", len(standard))
	}
	if diff := cmp.Diff(standard, failing(dataverse.Elastic)); diff != "" {
		t.Error(diff)
	}
}

func TestSingleRows(t *testing.T) {
	e := instant(t, dataverse.Options{})
	created := e.ask("ann", "POST", "contacts", `{"name":"Ann"}`)
	want(t, "create", created, 204)
	url := created.Header().Get("OData-EntityId")
	_, path, _ := strings.Cut(url, "/api/data/v9.2/")
	want(t, "what it says was created", e.ask("ann", "GET", path, ""), 200)
	want(t, "update of nothing", e.ask("ann", "PATCH", "contacts(code='z')", `{"n":1}`, "If-Match", "*"), 404)
	want(t, "upsert", e.ask("ann", "PATCH", "contacts(code='z')", `{"n":1}`), 204)
	want(t, "update", e.ask("ann", "PATCH", "contacts(code='z')", `{"n":2}`, "If-Match", "*"), 204)
	want(t, "no object", e.ask("ann", "PATCH", "contacts(code='z')", `null`), 400)
	want(t, "no JSON", e.ask("ann", "POST", "contacts", `{`), 400)
	if c := e.contacts(); c.Rows != 2 || c.Creates != 2 || c.Updates != 1 {
		t.Errorf("%+v", c)
	}
}

func TestOneRowHasOneName(t *testing.T) {
	e := instant(t, dataverse.Options{})
	want(t, "a strange key", e.bulk("UpsertMultiple", `"@odata.id":"contacts(code='O%27%27Neil,%20%26(co)%2F=1',n=3)"`), 204)
	for _, same := range []string{
		`contacts(n=3,code='O%27%27Neil,%20&(co)%2F=1')`,
		`contacts(code='O''Neil,%20&(co)%2F=1',n=3)`,
	} {
		want(t, same, e.ask("ann", "GET", same, ""), 200)
	}
	want(t, "by an absolute URL", e.bulk("UpdateMultiple", `"@odata.id":"https://org/api/data/v9.2/contacts(code='O''Neil,%20%26(co)/=1',n=3)"`), 204)
	for _, other := range []string{`contacts(code='O''Neil,%20&(co)%2F=1',n='3')`, `contacts(code='O',n=3)`, `leads(code='O''Neil,%20&(co)%2F=1',n=3)`} {
		want(t, other, e.ask("ann", "GET", other, ""), 404)
	}
	want(t, "a GUID", e.bulk("UpsertMultiple", `"@odata.id":"contacts(`+guid1+`)"`), 204)
	want(t, "the same in capitals", e.ask("ann", "GET", "contacts("+strings.ToUpper(guid1)+")", ""), 200)
	for _, bad := range []string{`contacts(`, `contacts()`, `contacts(code)`, `contacts(code='a)`, `contacts(code='a'n=1)`, `contacts(n=,m=1)`, `leads(code='a')`, `contacts(n=%zz)`} {
		w := e.bulk("UpsertMultiple", `"@odata.id":"`+bad+`"`)
		if code, _, _ := fault(t, w); w.Code != 400 || code != "0x80048d19" {
			t.Errorf("%s: %d %s, want it refused", bad, w.Code, w.Body)
		}
	}
}

func TestRequestsThatCannotBe(t *testing.T) {
	e := instant(t, dataverse.Options{MaxRows: 2, MaxBytes: 400})
	const path = "contacts/Microsoft.Dynamics.CRM.CreateMultiple"
	row := `{"@odata.type":"Microsoft.Dynamics.CRM.contact"}`
	for _, tt := range []struct {
		name, method, path, body, code string
		status                         int
	}{
		{"no JSON", "POST", path, `{"Targets":[`, "0x80048d19", 400},
		{"no rows", "POST", path, `{"Targets":[]}`, "0x80048d19", 400},
		{"no targets", "POST", path, `{}`, "0x80048d19", 400},
		{"an invalid row", "POST", path, `{"Targets":[1]}`, "0x80048d19", 400},
		{"no type", "POST", path, `{"Targets":[{"name":"a"}]}`, "0x80048d19", 400},
		{"a strange type", "POST", path, `{"Targets":[{"@odata.type":"contact"}]}`, "0x80048d19", 400},
		{"two types", "POST", path, `{"Targets":[` + row + `,{"@odata.type":"Microsoft.Dynamics.CRM.lead"}]}`, "0x80048d19", 400},
		{"an id that is not a GUID", "POST", path, `{"Targets":[{"@odata.type":"Microsoft.Dynamics.CRM.contact","contactid":"1"}]}`, "0x80048d19", 400},
		{"too many rows", "POST", path, `{"Targets":[` + row + "," + row + "," + row + `]}`, "", 413},
		{"too long", "POST", path, strings.Repeat(" ", 401), "", 413},
		{"another action", "POST", "contacts/Microsoft.Dynamics.CRM.DeleteMultiple", `{}`, "0x8006088a", 404},
		{"a strange set", "POST", "con-tacts/Microsoft.Dynamics.CRM.CreateMultiple", `{}`, "0x8006088a", 404},
		{"another method", "DELETE", "contacts(" + guid1 + ")", "", "0x8006088a", 404},
		{"a list", "GET", "contacts", "", "0x8006088a", 404},
		{"no key", "PATCH", "contacts", "{}", "0x8006088a", 404},
		{"another version", "GET", "/api/data/v8.2/contacts(" + guid1 + ")", "", "0x8006088a", 404},
	} {
		w := e.ask("ann", tt.method, tt.path, tt.body)
		if want(t, tt.name, w, tt.status); tt.code != "" {
			if code, message, _ := fault(t, w); code != tt.code || message == "" {
				t.Errorf("%s: %s, want code %s", tt.name, w.Body, tt.code)
			}
		}
	}
	want(t, "just short enough", e.ask("ann", "POST", path, `{"Targets":[`+row+","+row+`]}`), 200)
	if st := e.Stats(); st.Admitted != 1 || st.Throttled+st.Failed != 0 {
		t.Errorf("%+v, want malformed requests not to count", st.Counts)
	}
}

func TestWhoMayComeIn(t *testing.T) {
	e := instant(t, dataverse.Options{Users: 2})
	if w := e.ask("", "GET", "contacts/$count", ""); w.Code != 401 || w.Header().Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("nobody: %d %v", w.Code, w.Header())
	}
	for user, status := range map[string]int{"ann": 200, "bob": 200} {
		want(t, user, e.ask(user, "GET", "contacts/$count", ""), status)
	}
	w := e.ask("cy", "GET", "contacts/$count", "")
	if code, _, _ := fault(t, w); w.Code != 403 || code != "0x80072560" {
		t.Errorf("a third of two users: %d %s", w.Code, w.Body)
	}
	want(t, "ann again", e.ask("ann", "GET", "contacts/$count", ""), 200)
	if st := e.Stats(); st.Unauthorized != 1 || st.Admitted != 3 {
		t.Errorf("%+v", st)
	}
}

func TestFaultsComeOnceAtTheirNumber(t *testing.T) {
	e := instant(t, dataverse.Options{Faults: []dataverse.Fault{
		{Trouble: dataverse.Unauthorized, At: 1}, {Trouble: dataverse.TooLarge, At: 3}, {Trouble: dataverse.Broken, At: 4},
		{Trouble: dataverse.Cut, At: 2}, {Trouble: dataverse.Garbage, At: 3},
	}})
	var statuses []int
	var rows []int64
	for i := range 7 {
		w := e.bulk("CreateMultiple", fmt.Sprintf(`"n":%d`, i))
		statuses, rows = append(statuses, w.Code), append(rows, e.contacts().Rows)
		if garbage := w.Code == 200 && strings.HasPrefix(w.Body.String(), "<"); garbage != (i == 5) {
			t.Errorf("request %d: %s", i+1, w.Body)
		}
	}
	if diff := cmp.Diff([]int{401, 200, 413, 500, 0, 200, 200}, statuses); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int64{0, 1, 1, 1, 2, 3, 4}, rows); diff != "" {
		t.Errorf("rows after each: %s", diff)
	}
}

func TestRowsAskForTroubleOnce(t *testing.T) {
	e := instant(t, dataverse.Options{})
	for trouble, first := range map[string]int{"cut": 0, "garbage": 200} {
		row := byCode(trouble) + `,"sim_fault":"` + trouble + `"`
		want(t, trouble, e.bulk("UpsertMultiple", row, byCode("other")), first)
		want(t, trouble+" again", e.bulk("UpsertMultiple", row, byCode("other")), 204)
	}
	if c := e.contacts(); c.Rows != 3 || c.Creates != 3 || c.Updates != 5 {
		t.Errorf("%+v, want both batches written twice", c)
	}
	want(t, "another word", e.bulk("UpsertMultiple", byCode("x")+`,"sim_fault":"none"`), 204)
	want(t, "a number", e.bulk("UpsertMultiple", byCode("x")+`,"sim_fault":7`), 204)
}

func TestOptionsAreChecked(t *testing.T) {
	for field, opt := range map[string]dataverse.Options{
		"Scale is 0.5":        {Scale: 0.5},
		"Scale is 1001":       {Scale: 1001},
		"Users is 1001":       {Users: 1001},
		"Servers is 65":       {Servers: 65},
		"Hint is -1":          {Hint: -1},
		"Knee is -1":          {Knee: -1},
		"UserKnee is -1":      {UserKnee: -1},
		"MaxRows is -1":       {MaxRows: -1},
		"MaxBytes is -1":      {MaxBytes: -1},
		"FailEvery is -1":     {FailEvery: -1},
		"Overhead is 2h":      {Overhead: 2 * time.Hour},
		"RowTime is 2h":       {RowTime: 2 * time.Hour},
		`Tables is "virtual"`: {Tables: "virtual"},
		"Hints has 1s=0":      {Hints: []dataverse.Hint{{After: time.Second}}},
		"Faults has cut@0":    {Faults: []dataverse.Fault{{Trouble: dataverse.Cut}}},
		"Faults has odd@1":    {Faults: []dataverse.Fault{{Trouble: "odd", At: 1}}},
		"AlternateKey":        {AlternateKey: []string{""}},
	} {
		if _, err := dataverse.New(opt); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%+v: %v, want it to name %s", opt, err, field)
		}
	}
	for _, bad := range []string{"", "cut", "cut@0", "cut@x", "odd@1"} {
		if f, err := dataverse.ParseFault(bad); err == nil {
			t.Errorf("fault %q is %v", bad, f)
		}
	}
	if f, err := dataverse.ParseFault("too-large@12"); err != nil || f != (dataverse.Fault{Trouble: dataverse.TooLarge, At: 12}) {
		t.Errorf("%v %v", f, err)
	}
	for _, bad := range []string{"", "1s", "1s=", "x=1"} {
		if h, err := dataverse.ParseHint(bad); err == nil {
			t.Errorf("hint %q is %v", bad, h)
		}
	}
	if h, err := dataverse.ParseHint("90s=2"); err != nil || h != (dataverse.Hint{After: 90 * time.Second, Parallelism: 2}) {
		t.Errorf("%v %v", h, err)
	}
}

func TestAServerReportsWhatItsAPIsDid(t *testing.T) {
	e := instant(t, dataverse.Options{})
	e.bulk("CreateMultiple", `"n":1`)
	for path, wants := range map[string]string{
		"/-/dataverse": `{"hint":4,"sets":{"contacts":{"rows":1,`,
		"/-/stats":     `"reports":{"dataverse":{"hint":4,"sets":{"contacts":{"rows":1,`,
	} {
		w := e.ask("ann", "GET", path, "")
		if w.Code == http.StatusOK && strings.Contains(w.Body.String(), wants) {
			continue
		}
		t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, wants)
	}
}

// Every body is answered, and the number of rows held is the number counted.
func FuzzTargets(f *testing.F) {
	golden.Seeds(f)
	f.Add(targets(byCode("a"), `"contactid":"`+guid1+`"`))
	f.Add(`{"Targets":[{"@odata.type":"Microsoft.Dynamics.CRM.contact","@odata.id":"contacts(a='''',b=1)"}]}`)
	f.Add(`{"Targets":[null]}`)
	s, err := scenario.Parse("t.yaml", []byte("name: t\nprovider: {latency: {p50: 2ns, uplink_p50: 1ns, uplink_p99: 1ns}}\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		api, err := dataverse.New(dataverse.Options{Tables: dataverse.Elastic, Overhead: -1, RowTime: -1, AlternateKey: []string{"code"}})
		if err != nil {
			t.Fatal(err)
		}
		server, err := serve.New(s, serve.Options{APIs: []serve.API{api}})
		if err != nil {
			t.Fatal(err)
		}
		e := &environment{api, server, t}
		for _, action := range []string{"UpsertMultiple", "CreateMultiple", "UpdateMultiple"} {
			w := e.ask("ann", http.MethodPost, "contacts/Microsoft.Dynamics.CRM."+action, body)
			if c := e.contacts(); c.Rows != c.Creates || c.Rows < 0 {
				t.Fatalf("%s: %d %s leaves %+v", action, w.Code, w.Body, c)
			}
		}
	})
}
