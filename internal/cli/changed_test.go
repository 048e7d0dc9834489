package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// site is a provider whose connection the tests edit: a list of docs, under two
// paths, and their messages.
type site struct {
	*httptest.Server
	dir string

	mu   sync.Mutex
	seen []string // paths, in order
	fail bool     // details answer 400
	// version changes every doc but its key.
	version int
}

const siteDocs = 5

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	t.Chdir(s.dir)
	t.Setenv("HEADWAY_STATE", "")
	t.Setenv("HEADWAY_SERVER", "")
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r.URL.Path)
	path := strings.TrimPrefix(r.URL.Path, "/v2")
	if id, ok := strings.CutPrefix(path, "/docs/"); ok {
		if s.fail {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprintf(w, `{"messages": [{"id": "m-%s", "no": 1}], "replies": [{"id": "r-%s", "no": 1}]}`, id, id)
		return
	}
	docs := []any{}
	for i := range siteDocs {
		if page := r.URL.Query().Get("page"); page != "" && page != "1" {
			break
		}
		docs = append(docs, map[string]any{
			"id": fmt.Sprintf("d%d", i), "slug": fmt.Sprintf("s%d", i), "updated_at": fmt.Sprintf("2024-01-0%d", i+1),
			"version": s.version,
			"inner":   map[string]any{"id": fmt.Sprintf("d%d", i), "updated_at": "2024-01-01", "deep": true},
		})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"items": docs})
}

// asked counts the requests below a path since the last call, and forgets them.
func (s *site) asked(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range s.seen {
		if strings.HasPrefix(path, prefix) {
			n++
		}
	}
	s.seen = nil
	return n
}

// stream describes one stream; zero fields take defaults.
type streamYAML struct{ name, path, records, key, more string }

