package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/internal/golden"
)

func TestRatesAreLiveWhereTheyCanBe(t *testing.T) {
	w := newWorld(t, nil)
	rates := into[[]api.Rate](t, w.do("GET", "/v1/rate", "admin", ""), 200)
	var got []string
	for _, r := range rates {
		line := r.Connection + " " + string(r.Source)
		if r.Running {
			line += " running"
		}
		if r.Pacing != nil {
			line += " pacing"
		}
		if r.Rate != nil {
			line += " rate"
		}
		if r.Limits != nil {
			line += fmt.Sprintf(" %d limits", len(r.Limits))
		}
		if r.Live != nil {
			line += " " + r.Live.Circuit
		}
		got = append(got, line)
	}
	// What is not known is null, and not zero.
	want := []string{"archive stored running pacing rate 1 limits", "chat collect running open", "new stored", "openai proxy running rate 3 limits closed"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if w.reader.read != 1 {
		t.Errorf("%d traces read, want that of archive alone", w.reader.read)
	}
	if again := into[[]api.Rate](t, w.do("GET", "/v1/rate", "admin", ""), 200); w.reader.read != 1 || cmp.Diff(rates, again) != "" {
		t.Errorf("the trace of a run that has ended was read again: %+v", again)
	}
	w.reader.kept[0].State = collect.RunRunning
	if w.do("GET", "/v1/rate", "admin", ""); w.reader.read != 2 {
		t.Error("the trace of a run that goes on was not read again")
	}
	if r := rates[0].Rate; r.CurrentIntervalMS != 1000 || r.CeilingIntervalMS != 1 {
		t.Errorf("the last rate of the run: %+v", r)
	}
	one := into[[]api.Rate](t, w.do("GET", "/v1/rate?connection=openai", "admin", ""), 200)
	if d := cmp.Diff(rates[3:], one); d != "" {
		t.Error(d)
	}
}

// TestListsArePagedToTheEnd follows the links of each list and must see all of
// it once, whatever the length of a page.
func TestListsArePagedToTheEnd(t *testing.T) {
	w := newWorld(t, nil)
	for path, want := range map[string][]string{
		"/v1/rate?limit=":                         {"archive", "chat", "new", "openai"},
		"/v1/connections?limit=":                  {"archive", "chat", "new"},
		"/v1/runs?limit=":                         {"r5", "r4", "r3", "r2", "r1"},
		"/v1/runs?connection=archive&limit=":      {"r5", "r3", "r2", "r1"},
		"/v1/gaps?limit=":                         {"1", "3", "4"},
		"/v1/gaps?status=all&limit=":              {"1", "2", "3", "4"},
		"/v1/gaps?reason=rate_limited&limit=":     {"4"},
		"/v1/gaps?connection=nobody&limit=":       nil,
		"/v1/gaps?stream=messages&after=1&limit=": {"3", "4"},
	} {
		for _, limit := range []string{"1", "2", "3", "1000"} {
			var got []string
			pages := 0
			for next := path + limit; next != ""; pages++ {
				if pages > 10 {
					t.Fatalf("%s: endless", path)
				}
				rec := w.do("GET", next, "admin", "")
				for _, one := range into[[]map[string]any](t, rec, 200) {
					got = append(got, nameOf(one))
				}
				next, _, _ = strings.Cut(strings.TrimPrefix(rec.Header().Get("Link"), "<"), ">")
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s%s: %s", path, limit, d)
			}
		}
	}
}

func nameOf(one map[string]any) string {
	for _, field := range []string{"id", "name", "connection"} {
		switch v := one[field].(type) {
		case string:
			return v
		case float64:
			return string(rune('0' + int(v)))
		}
	}
	return ""
}

func TestRunsAndGapsAreTheJSONOfTheCommandLine(t *testing.T) {
	w := newWorld(t, nil)
	for path, want := range map[string]any{
		"/v1/runs":                        w.reader.kept,
		"/v1/gaps?status=all":             w.reader.owed,
		"/v1/gaps/2":                      w.reader.owed[1],
		"/v1/runs/r5":                     map[string]any{"run": w.reader.kept[0], "events": w.reader.traces["r5"]},
		"/v1/runs/r1":                     map[string]any{"run": w.reader.kept[4], "events": []int{}},
		"/v1/connections":                 w.reader.status,
		"/v1/connections?connection=chat": []collect.ConnectionStatus{w.reader.status[1]},
	} {
		// As the command prints it, but for the indent.
		printed, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		body := w.do("GET", path, "admin", "").Body.Bytes()
		if err := json.Unmarshal(printed, &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(body, &b); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(a, b); d != "" {
			t.Errorf("%s: %s", path, d)
		}
		if bytes.Contains(body, []byte("canary")) {
			t.Errorf("%s holds a locator: %s", path, body)
		}
	}
}

func TestARunThatIsNotInTheListIsNoPlaceToGoOn(t *testing.T) {
	w := newWorld(t, nil)
	if p := into[api.Problem](t, w.do("GET", "/v1/runs?connection=archive&before=r4", "admin", ""), 400); p.Field != "before" {
		t.Errorf("%+v", p)
	}
}

// sound fails unless an answer is a success or a problem that says what is wrong.
func sound(t *testing.T, rec *httptest.ResponseRecorder) {
	t.Helper()
	if rec.Code == 200 {
		if !json.Valid(rec.Body.Bytes()) {
			t.Errorf("answer %q", rec.Body)
		}
		return
	}
	var p api.Problem
	if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil || p.Status != rec.Code || p.Title == "" || p.Detail == "" || rec.Code >= 500 {
		t.Errorf("status %d, problem %s, %v", rec.Code, rec.Body, err)
	}
	if rec.Body.Len() > 64<<10 {
		t.Errorf("a problem of %d bytes", rec.Body.Len())
	}
}

func FuzzApprove(f *testing.F) {
	golden.Seeds(f)
	for _, seed := range []string{someCall, `{"provider":"openai","model":"m","expected_input_tokens":1e3,"priority":-1}`, `{"model":"m","model":"m"}`, `{"model":null}`, `[`, "{\"\xff\":1}", ``} {
		f.Add([]byte(seed))
	}
	w := newWorld(f, func(o *api.Options) { o.Permits = 1000 })
	f.Fuzz(func(t *testing.T, body []byte) {
		rec := w.do("POST", "/v1/quota/approve", "plain", string(body))
		sound(t, rec)
		if rec.Code != 200 {
			return
		}
		a := into[api.Approval](t, rec, 200)
		back, err := json.Marshal(api.UsageRequest{Permit: a.Permit, Cancel: true})
		if err != nil {
			t.Fatal(err)
		}
		if s := into[api.Settled](t, w.do("POST", "/v1/quota/usage", "plain", string(back)), 200); !s.First {
			t.Error("an approval that had ended before")
		}
	})
}

func FuzzUsage(f *testing.F) {
	golden.Seeds(f)
	for _, seed := range []string{`{"permit":"abcdefgh.ABCDEFGHIJKLMNOPQRSTUVWXYZ","input_tokens":1}`, `{"permit":".","cancel":true}`, `{"permit":1}`, `{"cached_tokens":1}`, `{`} {
		f.Add([]byte(seed))
	}
	w := newWorld(f, nil)
	rec := w.do("POST", "/v1/quota/approve", "plain", someCall)
	if rec.Code != 200 {
		f.Fatal(rec.Body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		rec := w.do("POST", "/v1/quota/usage", "plain", string(body))
		sound(t, rec)
		// No body that was not made from the approval ends the permit.
		if rec.Code == 200 || w.openai.Snapshot().Statistics.Open != 1 {
			t.Errorf("a permit was settled by %q", body)
		}
	})
}

func FuzzPatch(f *testing.F) {
	golden.Seeds(f)
	for _, seed := range []string{`{"models":{"m":{"burst":3}}}`, `{"models":null}`, `{"tenants":{"a":{"agents":{"x":null}}}}`, `{"scaleMax":1e400}`, `{"eventBuffer":100000}`, `[]`, `{"global":{"dayZone":"Nowhere/Land"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := newWorld(t, nil)
		before := w.openai.Snapshot().ConfigDigest
		rec := w.do("PATCH", "/v1/quota/config?provider=openai", "admin", string(body))
		sound(t, rec)
		after := w.openai.Snapshot().ConfigDigest
		if rec.Code != 200 {
			if after != before {
				t.Errorf("refused %q changed the limits", body)
			}
		} else if got := into[api.Patched](t, rec, 200); got.ConfigDigest != after {
			t.Errorf("digest %s, in force %s", got.ConfigDigest, after)
		}
	})
}

func FuzzLastEventID(f *testing.F) {
	golden.Seeds(f)
	for _, seed := range []string{"oldest", "k3f9x2a1-3", "-", "18446744073709551616", "a-1-2", "\r\ndata: x"} {
		f.Add(seed)
	}
	w := newWorld(f, nil)
	for n := range 3 {
		w.hub.Connection(note("chat", n))
	}
	w.hub.Close()
	f.Fuzz(func(t *testing.T, id string) {
		if id == "" || id == "oldest" {
			return
		}
		r := request("GET", "/v1/events", "admin", "")
		r.Header["Last-Event-Id"] = []string{id}
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		// Nobody guesses the epoch: all that is kept, after a mark.
		if got, _ := counts(rec.Body.String()); len(got) != 4 {
			t.Errorf("%q: %v", id, got)
		}
	})
}

func TestWhatPeopleChangeIsWrittenDown(t *testing.T) {
	w := newWorld(t, nil)
	for body, want := range map[string]int{
		`{"action":"drown","ids":[1]}`:                          400,
		`{"action":"retry"}`:                                    400,
		`{"action":"retry","ids":[1],"all":true}`:               400,
		`{"action":"retry","ids":[1],"connection":"archive"}`:   400,
		`{"action":"retry","reason":"weather"}`:                 400,
		`{"action":"retry","status":"pending"}`:                 400,
		`{"action":"retry","ids":[99]}`:                         404,
		`{"action":"retry","connection":"<script>"}`:            404,
		`{"action":"quarantine","ids":[1,3]}`:                   200,
		`{"action":"release","all":true}`:                       200,
		`{"action":"drop","connection":"archive","stream":"x"}`: 200,
	} {
		if rec := w.do("POST", "/v1/gaps", "shift", body); rec.Code != want {
			t.Errorf("%s: %d, want %d: %s", body, rec.Code, want, rec.Body)
		}
	}
	if got := w.reader.owed[0].Status; got != collect.GapTerminal {
		t.Errorf("the gap is %s", got)
	}
	for _, patch := range []string{`{"global":{"callsPerMinute":40}}`, `{"global":{"callsPerMinute":-40}}`, `{"canary":"secret"}`} {
		w.do("PATCH", "/v1/quota/config?provider=openai", "shift", patch)
	}
	w.do("POST", "/v1/keys", "admin", `{"id":"new","tenant":"t"}`)
	w.do("DELETE", "/v1/keys/nobody", "admin", "")
	rec := w.do("GET", "/v1/audit", "screen", "")
	got := map[string]audit.Entry{}
	for _, e := range into[[]audit.Entry](t, rec, 200) {
		got[e.Action+" "+e.Target] = e
	}
	for what, want := range map[string]audit.Entry{
		"gaps.quarantine gaps 1, 3":                      {Who: "shift", Outcome: audit.Done, Before: map[string]any{"owed": 2.0, "quarantined": 1.0}, After: map[string]any{"owed": 2.0, "quarantined": 1.0, "changed": 2.0}},
		"gaps.release all gaps":                          {Who: "shift", Outcome: audit.Done, Before: map[string]any{"owed": 2.0, "quarantined": 1.0}, After: map[string]any{"owed": 2.0, "quarantined": 1.0, "changed": 4.0}},
		"gaps.drop gaps of connection archive, stream x": {Who: "shift", Outcome: audit.Done, Before: map[string]any{"owed": 2.0, "quarantined": 1.0}, After: map[string]any{"owed": 2.0, "quarantined": 1.0, "changed": 0.0}},
		"quota.override quota openai":                    {Who: "shift", Outcome: audit.Done, Before: map[string]any{"global": map[string]any{"callsPerMinute": nil}}, After: map[string]any{"global": map[string]any{"callsPerMinute": 40.0}}},
		"key.issue key new":                              {Who: "ops", Outcome: audit.Done, After: map[string]any{"tenant": "t"}},
		"key.revoke key nobody":                          {Who: "ops", Outcome: audit.Failed},
	} {
		e, ok := got[what]
		if !ok {
			t.Errorf("no %s in %s", what, rec.Body)
			continue
		}
		if diff := cmp.Diff(want, e, cmpopts.IgnoreFields(audit.Entry{}, "ID", "At", "Action", "Target", "Error")); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		delete(got, what)
	}
	if len(got) > 0 || strings.Contains(rec.Body.String(), "canary") {
		t.Errorf("what changed nothing is written down: %v", got)
	}
}

func TestOneSimulationRunsAtATimeAndEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		const endless = `{"source":"name: endless","laws":["cycle"]}`
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan int)
		go func() {
			rec := httptest.NewRecorder()
			w.ServeHTTP(rec, request("POST", "/v1/simulator", "shift", endless).WithContext(ctx))
			gone <- rec.Code
		}()
		synctest.Wait()
		if p := into[api.Problem](t, w.do("POST", "/v1/simulator", "admin", endless), 503); p.RetryInMS == 0 {
			t.Errorf("beside another one: %+v", p)
		}
		leave()
		if code := <-gone; code < 400 {
			t.Errorf("one whose client went away: %d", code)
		}
		began := time.Now()
		into[api.Problem](t, w.do("POST", "/v1/simulator", "admin", endless), 422)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it ended after %v", took)
		}
		into[api.Simulated](t, w.do("POST", "/v1/simulator", "admin", `{"source":"","laws":["cycle"]}`), 200)
	})
	w := newWorld(t, func(o *api.Options) { o.Simulator = nil })
	into[api.Problem](t, w.do("GET", "/v1/simulator", "admin", ""), 404)
	into[api.Problem](t, w.do("POST", "/v1/simulator", "admin", `{"source":"","laws":["cycle"]}`), 404)
}

// What was in use at the end of a run comes back as time passes.
func TestLimitsOfAnEndedRunAreThoseOfNow(t *testing.T) {
	minute := func(kind string, used *float64, roomAt time.Time) event.Limit {
		return event.Limit{Kind: kind, Size: 60, WindowS: 60, Used: used, RoomAt: roomAt}
	}
	in := func(d time.Duration) time.Time { return began.Add(d) }
	for name, c := range map[string]struct {
		end   event.Limit
		after time.Duration
		used  *float64
		room  time.Time
	}{
		"a window that is full":      {minute("fixed_window", new(60.0), in(40*time.Second)), 30 * time.Second, new(60.0), in(40 * time.Second)},
		"one that has ended":         {minute("fixed_window", new(60.0), in(40*time.Second)), time.Minute, new(0.0), time.Time{}},
		"one that has room":          {minute("sliding_window", new(20.0), time.Time{}), 30 * time.Second, new(20.0), time.Time{}},
		"one that has room again":    {minute("sliding_window", new(60.0), in(time.Second)), 30 * time.Second, nil, time.Time{}},
		"a bucket that fills":        {minute("token_bucket", new(50.0), time.Time{}), 30 * time.Second, new(20.0), time.Time{}},
		"attempts under way":         {event.Limit{Kind: "concurrency", Size: 4, Used: new(1.0)}, time.Second, new(0.0), time.Time{}},
		"unknown use":                {minute("token_bucket", nil, in(time.Hour)), time.Second, nil, in(time.Hour)},
		"a window of unknown length": {event.Limit{Kind: "fixed_window", Size: 60, Used: new(5.0)}, time.Hour, nil, time.Time{}},
	} {
		last := event.Event{At: began, Note: "end", Limits: []event.Limit{c.end}}
		want := c.end
		want.Used, want.RoomAt = c.used, c.room
		if d := cmp.Diff([]event.Limit{want}, api.Idle(last, in(c.after))); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		last.Note = "speed_up" // of a run that was killed
		want.Used, want.RoomAt = nil, time.Time{}
		if d := cmp.Diff([]event.Limit{want}, api.Idle(last, in(c.after))); d != "" {
			t.Errorf("%s, killed (-want +got):\n%s", name, d)
		}
	}
}
