package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// The site's list has no next page and a field updated_at.
func TestAListThatIsNotReadAsItsProviderMeansIt(t *testing.T) {
	const (
		unmatched = "    paginate: {cursor: .next, param: cursor}\n"
		null      = "    incremental: {cursor: .changed_at, param: since}\n"
	)
	for name, tt := range map[string]struct {
		stream streamYAML
		kind   string
		says   string
		again  bool // each run says so, not the first alone
	}{
		"paging that never matches": {streamYAML{more: unmatched}, "paging_unmatched", "stream docs: the paging expression found nothing in the first page (5 records)", false},
		"incremental that is null":  {streamYAML{more: null}, "incremental_null", "stream docs: the incremental expression gave null for every record (5)", true},
		"a full last page":          {streamYAML{path: "/docs, query: {limit: \"5\"}"}, "full_last_page", "stream docs: the list ended on a full page (5 records)", true},
		"nothing":                   {streamYAML{more: incremental}, "", "warning:", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.write(t, "", "", tt.stream)
			once := func(n int, text string) {
				t.Helper()
				if tt.kind == "" {
					n = 0
				}
				if got := strings.Count(text, tt.says); got != n {
					t.Errorf("%q stands %d times, want %d, in:\n%s", tt.says, got, n, text)
				}
			}
			code, out, errs := headway(t, "check", "c.yaml", "--probe")
			if code != exitOK {
				t.Fatalf("check: exit %d: %s", code, errs)
			}
			once(1, out)
			if code, out, _ = headway(t, "check", "c.yaml", "--probe", "--json"); code != exitOK || strings.Contains(out, `"kind": "`+tt.kind+`"`) != (tt.kind != "") {
				t.Errorf("check --json: exit %d, want a warning of kind %q in\n%s", code, tt.kind, out)
			}
			once(2, collects(t, exitOK)) // at once, and in the summary
			again := 0
			if tt.again {
				again = 2
			}
			once(again, collects(t, exitOK))

			code, out, errs = headway(t, "collect", "c.yaml", "--fresh", "--json")
			if code != exitOK {
				t.Fatalf("collect --json: exit %d: %s", code, errs)
			}
			events, summaries := 0, 0
			for line := range strings.Lines(out) {
				var l struct {
					Event   struct{ Type, Note, Stream string }
					Summary struct {
						Warnings []struct{ Kind, Stream string }
					}
				}
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatal(err)
				}
				if l.Event.Type == "warning" && l.Event.Note == tt.kind && l.Event.Stream == "docs" {
					events++
				}
				for _, w := range l.Summary.Warnings {
					if w.Kind == tt.kind && w.Stream == "docs" {
						summaries++
					}
				}
			}
			want := 1
			if tt.kind == "" {
				want = 0
			}
			if events != want || summaries != want {
				t.Errorf("%d events and %d warnings in the summary, want %d each:\n%s", events, summaries, want, out)
			}
		})
	}
}

// The details of the site have one message each and name no next page.
func TestDetailsThatAreNotReadToTheirEnd(t *testing.T) {
	paged := func(paginate string) streamYAML {
		return streamYAML{more: "    detail: {stream: messages, path: \"/docs/{key}\", records: .messages, key: .id" + paginate + "}\n"}
	}
	for name, tt := range map[string]struct {
		stream streamYAML
		kind   string
		says   string
	}{
		"paging that never matches": {paged(", paginate: {cursor: .next, param: cursor}"), "detail_paging_unmatched",
			"stream messages: the paging expression found nothing in any detail (5), and each was taken for one page; if there are more, look at detail.paginate"},
		"no paging": {paged(""), "", "stream messages:"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.write(t, "", "", tt.stream)
			want := 2 // at the end of the run, and in the summary
			if tt.kind == "" {
				want = 0
			}
			if all := collects(t, exitOK); strings.Count(all, tt.says) != want {
				t.Errorf("%q stands %d times, want %d, in:\n%s", tt.says, strings.Count(all, tt.says), want, all)
			}
			if tt.kind != "" {
				_, out, _ := headway(t, "collect", "c.yaml", "--fresh", "--json")
				if strings.Count(out, `"kind":"`+tt.kind+`"`) != 1 || strings.Count(out, `"note":"`+tt.kind+`"`) != 1 {
					t.Errorf("want one event and one warning %s in:\n%s", tt.kind, out)
				}
			}
			s.update()
			if all := collects(t, exitOK); strings.Contains(all, "stream messages:") {
				t.Errorf("what changed later is warned of:\n%s", all)
			}
		})
	}
}
