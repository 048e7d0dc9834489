package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/store/sqlite"
)

func TestOpenCreatesForTheOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "state.db")
	s := open(t, path)
	fill(t, s, "c", "r1", 1)
	for name, want := range map[string]fs.FileMode{
		filepath.Dir(filepath.Dir(path)): fs.ModeDir | 0o700, filepath.Dir(path): fs.ModeDir | 0o700,
		path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600,
	} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %s, want %s", name, info.Mode(), want)
		}
	}
}

func TestOpenTakesAnyPath(t *testing.T) {
	for _, name := range []string{"with space.db", "what?.db", "a#b.db", "100%25.db", "a&mode=memory.db", "ünï.db", "-dash.db"} {
		path := filepath.Join(t.TempDir(), name)
		fill(t, open(t, path), "c", "r1", 1)
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	t.Chdir(t.TempDir())
	fill(t, open(t, "relative.db"), "c", "r1", 1)
	if _, err := os.Stat("relative.db"); err != nil {
		t.Error(err)
	}
}

func TestStateSurvivesReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, "c", "r1", 10)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if err := s.Commit(t.Context(), collect.Lease{}, collect.Commit{}); err == nil {
		t.Error("a closed store took a commit")
	}
	s = open(t, path)
	status, err := s.Connections(t.Context())
	if err != nil || len(status) != 1 || status[0].Items["x"] != 10 {
		t.Errorf("after reopening: %+v, %v; want 10 items", status, err)
	}
	// The store that had the lease is closed: nobody is there to wait for.
	if l, err := s.Acquire(t.Context(), request("c", "r2", time.Now())); err != nil || l.Token != 2 {
		t.Errorf("the lease of a closed store: got %+v, %v; want token 2", l, err)
	}
}

// TestOpenLeavesWhatItCannotUse opens files that are not a store of this version:
// each is a clear error for writer and reader, and each file stays as it was.
func TestOpenLeavesWhatItCannotUse(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, path string)
		want []string
	}{
		{"a text file", func(t *testing.T, path string) { write(t, path, []byte(strings.Repeat("dear diary\n", 1000))) },
			[]string{"not an SQLite database", "nothing was changed", "move the file away"}},
		{"a short text file", func(t *testing.T, path string) { write(t, path, []byte("dear diary")) },
			[]string{"not an SQLite database", "move the file away"}},
		{"another program's database", func(t *testing.T, path string) { execute(t, path, "CREATE TABLE diary (day TEXT)") },
			[]string{"another program", "1 tables", "name another file"}},
		{"another program's marked database", func(t *testing.T, path string) { execute(t, path, "PRAGMA application_id = 7", "VACUUM") },
			[]string{"another program", "application id 7"}},
		{"a newer version", func(t *testing.T, path string) { store(t, path); execute(t, path, "PRAGMA user_version = 42") },
			[]string{"version 42", "knows version ", "upgrade headway"}},
		{"a store cut in half", func(t *testing.T, path string) { store(t, path); truncate(t, path, 2) },
			[]string{"damaged", "backup", ".recover", "--fresh"}},
		{"a store whose first page is overwritten", func(t *testing.T, path string) { store(t, path); overwrite(t, path, 100, 4000) },
			[]string{"damaged", "backup"}},
		{"a store whose header is overwritten", func(t *testing.T, path string) { store(t, path); overwrite(t, path, 0, 100) },
			[]string{"not an SQLite database"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			c.make(t, path)
			before := read(t, path)
			_, err := sqlite.Open(t.Context(), path)
			says(t, "Open", err, append(c.want, path)...)
			_, err = sqlite.OpenReader(t.Context(), path)
			says(t, "OpenReader", err, append(c.want, path)...)
			if !bytes.Equal(before, read(t, path)) {
				t.Error("the file was changed")
			}
		})
	}
}

