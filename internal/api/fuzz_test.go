package api_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/golden"
)

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
