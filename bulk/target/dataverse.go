package target

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
)

var actions = map[Operation]string{Create: "CreateMultiple", Update: "UpdateMultiple", Upsert: "UpsertMultiple"}

func (d *Dataverse) traits() bulk.Traits {
	resend := dispatch.ResendAny
	if d.Operation == Create {
		resend = dispatch.ResendNothing
	}
	name := fmt.Sprintf("%s %s in %s", d.Operation, d.Table, d.URL.Host)
	if len(d.Key) > 0 {
		name += " by " + strings.Join(d.Key, ", ")
	}
	// Dataverse accepts requests of up to 128 MB, but smaller ones fail later.
	return bulk.Traits{Name: name, MaxRows: d.MaxRows, MaxBytes: 16 << 20, Resend: resend, Hinted: true}
}

func (d *Dataverse) path() string {
	return fmt.Sprintf("POST /api/data/v%s/%s/Microsoft.Dynamics.CRM.%s", d.Version, d.Table, actions[d.Operation])
}

func (d *Dataverse) request(ctx context.Context, b bulk.Batch) (*http.Request, map[int]bulk.Problem, error) {
	body := []byte(`{"Targets":[`)
	var refused map[int]bulk.Problem
	sent := 0
	for i, r := range b.Rows {
		entity, err := d.entity(r)
		if err != nil {
			if refused == nil {
				refused = map[int]bulk.Problem{}
			}
			refused[i] = bulk.Problem{Code: "unsendable", Message: err.Error()}
			continue
		}
		if sent > 0 {
			body = append(body, ',')
		}
		body = append(body, entity...)
		sent++
	}
	if sent == 0 {
		return nil, refused, nil
	}
	_, path, _ := strings.Cut(d.path(), " ")
	u := *d.URL
	u.Path = path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(append(body, `]}`...)))
	if err != nil {
		return nil, nil, errors.New("invalid URL")
	}
	req.GetBody = nil // else net/http sends it again by itself
	for name, value := range map[string]string{
		"Content-Type": "application/json; charset=utf-8", "Accept": "application/json",
		"OData-Version": "4.0", "OData-MaxVersion": "4.0", "If-None-Match": "null",
		// Tables that accept a part of a batch return the outcome of each row.
		"Prefer": `odata.include-annotations="*"`,
	} {
		req.Header.Set(name, value)
	}
	return req, refused, nil
}

// entity returns a row with the annotations for its type and record.
func (d *Dataverse) entity(r bulk.Row) ([]byte, error) {
	if bytes.Contains(r.Data, []byte(`"@odata.`)) {
		if err := d.unannotated(r); err != nil {
			return nil, err
		}
	}
	out := append(make([]byte, 0, len(r.Data)+128), `{"@odata.type":"Microsoft.Dynamics.CRM.`...)
	out = append(append(out, d.Type...), '"')
	if len(d.Key) > 0 {
		id, err := d.record(r)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(id)
		if err != nil {
			return nil, err
		}
		out = append(append(out, `,"@odata.id":`...), text...)
	}
	fields := bytes.TrimSpace(r.Data[1:]) // after the brace
	if fields[0] != '}' {
		out = append(out, ',')
	}
	return append(out, fields...), nil
}

// unannotated refuses a row that sets a field that the target sets too: of two values with
// one name, the server takes either.
func (d *Dataverse) unannotated(r bulk.Row) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(r.Data, &fields); err != nil {
		return errors.New("the row is not an object")
	}
	for _, name := range []string{"@odata.type", "@odata.id"} {
		if _, there := fields[name]; there && (name == "@odata.type" || len(d.Key) > 0) {
			return fmt.Errorf("it has %q, which the target sets: remove it", name)
		}
	}
	return nil
}

// record returns the row's record, by its alternate key.
func (d *Dataverse) record(r bulk.Row) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(r.Data, &fields); err != nil {
		return "", errors.New("the row is not an object")
	}
	parts := make([]string, len(d.Key))
	for i, column := range d.Key {
		raw := fields[column]
		text, err := scalar(raw)
		if err != nil || text == "" {
			return "", fmt.Errorf("its key %q must be a text or a number", column)
		}
		if raw[0] == '"' {
			text = "'" + url.PathEscape(strings.ReplaceAll(text, "'", "''")) + "'"
		}
		parts[i] = column + "=" + text
	}
	return d.Table + "(" + strings.Join(parts, ",") + ")", nil
}

