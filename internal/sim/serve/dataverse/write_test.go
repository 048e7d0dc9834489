package dataverse_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
