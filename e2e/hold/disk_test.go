//go:build linux

package hold_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	_ "modernc.org/sqlite" // reads and changes state files

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/sim/serve"
)

// large is more data than the small disks here have room for; the first 150
// requests are for a small part of it.
var large = serve.Options{Seed: 4, Conversations: 600, Messages: 8, Token: harness.Token}

// fast asks for large pages: the disk is what is looked at.
var fast = connection{page: 100, ceiling: "1ms", provider: "  max_body: 16MiB\n"}

// bounded is the variable that makes this test binary a program that limits
// itself to files of that many bytes, and becomes its arguments.
const bounded = "HEADWAY_HOLD_FILE_LIMIT"

// becomeBounded replaces this process. A limit on files holds for all that come
// after in a process, so the test itself cannot set it.
func becomeBounded() {
	size, err := strconv.ParseUint(os.Getenv(bounded), 10, 64)
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: size})
	}
	if err == nil {
		err = syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "e2e:", err)
	os.Exit(1)
}

// broke holds the end of a run that met a bad disk against what was there
// before: the state and its backups are as they were, output has at most grown.
func broke(t *testing.T, o harness.Outcome, before map[string]string, texts ...string) {
	t.Helper()
	if o.Code != harness.ExitInternal {
		t.Errorf("want exit code %d: %s", harness.ExitInternal, o)
	}
	says(t, o, texts...)
	unspoken(t, o)
	for path, text := range before {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("what was there is gone: %v", err)
		} else if !strings.HasPrefix(string(b), text) {
			t.Errorf("%s had %d bytes and has %d now, and does not begin with what it was", path, len(text), len(b))
		}
	}
}

// untouched is broke where nothing may even grow.
func untouched(t *testing.T, o harness.Outcome, before map[string]string, texts ...string) {
	t.Helper()
	broke(t, o, before, texts...)
	for path, old := range before {
		if b, err := os.ReadFile(path); err != nil || string(b) != old {
			t.Errorf("%s was changed: %d bytes before, %d now, %v", path, len(old), len(b), err)
		}
	}
}

// within starts a collection that may write no file beyond so many bytes.
func (w workplace) within(t *testing.T, size int) harness.Outcome {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return harness.LaunchAs(t, nil, w.Dir, append(w.Env, fmt.Sprintf("%s=%d", bounded, size)), self, harness.Program(), "collect", "conn.yaml").Wait(t)
}

func TestFileSizeLimitForTheOutput(t *testing.T) {
	t.Parallel()
	s := newSite(t, large)
	w := newWorkplace(t, s.URL, fast)
	if o := w.Collect(t, "--max-requests", "150"); o.Code != harness.ExitDeferred {
		t.Fatalf("while there was room: %s", o)
	}
	before := w.files(t, "out")
	largest := 0
	for _, text := range before {
		largest = max(largest, len(text))
	}
	broke(t, w.within(t, largest+20_000), before, "messages.jsonl", "may not grow further", "raise the limit, then run again", "what was committed is kept")
	w.healed(t, truthOf(t, large))
}

// The records go into a pipe here, so that the state is all there is to limit.
func TestFileSizeLimitForTheState(t *testing.T) {
	t.Parallel()
	s := newSite(t, large)
	piped := fast
	piped.sink = "{singer: {}}"
	w := newWorkplace(t, s.URL, piped)
	first := w.Collect(t, "--max-requests", "150")
	if first.Code != harness.ExitDeferred {
		t.Fatalf("while there was room: %s", first)
	}
	second := w.within(t, len(w.files(t, ".headway")[w.State()])+8192)
	broke(t, second, nil, "state.db", "then run again", "what was committed is kept")
	last := w.Collect(t)
	if last.Code != harness.ExitDrained {
		t.Errorf("when there was room again: %d: %s", last.Code, last.Stderr)
	}
	// A pipe takes nothing back: what was not committed comes a second time.
	// What Singer adds to a record is not looked at.
	want := truthOf(t, large)
	all := map[string]map[string]string{"conversations": want.Conversations, "messages": want.Messages}
	got := map[string]map[string]string{"conversations": {}, "messages": {}}
	for line := range strings.Lines(first.Stdout + second.Stdout + last.Stdout) {
		var message struct {
			Type, Stream string
			Record       json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &message); err != nil {
			t.Fatalf("%q is not a message: %v", line, err)
		}
		if message.Type == "RECORD" {
			id, _ := harness.Spell(t, message.Record)
			got[message.Stream][id] = all[message.Stream][id]
		}
	}
	for stream, want := range all {
		harness.Same(t, stream, got[stream], want)
	}
}