func (d *Dataverse) served(_ context.Context, a answer, n int) bulk.Outcome {
	ok := bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.OK}}
	if a.status == http.StatusNoContent && d.Operation != Create {
		return ok
	}
	var res struct {
		IDs []string `json:"Ids"`
	}
	switch err := json.Unmarshal(a.body, &res); {
	case err != nil:
		return invalid(errors.New("the answer is not JSON"))
	case d.Operation == Create && len(res.IDs) != n:
		return invalid(fmt.Errorf("the answer has %d ids for %d rows", len(res.IDs), n))
	}
	return ok
}

// Codes of errors with which every batch fails.
const (
	codeNoResource  = "0x8006088a" // the table or the action does not exist
	codeNoPrivilege = "0x80040220"
)

// fault is the body of an error.
type fault struct {
	Error map[string]json.RawMessage `json:"error"`
}

// detail is the result of one row, from a table that accepts a part of a batch.
type detail struct {
	RequestIndex *int
	StatusCode   int
	Code         json.RawMessage
	Message      string
}

// The execution time that one web server allows a user in a window. Source: Microsoft,
// "Service protection API limits".
const (
	serverBudget = 1200 * time.Second
	budgetWindow = 300 * time.Second
)

// allowance treats the recommended parallelism as a number of batches that are always in
// flight. An environment with several web servers, each with its own budget, recommends
// more than one server bears.
func (d *Dataverse) allowance(o *bulk.Outcome) {
	if o.Parallelism <= 0 || o.Class.Throttle() && o.Budget == 0 {
		return
	}
	o.Budget = max(serverBudget, time.Duration(min(o.Parallelism, 10_000))*budgetWindow)
	o.Window = budgetWindow
}

func (d *Dataverse) refusal(_ context.Context, a answer, n int, o *bulk.Outcome) {
	var f fault
	if json.Unmarshal(a.body, &f) != nil || f.Error == nil {
		o.Fatal = true
		o.Err = errors.New("the answer is not Dataverse's: correct the URL")
		return
	}
	p := bulk.Problem{Status: a.status}
	_ = json.Unmarshal(f.Error["code"], &p.Code)       // absent is empty
	_ = json.Unmarshal(f.Error["message"], &p.Message) // absent is empty
	o.Problems = []bulk.Problem{p}
	for name, raw := range f.Error {
		if strings.HasSuffix(name, ".BulkApiErrorDetails") {
			if !d.details(raw, p, n, o) {
				// Only tables that accept a part of a batch return it: some rows may have
				// been written.
				o.Class, o.Reason, o.Doubt = reason.Failed, reason.InvalidResponse, true
				o.Err = errors.New("what became of each row cannot be read")
			}
			return
		}
	}
	if p.Code == codeNoResource || p.Code == codeNoPrivilege || a.status == http.StatusMethodNotAllowed {
		o.Fatal = true
		o.Err = fmt.Errorf("no batch can succeed with this answer (%s): correct the target", p.Code)
		return
	}
	// A standard table accepts all rows of a batch or none, and does not report which one
	// is wrong.
	o.Divisible = true
}

// details reads the outcomes of the rows; ok is false if they are unreadable.
func (d *Dataverse) details(raw json.RawMessage, p bulk.Problem, n int, o *bulk.Outcome) (ok bool) {
	var text string
	var list []detail
	if json.Unmarshal(raw, &text) == nil {
		raw = json.RawMessage(text)
	}
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return false
	}
	verdicts, problems := make([]dispatch.Verdict, n), make([]bulk.Problem, n)
	for _, one := range list {
		if one.RequestIndex == nil || *one.RequestIndex < 0 || *one.RequestIndex >= n {
			return false
		}
		i := *one.RequestIndex
		problems[i] = bulk.Problem{Status: one.StatusCode, Code: strings.Trim(string(one.Code), `"`), Message: one.Message}
		if one.Message == "" {
			problems[i].Message = p.Message
		}
		switch s := one.StatusCode; {
		case s >= 200 && s < 300:
			verdicts[i], problems[i] = dispatch.Done, bulk.Problem{}
		case s == http.StatusTooManyRequests || s == http.StatusServiceUnavailable:
			verdicts[i] = dispatch.Later
		case s >= 400 && s < 500:
			verdicts[i] = dispatch.Refused
		}
	}
	// The batch as a whole was processed; each row has its own outcome.
	o.Class, o.Reason, o.Rows, o.Problems = reason.OK, reason.None, verdicts, problems
	return true
}
