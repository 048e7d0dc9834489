//go:build unix

package cli

import (
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/store/sqlite"
)

// nobody is a user without rights of its own.
const nobody = 65534

// TestStatusNeedsNoWriteAccess runs itself again as nobody where it runs as root,
// for whom nothing is read-only.
func TestStatusNeedsNoWriteAccess(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t)
		return
	}
	path := owing(t)
	readOnly(t, path)
	for _, command := range []string{"status", "runs", "rate", "gaps list"} {
		if code, _, errs := headway(t, append(strings.Fields(command), "--state", path)...); code != 0 {
			t.Errorf("%s: exit %d, %s", command, code, errs)
		}
	}
}

// TestADeadHolderIsSeenWithoutWriteAccess: who may only read learns of a lease
// whose process is gone as well as who may write.
func TestADeadHolderIsSeenWithoutWriteAccess(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t)
		return
	}
	path := filepath.Join(t.TempDir(), "state.db")
	store, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Acquire(t.Context(), collect.LeaseRequest{
		Connection: "acme", Run: "r1", Holder: "the dead", Now: time.Now(), TTL: time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil { // its locks end as with the process
		t.Fatal(err)
	}
	readOnly(t, path)
	for _, command := range []string{"status", "runs"} {
		code, out, errs := headway(t, command, "--state", path)
		if code != 0 || strings.Contains(out, "the dead") || !strings.Contains(out, "abandoned") {
			t.Errorf("%s: exit %d, %s%s", command, code, out, errs)
		}
	}
}

// readOnly takes the right to write a state and what is beside it.
func readOnly(t *testing.T, path string) {
	t.Helper()
	dir := filepath.Dir(path)
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.Chmod(file, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "more"), nil, 0o600); err == nil {
		t.Fatal("the folder can be written, so the test shows nothing")
	}
}

// asNobody runs the test that calls it in a process of another user.
func asNobody(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "nobody") //nolint:usetesting // the other user cannot enter the test's own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "test")
	if err := os.WriteFile(copied, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), copied, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}

// update changes every doc, so that a run writes all of them again.
func (s *site) update() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
}

func TestRotatedFilesAreFollowedByNewOnes(t *testing.T) {
	s := newSite(t)
	s.write(t, "", "", streamYAML{more: incremental})
	collects(t, exitOK)
	if err := os.Rename("out/docs.jsonl", "out/docs.jsonl.1"); err != nil {
		t.Fatal(err)
	}
	s.update()
	const says = "stream docs: its file was moved away or emptied since the last run"
	if all := collects(t, exitOK, says); strings.Count(all, says) != 2 {
		t.Errorf("want it at the start and in the summary:\n%s", all)
	}
	if n := rows(t, "docs"); n != siteDocs {
		t.Errorf("%d docs in the new file, want %d", n, siteDocs)
	}
	s.update()
	if all := collects(t, exitOK); strings.Contains(all, "moved away") || rows(t, "docs") != 2*siteDocs {
		t.Errorf("%d docs after the next run, which says\n%s", rows(t, "docs"), all)
	}
	// A file that was cut is not a new one.
	if err := os.Truncate("out/docs.jsonl", 10); err != nil {
		t.Fatal(err)
	}
	collects(t, exitInternal, "has 10 bytes of the", "so it was truncated", "move it away and run again")
	if err := os.Rename("out/docs.jsonl", "out/cut"); err != nil {
		t.Fatal(err)
	}
	collects(t, exitOK, "moved away")
}

func TestAnotherSinkIsNoticed(t *testing.T) {
	s := newSite(t)
	write := func(sink string) { s.write(t, "", "sink: {"+sink+"}", streamYAML{more: incremental}) }
	write("jsonl: {dir: ./out}")
	checks(t)
	collects(t, exitOK)
	write("jsonl: {dir: ./second}")
	checks(t, "it is jsonl in ./second and was jsonl in ./out", "collected from now on", "collect with --fresh, which fetches all of it again")
	collects(t, exitOK, "the sink changed: it is another one; it gets what is collected from now on", "it is jsonl in ./second and was jsonl in ./out")
	checks(t)
	s.update()
	if all := collects(t, exitOK); strings.Contains(all, "the sink") {
		t.Errorf("it is said twice:\n%s", all)
	}
	if b, err := os.ReadFile("second/docs.jsonl"); err != nil || strings.Count(string(b), "\n") != siteDocs || rows(t, "docs") != siteDocs {
		t.Errorf("the second has %q, %v", b, err)
	}
	write("parquet: {dir: ./out}")
	checks(t, "it is parquet in ./out and was jsonl in ./second")
	collects(t, exitOK, "it is parquet in ./out and was jsonl in ./second")
	write("sqlite: {}")
	checks(t, "it is sqlite in the state file and was parquet in ./out")
	collects(t, exitOK, "it is sqlite in the state file and was parquet in ./out")
	// Back to the first one, which goes on where it was.
	write("jsonl: {dir: ./out}")
	checks(t, "the sink changed back")
	s.update()
	collects(t, exitOK, "the sink changed back", "it goes on where it was")
	if n := rows(t, "docs"); n != 2*siteDocs {
		t.Errorf("%d docs in the first, want %d", n, 2*siteDocs)
	}
	// A folder that was renamed with what is in it.
	if err := os.Rename("out", "third"); err != nil {
		t.Fatal(err)
	}
	write("jsonl: {dir: ./third}")
	s.update()
	collects(t, exitOK, "the sink's files are at another place, and it continues with them")
	if b, err := os.ReadFile("third/docs.jsonl"); err != nil || strings.Count(string(b), "\n") != 3*siteDocs {
		t.Errorf("the renamed one has %q, %v", b, err)
	}
}

