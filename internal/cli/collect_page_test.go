package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headway-go/headway/collect"
)

// account is a connection to a server of a test's own, with its state and sink.
type account struct {
	t   *testing.T
	dir string
	url string
	// auth is a further field of the provider.
	auth string
}

// connectTo writes a connection file with one stream docs; stream is the rest of
// its fields, more is what follows the streams.
func connectTo(t *testing.T, h http.HandlerFunc, stream, more string) account {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	a := account{t: t, dir: t.TempDir(), url: s.URL}
	a.write(stream, more)
	return a
}

func (a account) write(stream, more string) {
	a.t.Helper()
	file := fmt.Sprintf(`connection: acme
provider: {base_url: %q, ceiling: 1ms, pacing: {initial: 1ms, jitter: 0s}, retry: {base: 1ms, cap: 2ms, attempts: 3}, %s}
streams:
  - {name: docs, list: {path: /docs}, records: .items, key: .id, %s}
%s
sink: {jsonl: {dir: %q}}
`, a.url, a.auth, stream, more, filepath.Join(a.dir, "out"))
	if err := os.WriteFile(filepath.Join(a.dir, "acme.yaml"), []byte(file), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a account) collect(args ...string) (code int, out, errs string) {
	a.t.Helper()
	return headway(a.t, append([]string{"collect", filepath.Join(a.dir, "acme.yaml"), "--quiet", "--state", filepath.Join(a.dir, "state.db")}, args...)...)
}

// lines counts a stream's records.
func (a account) lines(stream string) int {
	a.t.Helper()
	b, err := os.ReadFile(filepath.Join(a.dir, "out", stream+".jsonl"))
	if err != nil && !os.IsNotExist(err) {
		a.t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

func (a account) gaps(status string) []collect.Gap {
	a.t.Helper()
	code, out, errs := headway(a.t, "gaps", "list", "--status", status, "--json", "--state", filepath.Join(a.dir, "state.db"))
	var gaps []collect.Gap
	if err := json.Unmarshal([]byte(out), &gaps); code != 0 || err != nil {
		a.t.Fatalf("exit %d, %v: %s", code, err, errs)
	}
	return gaps
}

// twelve is a list of twelve on one page, whose record at the place given is as written.
func twelve(at int, record string) string {
	var items []string
	for i := 1; i <= 12; i++ {
		if i == at {
			items = append(items, record)
			continue
		}
		items = append(items, fmt.Sprintf(`{"id":"d%02d","at":"2024-01-%02dT00:00:00Z"}`, i, i))
	}
	return `{"items":[` + strings.Join(items, ",") + `]}`
}

func TestOneBadRecordOfTwelveIsQuarantinedAndTheRestArrives(t *testing.T) {
	for name, c := range map[string]struct{ record, stream, problem string }{
		"no key":               {`{"id":null,"name":"hunter2"}`, "", "page 1, record 7: key expression .id gave null, want a text or a whole number"},
		"a repeated key":       {`{"id":"d02","name":"hunter2"}`, "", "page 1, record 7: key expression .id is not unique: it gave the key of record 2 of the same page, which differs"},
		"a key that is long":   {`{"id":"` + strings.Repeat("x", 1025) + `"}`, "", "page 1, record 7: key expression .id gave a text of 1025 bytes, at most 1024 are a key"},
		"a record of no table": {`"hunter2"`, "", "page 1, record 7: key expression .id failed: expected an object but got: string"},
		"a bad watermark":      {`{"id":"d07","at":{"hunter2":1}}`, "incremental: {cursor: .at, param: since}", "page 1, record 7: incremental expression .at gave an object, want a text, a number or null"},
	} {
		t.Run(name, func(t *testing.T) {
			body := twelve(7, c.record)
			a := connectTo(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }, c.stream, "")
			for range 3 { // the gap stays one
				if code, out, errs := a.collect(); !strings.Contains(out, "acme: incomplete") {
					t.Fatalf("exit %d: %s%s", code, out, errs)
				}
				gaps := a.gaps("terminal")
				if len(gaps) != 1 || gaps[0].LastError != c.problem || gaps[0].Stream != "docs" || strings.Contains(gaps[0].Key, "hunter2") {
					t.Fatalf("got %+v; want one gap with %s", gaps, c.problem)
				}
			}
			if n := a.lines("docs"); n != 11 {
				t.Errorf("%d records arrived, want 11", n)
			}
			// Released it is quarantined again, and not owed for ever.
			if code, _, errs := headway(t, "gaps", "release", "--all", "--state", filepath.Join(a.dir, "state.db")); code != 0 {
				t.Fatal(errs)
			}
			if _, out, _ := a.collect(); !strings.Contains(out, "acme: incomplete") || len(a.gaps("terminal")) != 1 {
				t.Errorf("after its release: %s", out)
			}
			if c.stream == "" { // a walk over the whole list sees that the record is well now
				body = twelve(0, "")
				if _, out, _ := a.collect(); len(a.gaps("terminal")) != 0 || a.lines("docs") != 12 {
					t.Errorf("mended: %d gaps, %d records, %s", len(a.gaps("terminal")), a.lines("docs"), out)
				}
			}
		})
	}
}

func TestBadRecordsFailByChoiceAndWhereThereAreNoOthers(t *testing.T) {
	for name, c := range map[string]struct{ body, stream, want string }{
		"by choice":           {twelve(7, `{"id":null}`), "bad_records: fail", "key expression .id gave null, want a text or a whole number, for record 7 of 12"},
		"all of a first page": {`{"items":[{"uid":1},{"uid":2}]}`, "", "key expression .id gave null, want a text or a whole number, for record 1 of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			a := connectTo(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(c.body)) }, c.stream, "")
			code, out, errs := a.collect()
			if code != exitRefused || !strings.Contains(out+errs, c.want) || len(a.gaps("all")) != 0 {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
		})
	}
}

// A record that appears on the list with an older time than records before it is
// found by looking back, and what is found again there is not collected again.
func TestALookbackTakesLateRecordsOnce(t *testing.T) {
	for _, tt := range []struct {
		lookback string
		found    bool
		asked    string // since of the second run
	}{
		{"", false, "2024-05-02T12:00:00Z"},
		{", lookback: 30m", true, "2024-05-02T11:30:00Z"},
	} {
		t.Run(tt.lookback, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv("HEADWAY_STATE", "")
			t.Setenv("HEADWAY_SERVER", "")
			times := map[string]string{"a": "2024-05-01T00:00:00Z", "b": "2024-05-02T11:45:00Z", "c": "2024-05-02T12:00:00Z"}
			asked, details := "", map[string]int{}
			var mu sync.Mutex // of the three above
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if id, ok := strings.CutPrefix(r.URL.Path, "/docs/"); ok {
					details[id]++
					_, _ = fmt.Fprintf(w, `{"messages": [{"id": "m", "at": %q}]}`, times[id])
					return
				}
				if since := r.URL.Query().Get("since"); since != "" {
					asked = since
				}
				items := []any{}
				for id, at := range times {
					if at > r.URL.Query().Get("since") {
						items = append(items, map[string]string{"id": id, "updated_at": at})
					}
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
			}))
			t.Cleanup(server.Close)
			file := "connection: late\nprovider: {base_url: " + server.URL + ", ceiling: 1ms, pacing: {initial: 1ms}}\n" +
				"streams:\n  - name: docs\n    list: {path: /docs}\n    records: .items\n    key: .id\n" +
				"    incremental: {cursor: .updated_at, param: since" + tt.lookback + "}\n" + detail
			if err := os.WriteFile("c.yaml", []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.found {
				checks(t, "looking back 30m")
			}
			collects(t, exitOK)
			seen := func() map[string]int {
				mu.Lock()
				defer mu.Unlock()
				return maps.Clone(details)
			}
			if details := seen(); len(details) != 3 || rows(t, "docs") != 3 {
				t.Fatalf("%v details, %d docs; want three of each", details, rows(t, "docs"))
			}
			mu.Lock()
			times["late"] = "2024-05-02T11:50:00Z" // appears now
			mu.Unlock()
			for range 3 {
				collects(t, exitOK)
			}
			mu.Lock()
			if asked != tt.asked {
				t.Errorf("asked for changes since %s, want %s", asked, tt.asked)
			}
			mu.Unlock()
			want := map[string]int{"a": 1, "b": 1, "c": 1}
			if tt.found {
				want["late"] = 1
			}
			if details := seen(); fmt.Sprint(details) != fmt.Sprint(want) || rows(t, "docs") != len(want) || rows(t, "messages") != len(want) {
				t.Errorf("details asked for %v, %d docs, %d messages; want %v and one each", details, rows(t, "docs"), rows(t, "messages"), want)
			}
			// Changed within the lookback: once more, and then no more.
			mu.Lock()
			times["b"] = "2024-05-02T11:55:00Z"
			mu.Unlock()
			for range 2 {
				collects(t, exitOK)
			}
			if details := seen(); tt.found && (details["b"] != 2 || rows(t, "docs") != len(want)+1) {
				t.Errorf("b changed: asked for %d times in all, %d docs", details["b"], rows(t, "docs"))
			}
		})
	}
}

