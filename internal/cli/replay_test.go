package cli

import (
	"database/sql"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// replays runs replay and checks the exit and what is said.
func replays(t *testing.T, code int, says ...string) string {
	t.Helper()
	return replaysWith(t, nil, code, says...)
}

func replaysWith(t *testing.T, args []string, code int, says ...string) string {
	t.Helper()
	got, out, errs := headway(t, append([]string{"replay", "c.yaml"}, args...)...)
	all := errs + out
	if got != code {
		t.Fatalf("exit %d, want %d:\n%s", got, code, all)
	}
	for _, want := range says {
		if !strings.Contains(all, want) {
			t.Errorf("replay does not say %q:\n%s", want, all)
		}
	}
	return all
}

// kept is a site whose docs and messages were collected into data.db.
func kept(t *testing.T) (s *site, write func(sink string)) {
	t.Helper()
	s = newSite(t)
	write = func(sink string) { s.write(t, "", "sink: {"+sink+"}", streamYAML{more: incremental + detail}) }
	write("sqlite: {file: data.db}")
	collects(t, exitOK)
	s.asked("")
	return s, write
}

func TestWhatASinkKeptIsReplayedIntoAnother(t *testing.T) {
	for _, tt := range []struct{ name, was, is, file string }{
		{"a file into jsonl", "sqlite: {file: data.db}", "jsonl: {dir: ./out}", ""},
		{"the state into jsonl", "sqlite: {}", "jsonl: {dir: ./out}", ""},
		{"a file into the state", "sqlite: {file: data.db}", "sqlite: {}", ".headway/state.db"},
		{"the state into a file", "sqlite: {}", "sqlite: {file: new.db}", "new.db"},
		{"a file into another", "sqlite: {file: data.db}", "sqlite: {file: new.db}", "new.db"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, write := kept(t)
			if tt.was == "sqlite: {}" {
				write("jsonl: {dir: ./first}")
				if code, out, errs := headway(t, "collect", "c.yaml", "--fresh"); code != exitOK {
					t.Fatal(out, errs)
				}
				write(tt.was)
				if code, out, errs := headway(t, "collect", "c.yaml", "--fresh"); code != exitOK {
					t.Fatal(out, errs)
				}
			}
			s.asked("")
			write(tt.is)
			checks(t, "to have it here too, `headway replay`")
			_, before, _ := headway(t, "status", "--json")
			replays(t, exitOK, "replayed in", "10 records", "a run goes on where collection stood")
			if n := s.asked(""); n != 0 {
				t.Errorf("%d requests", n)
			}
			counts := func(want int) {
				t.Helper()
				if tt.file == "" {
					if docs, messages := rows(t, "docs"), rows(t, "messages"); docs != want || messages != siteDocs {
						t.Errorf("%d docs and %d messages", docs, messages)
					}
					return
				}
				if n := query(t, tt.file, "SELECT (SELECT count(*) FROM docs) || (SELECT count(*) FROM messages)"); n != "55" {
					t.Errorf("docs and messages: %s", n)
				}
			}
			counts(siteDocs)
			replays(t, exitOK, "replayed before", "nothing is left to copy")
			counts(siteDocs)

			// The last run stays what it was, and the replay is on show.
			_, after, _ := headway(t, "status", "--json")
			var was, is []struct {
				LastRun json.RawMessage `json:"last_run"`
				Lanes   json.RawMessage `json:"lanes"`
			}
			if err := json.Unmarshal([]byte(before), &was); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(after), &is); err != nil {
				t.Fatal(err)
			}
			if string(was[0].LastRun) != string(is[0].LastRun) || string(was[0].Lanes) != string(is[0].Lanes) {
				t.Errorf("the status was %s and is %s", before, after)
			}
			if _, out, _ := headway(t, "status"); !strings.Contains(out, "replay") || !strings.Contains(out, "10 records from") {
				t.Errorf("status:\n%s", out)
			}
			if _, out, _ := headway(t, "runs"); !strings.Contains(out, "replay drained") {
				t.Errorf("runs:\n%s", out)
			}

			checks(t)
			if all := collects(t, exitOK); strings.Contains(all, "the sink changed") {
				t.Errorf("a run after it:\n%s", all)
			}
			counts(siteDocs)
			s.update()
			collects(t, exitOK)
			counts(2 * siteDocs)
		})
	}
}

func TestWhatAReplayCopiesIsWhatWasCollected(t *testing.T) {
	s, write := kept(t)
	s.write(t, "", "sink: {jsonl: {dir: ./out}}", streamYAML{more: incremental + detail})
	replays(t, exitOK)
	copied, err := os.ReadFile("out/docs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	write("jsonl: {dir: ./fetched}")
	if code, out, errs := headway(t, "collect", "c.yaml", "--fresh"); code != exitOK {
		t.Fatal(out, errs)
	}
	fetched, err := os.ReadFile("fetched/docs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := sortedLines(t, copied), sortedLines(t, fetched); got != want {
		t.Errorf("copied\n%swant\n%s", got, want)
	}
}

// sortedLines are JSON lines with their fields sorted.
func sortedLines(t *testing.T, lines []byte) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(string(lines)) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		sorted, _ := json.Marshal(v)
		b.Write(append(sorted, '\n'))
	}
	return b.String()
}