// TestDamageFoundLate spoils pages that Open does not look at.
func TestDamageFoundLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	store(t, path)
	overwrite(t, path, 8*4096, 1<<20)
	s, err := sqlite.Open(t.Context(), path)
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
		keys := make([]string, 0, 20000)
		for i := range cap(keys) {
			keys = append(keys, key(i))
		}
		_, err = s.Known(t.Context(), "c", "x", keys)
	}
	says(t, "reading", err, "damaged", "backup", ".recover")
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	_, err := sqlite.Open(t.Context(), dir)
	says(t, "Open of a folder", err, "not a file", dir)
	_, err = sqlite.Open(t.Context(), "")
	says(t, "Open of nothing", err, "the path is empty")
	write(t, filepath.Join(dir, "file"), []byte("x"))
	_, err = sqlite.Open(t.Context(), filepath.Join(dir, "file", "state.db"))
	says(t, "Open below a file", err, "it is a file: name a folder")
}

func TestOpenReaderCreatesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "state.db"), filepath.Join(dir, "sub", "state.db")} {
		if _, err := sqlite.OpenReader(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want fs.ErrNotExist", err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("it created %v", left)
	}
	// What a process that was killed while it created the store leaves.
	path := filepath.Join(dir, "empty.db")
	write(t, path, nil)
	if _, err := sqlite.OpenReader(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty file: got %v, want fs.ErrNotExist", err)
	}
	execute(t, path, "PRAGMA journal_mode = wal")
	if _, err := sqlite.OpenReader(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("file without a schema: got %v, want fs.ErrNotExist", err)
	}
	fill(t, open(t, path), "c", "r1", 1)
}

func TestReaderReadsWhileARunWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	l := fill(t, s, "c", "r1", 3)
	r, err := sqlite.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	for n := range 3 {
		if err := s.Commit(t.Context(), l, collect.Commit{At: time.Now(), Progress: collect.Progress{Pages: int64(n)}}); err != nil {
			t.Fatal(err)
		}
		runs, err := r.Runs(t.Context(), "c", 1)
		if err != nil || len(runs) != 1 || runs[0].Pages != int64(n) {
			t.Errorf("after commit %d the reader shows %+v, %v", n, runs, err)
		}
	}
}

func TestConcurrentOpensOfANewStore(t *testing.T) {
	for range 5 {
		path := filepath.Join(t.TempDir(), "new", "state.db")
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				s, err := sqlite.Open(t.Context(), path)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Acquire(t.Context(), request(fmt.Sprintf("c%d", i), fmt.Sprintf("r%d", i), time.Now())); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		status, err := open(t, path).Connections(t.Context())
		if err != nil || len(status) != 8 {
			t.Errorf("%d connections, %v; want 8", len(status), err)
		}
	}
}

func TestTwoHandlesShareOneStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	a, b := open(t, path), open(t, path)
	old := fill(t, a, "c", "r1", 3)
	if _, err := b.Acquire(t.Context(), request("c", "r2", time.Now())); !isHeld(err) {
		t.Fatalf("the other handle got %v, want *collect.HeldError", err)
	}
	next, err := b.Acquire(t.Context(), request("c", "r2", time.Now().Add(2*time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(t.Context(), old, collect.Commit{At: time.Now()}); !errors.Is(err, collect.ErrLeaseLost) {
		t.Errorf("the holder that was taken over got %v, want collect.ErrLeaseLost", err)
	}
	if err := b.Commit(t.Context(), next, collect.Commit{At: time.Now()}); err != nil {
		t.Error(err)
	}
}

// TestWaitForAnotherWriterEndsWithTheContext holds the file's write lock.
func TestWaitForAnotherWriterEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	l := fill(t, s, "c", "r1", 3)
	db := raw(t, path)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	err = s.Commit(ctx, l, collect.Commit{At: time.Now()})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want context.DeadlineExceeded", err)
	}
	if _, err := s.Runs(t.Context(), "c", 1); err != nil {
		t.Errorf("a reader waited for the writer: %v", err)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), l, collect.Commit{At: time.Now()}); err != nil {
		t.Errorf("after the other writer ended: %v", err)
	}
}

