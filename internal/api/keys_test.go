package api_test

import (
	"strings"
	"testing"
	"time"
)

func TestKeysAreForAdmins(t *testing.T) {
	w := newWorld(t, nil)
	past := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for _, c := range []struct {
		method, path, key, body string
		status                  int
		want                    string
	}{
		{"GET", "/v1/keys", "", "", 401, ""},
		{"POST", "/v1/keys", "plain", `{"id":"a"}`, 403, ""},
		{"DELETE", "/v1/keys/a", "plain", "", 403, ""},
		{"GET", "/v1/keys", "admin", "", 200, `[{"id":"configured","configured":true}]`},
		{"GET", "/v1/keys?x=1", "admin", "", 400, "an unknown parameter"},
		{"POST", "/v1/keys", "admin", `{"id":"a","models":["m"],"uploads":true}`, 200, `{"secret":"hw_secret","id":"a","models":["m"],"uploads":true,"configured":false}`},
		{"POST", "/v1/keys", "admin", `{}`, 400, "id is missing"},
		{"POST", "/v1/keys", "admin", `{"id":"a","hash":"x"}`, 400, "an unknown field"},
		{"POST", "/v1/keys", "admin", `{"id":"a","expires":"` + past + `"}`, 400, "later than now"},
		{"DELETE", "/v1/keys/a", "admin", "", 204, ""},
		{"DELETE", "/v1/keys/a", "admin", "", 404, "No such key"},
		{"DELETE", "/v1/keys/configured", "admin", "", 409, "delete its lines and reload"},
	} {
		res := w.do(c.method, c.path, c.key, c.body)
		if res.Code != c.status || !strings.Contains(res.Body.String(), c.want) {
			t.Errorf("%s %s by %q: %d %s, want %d %s", c.method, c.path, c.key, res.Code, res.Body, c.status, c.want)
		}
	}
}