func TestAReplayAfterARunLeavesWhatIsNewer(t *testing.T) {
	s, write := kept(t)
	write("sqlite: {file: new.db}")
	s.update()
	collects(t, exitOK, "`headway replay`")
	if n := query(t, "new.db", "SELECT count(*) || sum(version) FROM docs"); n != "55" {
		t.Errorf("docs and versions: %s", n)
	}
	replays(t, exitOK)
	if n := query(t, "new.db", "SELECT count(*) || sum(version) || (SELECT count(*) FROM messages) FROM docs"); n != "555" {
		t.Errorf("docs, versions and messages: %s", n)
	}
	// What can only append has no room for what is older.
	s, write = kept(t)
	write("jsonl: {dir: ./out}")
	collects(t, exitOK) // nothing is new
	s.update()
	collects(t, exitOK)
	replays(t, exitUsage, "jsonl in ./out has records of this connection already", "--fresh", "a sqlite or postgres sink")
}

func TestAReplayIntoAnAppendingSinkAfterARunThatWroteNothing(t *testing.T) {
	_, write := kept(t)
	write("jsonl: {dir: ./out}")
	collects(t, exitOK, "`headway replay` while nothing else was written here")
	replays(t, exitOK, "10 records")
	if n := rows(t, "docs"); n != siteDocs {
		t.Errorf("%d docs", n)
	}
}

func TestWhatCannotBeReplayedIsSaid(t *testing.T) {
	s := newSite(t)
	write := func(sink string) { s.write(t, "", "sink: {"+sink+"}", streamYAML{more: incremental}) }
	write("sqlite: {file: data.db}")
	replays(t, exitUsage, "nothing was collected from here yet")
	collects(t, exitOK)
	replays(t, exitUsage, "is the only sink that the connection had")
	write("singer: {}")
	replays(t, exitUsage, "cannot be replayed into standard output (Singer)", "--fresh")
	write("jsonl: {dir: ./out}")
	if err := os.Rename("data.db", "archive.db"); err != nil {
		t.Fatal(err)
	}
	replays(t, exitUsage, "no such file", "--from")
	if err := os.WriteFile("text.db", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	replaysWith(t, []string{"--from", "text.db"}, exitUsage, "holds no records of the connection")
	if err := os.WriteFile("text.db", []byte(strings.Repeat("no database\n", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	replaysWith(t, []string{"--from", "text.db"}, exitUsage, "text.db is not an SQLite file", "--from")
	replaysWith(t, []string{"--from", "archive.db"}, exitOK, "5 records")
	if n := rows(t, "docs"); n != siteDocs {
		t.Errorf("%d docs", n)
	}
	for _, former := range []string{"jsonl: {dir: ./first}", "parquet: {dir: ./parquet}", "singer: {}", "airbyte: {}"} {
		write(former)
		if code, out, errs := headway(t, "collect", "c.yaml", "--fresh"); code != exitOK {
			t.Fatal(out, errs)
		}
		write("jsonl: {dir: ./next}")
		replays(t, exitUsage, "what was collected went to "+strings.SplitN(former, ":", 2)[0], "from a sqlite or postgres sink only", "--fresh")
		write("sqlite: {}")
		replays(t, exitUsage, "from a sqlite or postgres sink only")
	}
}

func TestASinkThatTheConnectionWentBackToTakesNoReplay(t *testing.T) {
	s, write := kept(t)
	write("sqlite: {file: new.db}")
	s.update()
	collects(t, exitOK)
	write("sqlite: {file: data.db}")
	replays(t, exitUsage, "was this connection's sink before", "--fresh")
	collects(t, exitOK)
	replays(t, exitUsage, "was this connection's sink before", "--fresh")
}

func TestAReplayAsJSON(t *testing.T) {
	_, write := kept(t)
	write("jsonl: {dir: ./out}")
	code, out, errs := headway(t, "replay", "c.yaml", "--json")
	var line struct {
		Type    string
		Summary struct {
			State  string
			Total  int64
			Replay struct {
				State    string
				Records  int64
				From, To struct{ Kind, Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &line); err != nil || code != exitOK {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	r := line.Summary.Replay
	if line.Type != "summary" || line.Summary.State != "drained" || line.Summary.Total != 10 || r.State != "done" || r.Records != 10 ||
		r.From.Kind != "sqlite" || r.To.Path != "./out" {
		t.Errorf("%s", out)
	}
}

// TestNoRunBeginsBesideAnUnfinishedReplay puts a replay on record as unfinished,
// as a kill in the middle of one leaves it.
func TestNoRunBeginsBesideAnUnfinishedReplay(t *testing.T) {
	s, write := kept(t)
	write("jsonl: {dir: ./out}")
	replays(t, exitOK)
	db, err := sql.Open("sqlite", "file:.headway/state.db")
	if err != nil {
		t.Fatal(err)
	}
	done, err := db.ExecContext(t.Context(), `UPDATE connections SET replays = replace(replays, '"done"', '"unfinished"')`)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := done.RowsAffected(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s.asked("")
	collects(t, exitUsage, "is not finished", "finish it with `headway replay`, or start over with --fresh")
	if n := s.asked(""); n != 0 {
		t.Errorf("%d requests", n)
	}
}