// tmpfs mounts a small disk, or reports that this process may not.
func tmpfs(t *testing.T, at, options string) bool {
	t.Helper()
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	err := syscall.Mount("tmpfs", at, "tmpfs", 0, options)
	if errors.Is(err, fs.ErrPermission) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return true
}

// fill takes what is left of a disk but so many bytes, and gives the file.
func fill(t *testing.T, dir string, but int64) string {
	t.Helper()
	var free syscall.Statfs_t
	if err := syscall.Statfs(dir, &free); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "filling")
	if err := os.WriteFile(path, make([]byte, max(int64(free.Bfree)*free.Bsize-but, 0)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A process that may not mount has the limits on its files instead, as above.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	want := truthOf(t, large)
	for _, c := range []struct {
		name, dir string
		texts     []string
	}{
		{"of the output", "out", []string{"jsonl: ", "no space is left", "then run again", "what was committed is kept"}},
		{"of the state", ".headway", []string{"state.db", "then run again", "what was committed is kept"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, large)
			w := newWorkplace(t, s.URL, fast)
			disk := filepath.Join(w.Dir, c.dir)
			if !tmpfs(t, disk, "size=16m,mode=0755") {
				t.Log("no disk of its own: this user may not mount")
				return
			}
			if o := w.Collect(t, "--max-requests", "150"); o.Code != harness.ExitDeferred {
				t.Fatalf("while there was room: %s", o)
			}
			before := w.files(t, "out")
			filling := fill(t, disk, 64<<10)
			o := w.Collect(t)
			broke(t, o, before, c.texts...)
			// What is there can still be looked at.
			if o := w.headway(t, "status"); o.Code != 0 {
				t.Errorf("status on a full disk: %s", o)
			}
			if err := os.Remove(filling); err != nil {
				t.Fatal(err)
			}
			w.healed(t, want)
		})
	}
}