func TestALookbackNeedsTimes(t *testing.T) {
	s := newSite(t)
	s.write(t, "", "", streamYAML{more: "    incremental: {cursor: .slug, param: since, lookback: 1h}\n"})
	code, out, errs := headway(t, "collect", "c.yaml")
	if want := "no cursor on a page is a point in time"; code == exitOK || !strings.Contains(errs+out, want) {
		t.Errorf("exit %d, want an error that says %q:\n%s%s", code, want, errs, out)
	}
	if n := rows(t, "docs"); n != 0 {
		t.Errorf("%d records", n)
	}
}

func TestARevokedKeyOfThreeIsSetAside(t *testing.T) {
	secrets := map[string]string{"KEY_ONE": "sesame-one-1", "KEY_TWO": "sesame-two-2", "KEY_THREE": "sesame-three-3"}
	for name, secret := range secrets {
		t.Setenv(name, secret)
	}
	var mu sync.Mutex
	asked, by := 0, map[string]map[string]bool{}
	a := connectTo(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		secret := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if secret == secrets["KEY_TWO"] && asked > 12 || secret == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if id, ok := strings.CutPrefix(r.URL.Path, "/docs/"); ok {
			fmt.Fprintf(w, `{"items":[{"id":%q}]}`, id)
			return
		}
		page := r.URL.Query().Get("cursor")
		if by["list"] == nil {
			by["list"] = map[string]bool{}
		}
		by["list"][secret] = true
		next := map[string]string{"": "2", "2": "3", "3": "4", "4": ""}[page]
		var items []string
		for i := range 10 {
			items = append(items, fmt.Sprintf(`{"id":"%s-%d"}`, page, i))
		}
		fmt.Fprintf(w, `{"items":[%s],"next":%q}`, strings.Join(items, ","), next)
	}, "", "")
	a.auth = `keys: [{name: first, bearer: "${KEY_ONE}"}, {bearer: "${KEY_TWO}"}, {name: third, bearer: "${KEY_THREE}"}], sticky: true`
	a.write(`paginate: {cursor: .next, param: cursor}, detail: {stream: texts, path: "/docs/{key}", records: .items, key: .id}`, "")
	code, out, errs := a.collect("--json")
	if code != 0 || a.lines("docs") != 40 || a.lines("texts") != 40 {
		t.Errorf("exit code %d, %d docs, %d texts: %s\n%s", code, a.lines("docs"), a.lines("texts"), errs, out)
	}
	if !strings.Contains(out, `"note":"key_set_aside"`) || !strings.Contains(out, `"stream":"2"`) {
		t.Errorf("no event of the key:\n%s", out)
	}
	_, status, _ := headway(t, "status", "--state", filepath.Join(a.dir, "state.db"))
	if !strings.Contains(status, "key 2 was refused with status 401") {
		t.Errorf("the status does not say so:\n%s", status)
	}
	_, checked, complaints := headway(t, "check", filepath.Join(a.dir, "acme.yaml"))
	if !strings.Contains(checked+complaints, "list only keys that their owner may use together") {
		t.Errorf("the check does not say so:\n%s%s", checked, complaints)
	}
	for _, secret := range secrets {
		if strings.Contains(out+errs+status+checked+complaints, secret) {
			t.Errorf("a secret is in the output")
		}
	}
	if len(by["list"]) > 2 { // the list's key, and the one after it if that was revoked
		t.Errorf("the list was asked for by %d keys", len(by["list"]))
	}
	a.auth = `auth: {bearer: "${KEY_ONE}"}, keys: [{bearer: "${KEY_ONE}"}, {name: "1", bearer: "${KEY_ONE}"}, {name: x}]`
	a.write("", "")
	_, checked, complaints = headway(t, "check", filepath.Join(a.dir, "acme.yaml"))
	for _, want := range []string{"exactly one of bearer, header and query"} {
		if !strings.Contains(checked+complaints, want) {
			t.Errorf("no %q in\n%s%s", want, checked, complaints)
		}
	}
}
