package dataverse_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/dataverse"
)

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

// Every body gets an answer, and as many rows are held as were counted.
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