// nobody is a user who owns nothing here; nil when this process cannot become
// another one, and is bound by permissions itself.
func nobody() *syscall.SysProcAttr {
	if os.Getuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

// modes sets the permissions of a folder and all in it, and of the folders above
// that this test made.
func (w workplace) modes(t *testing.T, below string, folder, file fs.FileMode) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(w.Dir, below), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.Chmod(path, folder)
		}
		return os.Chmod(path, file)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestReadOnlyFolder(t *testing.T) {
	t.Parallel()
	want := truthOf(t, small)
	for _, c := range []struct {
		name, dir string
		texts     []string
	}{
		{"of the state", ".headway", []string{"state.db", "cannot be written", "give this user the right to write", "or name another place"}},
		{"of the output", "out", []string{"out", "cannot be written", "give this user the right to write there", "name another folder"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, small)
			w := newWorkplace(t, s.URL, connection{})
			for dir := w.Dir; dir != os.TempDir() && dir != filepath.Dir(dir) && strings.HasPrefix(dir, os.TempDir()); dir = filepath.Dir(dir) {
				if err := os.Chmod(dir, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(filepath.Join(w.Dir, "conn.yaml"), 0o644); err != nil {
				t.Fatal(err)
			}
			other := w
			other.How = nobody()
			if o := other.Collect(t, "--max-requests", "6"); o.Code != harness.ExitDeferred {
				t.Fatalf("while it could be written: %s", o)
			}
			w.modes(t, c.dir, 0o555, 0o444)
			if os.Getuid() == 0 { // not the owner's any more, who could change it back
				if err := os.Chown(filepath.Join(w.Dir, c.dir), 0, 0); err != nil {
					t.Fatal(err)
				}
			}
			before := w.files(t, c.dir) // a run that failed is on record in a state that can be written
			if c.dir == ".headway" {
				before = w.files(t, ".headway", "out")
			}
			untouched(t, other.Collect(t), before, c.texts...)
			w.modes(t, c.dir, 0o777, 0o666)
			other.healed(t, want)
		})
	}
}

// bad is one way in which a state file is no longer what was written.
type bad struct {
	name  string
	spoil func(t *testing.T, path string)
	texts []string
	// empty says that the file is as if nothing had ever been collected: it may
	// be filled, what was collected may not be touched.
	empty bool
}

var spoiled = []bad{
	{
		name: "corrupt header", spoil: func(t *testing.T, path string) { overwrite(t, path, 0, 100) },
		texts: []string{"state.db", "not an SQLite database", "nothing was changed", "move the file away"},
	},
	{
		name: "corrupt pages", spoil: func(t *testing.T, path string) { overwrite(t, path, 4096, 1<<30) },
		texts: []string{"state.db", "the file is damaged", "from a backup", "--fresh"},
	},
	{
		name: "corrupt schema", spoil: func(t *testing.T, path string) { overwrite(t, path, 100, 3900) },
		texts: []string{"state.db", "the file is damaged", "nothing was changed", "from a backup", "--fresh"},
	},
	{
		name: "truncated to half", spoil: func(t *testing.T, path string) { shorten(t, path, 2) },
		texts: []string{"state.db", "the file is damaged", "from a backup", "--fresh"},
	},
	{
		name: "truncated to less than a page", spoil: func(t *testing.T, path string) { shorten(t, path, 200) },
		texts: []string{"state.db", "damaged", "from a backup"},
	},
	{
		name: "truncated to nothing", spoil: func(t *testing.T, path string) { shorten(t, path, 1<<40) },
		texts: []string{"conversations.jsonl", "did not write", "not changed", "--fresh"},
		empty: true,
	},
	{
		name: "newer version", spoil: func(t *testing.T, path string) { change(t, path, "PRAGMA user_version = 99") },
		texts: []string{"state.db", "it has version 99", "nothing was changed", "upgrade headway"},
	},
	{
		name: "another program's", spoil: func(t *testing.T, path string) { change(t, path, "PRAGMA application_id = 7") },
		texts: []string{"state.db", "another program", "nothing was changed", "name another file"},
	},
}

func overwrite(t *testing.T, path string, from, most int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < min(len(b), from+most); i++ {
		b[i] = 0xa5
	}
	harness.Write(t, path, string(b))
}

func shorten(t *testing.T, path string, by int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()/by)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// change runs a statement on a state file and leaves no log beside it.
func change(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"PRAGMA journal_mode = delete", statement} {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSpoiledState(t *testing.T) {
	t.Parallel()
	want := truthOf(t, small)
	for _, c := range spoiled {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, small)
			w := newWorkplace(t, s.URL, connection{})
			if o := w.Collect(t, "--max-requests", "12"); o.Code != harness.ExitDeferred { // two pages and their details
				t.Fatalf("while it was whole: %s", o)
			}
			whole := w.files(t, ".headway")[w.State()]
			c.spoil(t, w.State())
			before := w.files(t, ".headway", "out")
			if c.empty {
				before = w.files(t, "out")
			}
			untouched(t, w.Collect(t), before, c.texts...)
			untouched(t, w.Collect(t), before, c.texts...) // the second time is no different
			for _, look := range [][]string{{"status"}, {"runs"}, {"gaps", "list"}, {"rate"}} {
				if o := w.headway(t, look...); (o.Code == 0) != c.empty {
					t.Errorf("%v takes it for whole: %s", look, o)
				}
			}
			// With the backup back in place it goes on.
			harness.Write(t, w.State(), whole)
			w.healed(t, want)
		})
	}
}