// TestSpoiledValuesDoNotBlock writes into the file what no version writes.
func TestSpoiledValuesDoNotBlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	l := fill(t, s, "c", "r1", 3)
	execute(t, path, "UPDATE connections SET pacing_version = 9, pacing_recorded_at = 'yesterday', pacing_state = x'ff00', pacing_parts = x'7b', sink = x'7b'",
		"UPDATE runs SET progress = 'many', reason = 'mood', started = 'then'", "UPDATE gaps SET reason = '', first_seen = 'x'",
		"UPDATE events SET event = '{'", "UPDATE lanes SET start = '9'")
	state, err := s.Load(t.Context(), "c")
	if err != nil || string(state.Sink) != "{" || state.Pacing == nil || state.Pacing.State != nil || !state.Pacing.RecordedAt.IsZero() {
		t.Errorf("Load: %+v, %v", state, err)
	}
	if runs, err := s.Runs(t.Context(), "", 0); err != nil || len(runs) != 1 {
		t.Errorf("Runs: %+v, %v", runs, err)
	}
	if gaps, err := s.Gaps(t.Context(), collect.GapFilter{}); err != nil || len(gaps) != 1 {
		t.Errorf("Gaps: %+v, %v", gaps, err)
	}
	if _, err := s.Events(t.Context(), "r1"); err != nil {
		t.Errorf("Events: %v", err)
	}
	if status, err := s.Connections(t.Context()); err != nil || len(status) != 1 {
		t.Errorf("Connections: %+v, %v", status, err)
	}
	if err := s.Commit(t.Context(), l, collect.Commit{At: time.Now()}); err != nil {
		t.Errorf("Commit: %v", err)
	}
}

func execute(t *testing.T, path string, statements ...string) {
	t.Helper()
	db := raw(t, path)
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// raw is the file without the store in front of it.
func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// BenchmarkCommitPage is one slice of 100 new items, durable.
func BenchmarkCommitPage(b *testing.B) { benchmarkCommit(b, 100) }

// BenchmarkCommitLargePage is one slice of 1,000 new items, durable.
func BenchmarkCommitLargePage(b *testing.B) { benchmarkCommit(b, 1000) }

func benchmarkCommit(b *testing.B, size int) {
	s := open(b, filepath.Join(b.TempDir(), "state.db"))
	l, err := s.Acquire(b.Context(), request("c", "r", time.Now()))
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		if err := s.Commit(b.Context(), l, page(n, size)); err != nil {
			b.Fatal(err)
		}
		n += size
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "items/s")
}

// BenchmarkKnown asks for 100 keys, half of them known, among 100,000.
func BenchmarkKnown(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "state.db"))
	l, err := s.Acquire(b.Context(), request("c", "r", time.Now()))
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Commit(b.Context(), l, page(0, 100_000)); err != nil {
		b.Fatal(err)
	}
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = key(i * 2000)
	}
	for b.Loop() {
		known, err := s.Known(b.Context(), "c", "x", keys)
		if err != nil || len(known) != 50 {
			b.Fatal(len(known), err)
		}
	}
}

// BenchmarkGapPages walks 20,000 gaps in pages of 100.
func BenchmarkGapPages(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "state.db"))
	l, err := s.Acquire(b.Context(), request("c", "r", time.Now()))
	if err != nil {
		b.Fatal(err)
	}
	c := collect.Commit{At: time.Now()}
	for i := range 20_000 {
		c.Opened = append(c.Opened, collect.Gap{GapKey: collect.GapKey{Stream: "d", Key: key(i)}, Locator: []byte(key(i))})
	}
	if err := s.Commit(b.Context(), l, c); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		f := collect.GapFilter{Connection: "c", Status: collect.GapPending, Limit: 100}
		n := 0
		for {
			gaps, err := s.Gaps(b.Context(), f)
			if err != nil {
				b.Fatal(err)
			}
			if len(gaps) == 0 {
				break
			}
			n, f.AfterID = n+len(gaps), gaps[len(gaps)-1].ID
		}
		if n != 20_000 {
			b.Fatal(n)
		}
	}
}
