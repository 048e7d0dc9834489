package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/api"
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