func (s *site) write(t *testing.T, base, sink string, streams ...streamYAML) {
	t.Helper()
	or := func(v, def string) string {
		if v == "" {
			return def
		}
		return v
	}
	var b strings.Builder
	fmt.Fprintf(&b, "connection: site\nprovider:\n  base_url: %s%s\n  ceiling: 1ms\n  pacing: {initial: 1ms}\n  retry: {attempts: 1}\nstreams:\n", s.URL, base)
	for _, st := range streams {
		fmt.Fprintf(&b, "  - name: %s\n    list: {path: %s}\n    records: %s\n    key: %s\n%s",
			or(st.name, "docs"), or(st.path, "/docs"), or(st.records, ".items"), or(st.key, ".id"), st.more)
	}
	b.WriteString(or(sink, "sink: {jsonl: {dir: ./out}}") + "\n")
	if err := os.WriteFile("c.yaml", []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	cursored    = "    paginate: {cursor: .next, param: c}\n"
	numbered    = "    paginate: {page: {param: page}}\n"
	incremental = "    incremental: {cursor: .updated_at, param: since}\n"
	detail      = "    detail: {stream: messages, path: \"/docs/{key}\", records: .messages, key: .id}\n"
	replies     = "    detail: {stream: replies, path: \"/docs/{key}\", records: .replies, key: .id}\n"
	other       = "    detail: {stream: messages, path: \"/docs/{key}\", records: .replies, key: .id}\n"
)

// rows counts the lines of a stream's file.
func rows(t *testing.T, stream string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("out", stream+".jsonl"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

// collects runs and checks the exit and what is said.
func collects(t *testing.T, code int, says ...string) string {
	t.Helper()
	got, out, errs := headway(t, "collect", "c.yaml")
	all := errs + out
	if got != code {
		t.Fatalf("exit %d, want %d:\n%s", got, code, all)
	}
	for _, want := range says {
		if !strings.Contains(all, want) {
			t.Errorf("the run does not say %q:\n%s", want, all)
		}
	}
	return all
}

// checks runs check and checks what it says of the state.
func checks(t *testing.T, says ...string) {
	t.Helper()
	code, out, errs := headway(t, "check", "c.yaml")
	if code != 0 {
		t.Fatalf("check: exit %d: %s%s", code, out, errs)
	}
	for _, want := range says {
		if !strings.Contains(out, want) {
			t.Errorf("check does not say %q:\n%s", want, out)
		}
	}
	if len(says) == 0 && strings.Contains(out, "changed ") {
		t.Errorf("check speaks of a change, and there is none:\n%s", out)
	}
}

func TestAnEditedConnectionIsNoticed(t *testing.T) {
	plain := streamYAML{more: incremental}
	detailed := streamYAML{more: incremental + detail}
	for _, tt := range []struct {
		name          string
		before, after streamYAML
		base          string
		says          []string // by check and at the start
		docs, details int      // records after
		stream        string   // of the details
		asked         int      // requests for details
	}{
		{"a detail was added", plain, detailed, "", []string{"docs: its details were added", "5 known items"}, 5, 5, "messages", 5},
		// Of the messages there are five of before, as many that the details no longer have, and five of now.
		{"a detail reads something else", detailed, streamYAML{more: incremental + other}, "", []string{"docs: its details changed", "5 known items"}, 5, 15, "messages", 5},
		{"details go to another stream", detailed, streamYAML{more: incremental + replies}, "", []string{"docs: its details go to another stream"}, 5, 5, "replies", 5},
		{"other records", plain, streamYAML{records: "\".items[].inner\"", more: incremental}, "", []string{"docs: its records changed"}, 10, 0, "messages", 0},
		{"another key", detailed, streamYAML{key: ".slug", more: incremental + detail}, "", []string{"docs: its key changed"}, 10, 10, "messages", 5},
		{"another fingerprint", plain, streamYAML{more: incremental + "    fingerprint: .slug\n"}, "", []string{"docs: its fingerprint changed"}, 10, 0, "messages", 0},
		{"another list", plain, streamYAML{path: "/docs2", more: incremental}, "", []string{"docs: its list changed"}, 5, 0, "messages", 0},
		{"another query", plain, streamYAML{path: "/docs, query: {state: all}", more: incremental}, "", []string{"docs: its list changed"}, 5, 0, "messages", 0},
		{"a query's other value", streamYAML{path: "/docs, query: {state: open, limit: '10'}", more: incremental},
			streamYAML{path: "/docs, query: {state: all, limit: '10'}", more: incremental}, "", []string{"docs: its list changed"}, 5, 0, "messages", 0},
		{"another header of the list", plain, streamYAML{path: "/docs, headers: {Tenant: b}", more: incremental}, "", []string{"docs: its list changed"}, 5, 0, "messages", 0},
		{"the only page's size", streamYAML{path: "/docs, query: {limit: '10'}", more: incremental},
			streamYAML{path: "/docs, query: {limit: '20'}", more: incremental}, "", []string{"docs: its list changed"}, 5, 0, "messages", 0},
		{"a page's size", streamYAML{path: "/docs, query: {limit: '10'}", more: incremental + cursored},
			streamYAML{path: "/docs, query: {limit: '20'}", more: incremental + cursored}, "", nil, 5, 0, "messages", 0},
		{"a size of pages that are counted", streamYAML{path: "/docs, query: {limit: '10'}", more: incremental + numbered},
			streamYAML{path: "/docs, query: {limit: '20'}", more: incremental + numbered}, "", []string{"docs: its list changed"}, 5, 0, "messages", 0},
		{"more than one page", plain, streamYAML{more: incremental + cursored}, "", []string{"docs: its list changed"}, 5, 0, "messages", 0},
		{"details of more than one page", detailed, streamYAML{more: incremental + strings.Replace(detail, "}\n", ", paginate: {cursor: .next, param: c}}\n", 1)}, "",
			[]string{"docs: its details changed"}, 5, 5, "messages", 5},
		{"no more incremental", plain, streamYAML{}, "", []string{"docs: its incremental changed"}, 5, 0, "messages", 0},
		{"the provider moved", plain, plain, "/v2", []string{"docs: its base_url changed"}, 5, 0, "messages", 0},
		{"details removed", detailed, plain, "", []string{"docs: its details were removed"}, 5, 5, "messages", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			s.write(t, "", "", tt.before)
			collects(t, exitOK)
			checks(t)
			s.asked("/")
			s.write(t, tt.base, "", tt.after)
			checks(t, tt.says...)
			if n := s.asked("/"); n != 0 {
				t.Errorf("check sent %d requests", n)
			}
			collects(t, exitOK, tt.says...)
			if n := s.asked("/docs/"); n != tt.asked {
				t.Errorf("%d details were asked for, want %d", n, tt.asked)
			}
			if docs, details := rows(t, "docs"), rows(t, tt.stream); docs != tt.docs || details != tt.details {
				t.Errorf("%d docs and %d %s, want %d and %d", docs, details, tt.stream, tt.docs, tt.details)
			}
			// It is said once, and then it is how the connection is.
			checks(t)
			if again := collects(t, exitOK, "nothing is left to do"); len(tt.says) > 0 && strings.Contains(again, tt.says[0]) {
				t.Errorf("said twice:\n%s", again)
			}
		})
	}
}

func TestDetailsThatWereAddedStayOwedUntilTheyAreThere(t *testing.T) {
	s := newSite(t)
	s.write(t, "", "", streamYAML{more: incremental})
	collects(t, exitOK)
	s.write(t, "", "", streamYAML{more: incremental + detail})
	if code, _, errs := headway(t, "collect", "c.yaml", "--max-requests", "3"); code != exitDeferred {
		t.Fatalf("exit %d: %s", code, errs)
	}
	checks(t) // what is owed is on record now
	if again := collects(t, exitOK, "nothing is left to do"); strings.Contains(again, " 0 details") {
		t.Errorf("drained without the details:\n%s", again)
	}
	if n := rows(t, "messages"); n != siteDocs {
		t.Errorf("%d messages, want %d", n, siteDocs)
	}
}

func TestOrphanedGapsAreSaidAndDropped(t *testing.T) {
	for name, after := range map[string][]streamYAML{
		"the detail is gone": {{more: incremental}}, "the stream was renamed": {{name: "papers", more: incremental}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.write(t, "", "", streamYAML{more: incremental + detail})
			s.fail = true
			if code, out, errs := headway(t, "collect", "c.yaml"); code == exitOK {
				t.Fatalf("exit %d: %s%s", code, out, errs)
			}
			s.write(t, "", "", after...)
			says := []string{"messages: the connection no longer has it", "5 details are owed", `headway gaps drop --connection site --stream messages`}
			if after[0].name != "" {
				says = append(says, "docs: it is no longer in the connection", "papers: it is new")
			}
			checks(t, says...)
			_, out, errs := headway(t, "collect", "c.yaml")
			for _, want := range says {
				if !strings.Contains(errs+out, want) {
					t.Errorf("the run does not say %q:\n%s%s", want, errs, out)
				}
			}
			if strings.Contains(out, "run it again and it goes on") {
				t.Errorf("running again would not help:\n%s", out)
			}
			if _, out, _ := headway(t, "status", "site"); after[0].name != "" && !strings.Contains(out, "no longer in the connection") {
				t.Errorf("status:\n%s", out)
			}
			if code, out, errs := headway(t, "gaps", "drop", "--connection", "site", "--stream", "messages"); code != 0 || out != "drop: 5 gaps\n" {
				t.Fatalf("exit %d: %s%s", code, out, errs)
			}
			checks(t)
			collects(t, exitOK, "nothing is left to do")
		})
	}
}

func TestADetailThatComesBackIsOwedAgain(t *testing.T) {
	s := newSite(t)
	s.write(t, "", "", streamYAML{more: incremental + detail})
	s.fail = true
	_, _, _ = headway(t, "collect", "c.yaml")
	s.write(t, "", "", streamYAML{more: incremental})
	_, _, _ = headway(t, "collect", "c.yaml")
	s.fail = false
	s.write(t, "", "", streamYAML{more: incremental + detail})
	collects(t, exitOK, "docs: its details were added", "nothing is left to do")
	if n := rows(t, "messages"); n != siteDocs {
		t.Errorf("%d messages, want %d", n, siteDocs)
	}
}