// query is the one value of a query on a file.
func query(t *testing.T, file, query string) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var v string
	if err := db.QueryRowContext(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func TestTheStateStaysInOnePlaceWhateverTheSink(t *testing.T) {
	s := newSite(t)
	s.write(t, "", "sink: {sqlite: {file: data.db}}", streamYAML{more: incremental + detail})
	collects(t, exitOK)
	if n := query(t, "data.db", "SELECT count(*) FROM docs"); n != "5" {
		t.Errorf("%s docs", n)
	}
	for _, command := range []string{"status", "runs", "rate", "gaps list"} {
		code, out, errs := headway(t, strings.Fields(command)...)
		if code != 0 || command != "gaps list" && !strings.Contains(out, "site") {
			t.Errorf("%s: exit %d, %s%s", command, code, out, errs)
		}
	}
	code, _, errs := headway(t, "status", "--state", "data.db")
	if code == 0 || !strings.Contains(errs, "holds the records of a sqlite sink, and no state") {
		t.Errorf("the state of the records: exit %d, %s", code, errs)
	}
	s.update()
	collects(t, exitOK)
	if n := query(t, "data.db", "SELECT count(*) || sum(version) FROM docs"); n != "55" {
		t.Errorf("docs and versions: %s", n)
	}
	// Moved away, it is followed by a new one.
	if err := os.Rename("data.db", "archive.db"); err != nil {
		t.Fatal(err)
	}
	s.update()
	collects(t, exitOK, "its file was moved away")
	if n := query(t, "data.db", "SELECT count(*) FROM docs"); n != "5" {
		t.Errorf("%s docs in the new file", n)
	}
}

// TestAFileThatHoldsBothIsMovedApart: an earlier version kept the state in the
// sink's file.
func TestAFileThatHoldsBothIsMovedApart(t *testing.T) {
	s := newSite(t)
	s.fail = true
	s.write(t, "", "sink: {sqlite: {file: data.db}}", streamYAML{more: incremental + detail})
	if code, out, errs := headway(t, "collect", "c.yaml", "--state", "data.db"); code != exitDeferred && code != exitIncomplete {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	was := query(t, "data.db", "SELECT count(*) || (SELECT count(*) FROM gaps) || (SELECT count(*) FROM events) FROM items")
	// Together on purpose, all commands find it.
	if code, out, _ := headway(t, "status", "--state", "data.db"); code != 0 || !strings.Contains(out, "5 items") {
		t.Errorf("status: exit %d: %s", code, out)
	}
	s.mu.Lock()
	s.fail = false
	s.mu.Unlock()
	checks(t, "the state of site is in data.db with its records: the next run moves it to .headway/state.db")
	code, out, errs := headway(t, "collect", "c.yaml")
	if code != exitDeferred && code != exitIncomplete || !strings.Contains(errs, "the state of site was in data.db with its records; it is in .headway/state.db now") {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	if is := query(t, ".headway/state.db", "SELECT count(*) || (SELECT count(*) FROM gaps) || (SELECT count(*) FROM events WHERE run = 1) FROM items"); is != was {
		t.Errorf("items, gaps and events: %s were moved of %s", is, was)
	}
	if n := query(t, "data.db", "SELECT (SELECT count(*) FROM connections) || (SELECT count(*) FROM docs)"); n != "05" {
		t.Errorf("left are connections and docs: %s", n)
	}
	if code, _, errs := headway(t, "gaps", "retry", "--all"); code != 0 {
		t.Error(errs)
	}
	collects(t, exitOK)
	if n := query(t, "data.db", "SELECT count(*) FROM messages"); n != "5" {
		t.Errorf("%s messages", n)
	}
	if all := collects(t, exitOK); strings.Contains(all, "the state of") || strings.Contains(all, "sink") {
		t.Errorf("it is said twice:\n%s", all)
	}
}

func TestNamesThatClashWithTheSinkAreRefusedWhereTheyStand(t *testing.T) {
	s := newSite(t)
	const clashes = "    detail: {stream: sqlite_x, path: \"/docs/{key}\", records: .messages, key: .id}\n"
	for _, tt := range []struct {
		sink, stream string
		says         []string
	}{
		{"sqlite: {}", "items", []string{
			`c.yaml:8:11: streams[0].name: is "items", which cannot be a stream of this sink: the store has a table of that name; rename`,
			`c.yaml:12:22: streams[0].detail.stream: is "sqlite_x"`,
		}},
		{"sqlite: {}", "Events", []string{`streams[0].name: is "Events"`}},
		{"sqlite: {file: data.db}", "headway_x", []string{`streams[0].name: is "headway_x"`, "reserved"}},
		{"sqlite: {file: data.db}", "x_BAK", []string{`streams[0].name: is "x_BAK"`, "set aside"}},
	} {
		s.write(t, "", "sink: {"+tt.sink+"}", streamYAML{name: tt.stream, more: clashes})
		for _, command := range []string{"check", "collect"} {
			code, _, errs := headway(t, command, "c.yaml")
			if code != exitUsage {
				t.Errorf("%s of %s into %s: exit %d", command, tt.stream, tt.sink, code)
			}
			for _, want := range tt.says {
				if !strings.Contains(errs, want) {
					t.Errorf("%s of %s into %s does not say %q:\n%s", command, tt.stream, tt.sink, want, errs)
				}
			}
		}
	}
	// In a file of its own there are no tables of the store.
	s.write(t, "", "sink: {sqlite: {file: data.db}}", streamYAML{name: "items"})
	collects(t, exitOK)
}
