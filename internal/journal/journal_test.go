package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/internal/ledger"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/reason"
)

func options() journal.Options {
	return journal.Options{
		Header: journal.Header{
			Load:   "7f",
			Input:  journal.Input{Name: "rows.jsonl", Format: "jsonl", Size: 100, Hash: "abc"},
			Target: "upsert contacts",
		},
		RejectsPreamble: "{\"rejects\":1}\n", UncertainPreamble: "{\"uncertain\":1}\n",
	}
}

func open(t testing.TB, dir string) (*journal.Journal, journal.State) {
	t.Helper()
	j, s, err := journal.Open(dir, options())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j, s
}

func write(t testing.TB, j *journal.Journal, entries ...journal.Entry) {
	t.Helper()
	if err := j.Write(entries...); err != nil {
		t.Fatal(err)
	}
}

func rows(first, last int64) []ledger.Span { return []ledger.Span{{First: first, Last: last}} }

// state is what a test looks at.
func state(s journal.State) string {
	return fmt.Sprint(s.Settled.Spans(), s.Counts, s.Open, s.LastBatch, s.Rows)
}

func content(t testing.TB, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

// some writes a few entries of every kind.
func some(t testing.TB, j *journal.Journal) {
	t.Helper()
	write(t, j, journal.Entry{Batch: 1, Sent: rows(0, 9)}, journal.Entry{Batch: 2, Sent: rows(10, 19)})
	write(t, j, journal.Entry{Batch: 2, Acknowledged: rows(10, 18), Rejected: rows(19, 19), Rejects: []byte("{\"row\":19}\n")})
	write(t, j, journal.Entry{Rejected: rows(20, 20), Rejects: []byte("{\"row\":20}\n")})
	write(t, j, journal.Entry{Batch: 3, Sent: rows(21, 22)}, journal.Entry{Batch: 3})
	write(t, j, journal.Entry{Batch: 4, Sent: rows(21, 22)}, journal.Entry{Batch: 4, Uncertain: rows(21, 22), Doubts: []byte("{\"row\":21}\n{\"row\":22}\n")})
	write(t, j, journal.Entry{End: true, Rows: 23})
}

func TestALoadGoesOnWhereItWas(t *testing.T) {
	dir := t.TempDir()
	j, s := open(t, dir)
	if got := state(s); got != "[] {0 0 0} [] 0 -1" {
		t.Fatalf("a new load is %s", got)
	}
	some(t, j)
	want := "[10-22] {9 2 2} [{1 [0-9]}] 4 23"
	if got := state(j.State()); got != want {
		t.Fatalf("the state is %s, want %s", got, want)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	again, s := open(t, dir)
	if got := state(s); got != want || s.Complete() || s.Header != options().Header {
		t.Fatalf("it continues with %s of %+v, want %s", got, s.Header, want)
	}
	write(t, again, journal.Entry{Batch: 1, Acknowledged: rows(0, 9)})
	if s := again.State(); !s.Complete() || s.Counts.Acknowledged != 19 {
		t.Errorf("%+v is not complete", s)
	}
	if got := content(t, dir, journal.RejectsFile); got != "{\"rejects\":1}\n{\"row\":19}\n{\"row\":20}\n" {
		t.Errorf("the reject file holds %q", got)
	}
	if got := content(t, dir, journal.UncertainFile); got != "{\"uncertain\":1}\n{\"row\":21}\n{\"row\":22}\n" {
		t.Errorf("the uncertain file holds %q", got)
	}
}

// Wherever a crash cuts the journal, what is left is read to the last whole
// line, the side files follow it, and the load can be ended.
func TestAJournalCutAtAnyByte(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	some(t, j)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	whole := content(t, dir, journal.File)
	lines := strings.SplitAfter(whole, "\n")
	for cut := len(lines[0]); cut <= len(whole); cut += longtest.Size(3, 1) {
		at := t.TempDir()
		for _, name := range []string{journal.RejectsFile, journal.UncertainFile} {
			if err := os.WriteFile(filepath.Join(at, name), []byte(content(t, dir, name)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(at, journal.File), []byte(whole[:cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := journal.Read(at)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		j, s, err := journal.Open(at, options())
		if err != nil || state(read) != state(s) {
			t.Fatalf("cut at %d: read %s, opened %s, %v", cut, state(read), state(s), err)
		}
		if got := strings.Count(content(t, at, journal.RejectsFile), "\"row\""); int64(got) != s.Counts.Rejected {
			t.Fatalf("cut at %d: %d rejects in the file, %d counted", cut, got, s.Counts.Rejected)
		}
		if got := strings.Count(content(t, at, journal.UncertainFile), "\"row\""); int64(got) != s.Counts.Uncertain {
			t.Fatalf("cut at %d: %d uncertain in the file, %d counted", cut, got, s.Counts.Uncertain)
		}
		var rest []journal.Entry
		for row := range int64(23) {
			if !s.Settled.Has(row) {
				rest = append(rest, journal.Entry{Rejected: rows(row, row), Rejects: []byte("{\"row\":1}\n")})
			}
		}
		write(t, j, append(rest, journal.Entry{End: true, Rows: 23})...)
		if s := j.State(); !s.Complete() {
			t.Fatalf("cut at %d: %s is not complete", cut, state(s))
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err := journal.Read(at); err != nil || !s.Complete() {
			t.Fatalf("cut at %d: read again %s, %v", cut, state(s), err)
		}
	}
}

func TestWhatDoesNotCountIsSetAside(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	some(t, j)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, journal.RejectsFile)
	before := content(t, dir, journal.RejectsFile)
	if err := os.WriteFile(path, []byte(before+"{\"row\":99"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, _ = open(t, dir)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if content(t, dir, journal.RejectsFile) != before || content(t, dir, journal.RejectsFile+".unrecorded") != "{\"row\":99" {
		t.Error("what was added is neither gone from the file nor kept beside it")
	}
	if err := os.WriteFile(path, []byte(before[:20]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := journal.Open(dir, options()); err == nil || !strings.Contains(err.Error(), "has 20 bytes, the journal counts 36") {
		t.Errorf("a reject file that lost rows: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := journal.Open(dir, options()); err == nil || !strings.Contains(err.Error(), "put it back") {
		t.Errorf("a reject file that is gone: %v", err)
	}
}

func TestDamageBeforeTheEndIsAnError(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	some(t, j)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	whole := []byte(content(t, dir, journal.File))
	last := bytes.LastIndexByte(whole[:len(whole)-1], '\n')
	for at := 0; at < last; at += longtest.Size(3, 1) {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 1
		if err := os.WriteFile(filepath.Join(dir, journal.File), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := journal.Open(dir, options())
		e, ok := errors.AsType[*journal.CorruptError](err)
		if !ok || e.Line != 1+bytes.Count(whole[:at], []byte("\n")) {
			t.Fatalf("byte %d changed: %v", at, err)
		}
		if !bytes.Equal([]byte(content(t, dir, journal.File)), damaged) {
			t.Fatal("the damaged journal was changed")
		}
	}
	for _, text := range []string{"", "\x00\x00\x00\x00", "hello\n", "deadbeef {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, journal.File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := journal.Read(dir); err == nil {
			t.Errorf("%q is read as a journal", text)
		}
	}
}

func TestASecondProcessIsLockedOut(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	_, _, err := journal.Open(dir, options())
	if r, ok := errors.AsType[*reason.Refusal](err); !ok || r.Reason != reason.LeaseHeld || r.Scope != dir || !strings.Contains(err.Error(), "has it") {
		t.Errorf("a second one: %v", err)
	}
	if _, err := journal.Read(dir); err != nil {
		t.Errorf("reading needs no lock: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Write(journal.Entry{End: true}); err == nil {
		t.Error("a closed journal was written")
	}
	open(t, dir)
}

func TestAnotherLoadIsRefused(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*journal.Header){
		"has 7 bytes and had 100":      func(h *journal.Header) { h.Input.Size = 7 },
		"begins otherwise":             func(h *journal.Header) { h.Input.Hash = "x" },
		"started on jsonl and is resu": func(h *journal.Header) { h.Input.Format = "csv" },
		"cannot be read again":         func(h *journal.Header) { h.Input.Hash = "" },
		"use the same target":          func(h *journal.Header) { h.Target = "create contacts" },
	} {
		o := options()
		change(&o.Header)
		if _, _, err := journal.Open(dir, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	o := options()
	o.Header.Input.Name, o.Header.Load = "moved.jsonl", "another"
	j, s, err := journal.Open(dir, o)
	if err != nil || s.Header.Load != "7f" {
		t.Fatalf("a file that was moved: %v of load %s", err, s.Header.Load)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Read(t.TempDir()); !errors.Is(err, journal.ErrNone) {
		t.Errorf("an empty folder: %v", err)
	}
	stray := t.TempDir()
	if err := os.WriteFile(filepath.Join(stray, journal.RejectsFile), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := journal.Open(stray, options()); err == nil || !strings.Contains(err.Error(), "exists without a journal") {
		t.Errorf("a side file without a journal: %v", err)
	}
}

func TestARowIsNeverSettledTwice(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	write(t, j, journal.Entry{Acknowledged: rows(0, 9)})
	before := content(t, dir, journal.File)
	if err := j.Write(journal.Entry{Rejected: rows(9, 10), Rejects: []byte("x\n")}); err == nil {
		t.Fatal("row 9 has two outcomes")
	}
	if content(t, dir, journal.File) != before || content(t, dir, journal.RejectsFile) != "" {
		t.Error("the refused entry left a trace")
	}
}

func TestAJournalStaysSmall(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	entries := make([]journal.Entry, 0, 1000)
	for b := range int64(40_000) {
		entries = append(entries, journal.Entry{Batch: b + 1, Sent: rows(b*100, b*100+99)}, journal.Entry{Batch: b + 1, Acknowledged: rows(b*100, b*100+99)})
		if len(entries) == cap(entries) {
			write(t, j, entries...)
			entries = entries[:0]
		}
	}
	info, err := os.Stat(filepath.Join(dir, journal.File))
	if err != nil || info.Size() > 2<<20 {
		t.Fatalf("%d bytes for 40,000 batches, %v", info.Size(), err)
	}
	want := state(j.State())
	if text := content(t, dir, journal.File); !strings.Contains(text, `"counts":{"a":`) || !strings.Contains(text, `,"r":0,"u":0}`) {
		t.Error("a snapshot's totals have other names than journals have that are there already")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := journal.Read(dir); err != nil || state(s) != want || s.Counts.Acknowledged != 4_000_000 {
		t.Errorf("read %s, %v, want %s", state(s), err, want)
	}
}

// What a journal reads back is what was written, however it is cut into runs.
func TestAJournalIsItsEntries(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "") //nolint:usetesting // one directory a draw, in the test's own
		if err != nil {
			r.Fatal(err)
		}
		j, s, err := journal.Open(dir, options())
		if err != nil {
			r.Fatal(err)
		}
		defer func() { _ = j.Close() }()
		next := int64(0)
		for range rapid.IntRange(1, 12).Draw(r, "writes") {
			first := next + rapid.Int64Range(0, 3).Draw(r, "gap")
			span := rows(first, first+rapid.Int64Range(0, 5).Draw(r, "rows"))
			next = span[0].Last + 1
			batch := s.LastBatch + 1
			e := journal.Entry{Batch: batch}
			line := []byte(fmt.Sprintf("{\"row\":%d}\n", first))
			switch rapid.IntRange(0, 4).Draw(r, "what") {
			case 0:
				e.Sent, next = span, first
			case 1:
				e.Rejected, e.Rejects = span, line
			case 2:
				e.Uncertain, e.Doubts = span, line
			case 3:
				e.Acknowledged = span
			case 4:
				if len(s.Open) > 0 {
					e = journal.Entry{Batch: s.Open[0].Number}
				}
			}
			if err := j.Write(e); err != nil {
				r.Fatal(err)
			}
			s = j.State()
			if rapid.IntRange(0, 5).Draw(r, "reopens") == 0 {
				if err := j.Close(); err != nil {
					r.Fatal(err)
				}
				var back journal.State
				if j, back, err = journal.Open(dir, options()); err != nil {
					r.Fatal(err)
				}
				if diff := cmp.Diff(state(s), state(back)); diff != "" {
					r.Fatal(diff)
				}
			}
		}
	})
}

func FuzzRead(f *testing.F) {
	golden.Seeds(f)
	dir := f.TempDir()
	j, _ := open(f, dir)
	some(f, j)
	whole := content(f, dir, journal.File)
	f.Add([]byte(whole))
	f.Add([]byte(whole[:len(whole)/2]))
	f.Add([]byte("00000000 {}\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, good, err := journal.Replay(bytes.NewReader(b), journal.File)
		if err == nil && (good < 1 || good > int64(len(b))) {
			t.Errorf("%d of %d bytes are good", good, len(b))
		}
		if err == nil && s.Counts.Acknowledged+s.Counts.Rejected+s.Counts.Uncertain != s.Settled.Len() {
			t.Errorf("%s: the totals are not the rows", state(s))
		}
	})
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "load")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o := journal.Options{Header: journal.Header{Load: "a1", Input: journal.Input{Format: "jsonl", Size: 12, Hash: "f00d"}}}
	j, _, err := journal.Open(dir, o)
	if err != nil {
		panic(err)
	}
	fmt.Println(j.Write(journal.Entry{Acknowledged: []ledger.Span{{First: 0, Last: 99}}}))
	fmt.Println(j.Close())
	j, state, err := journal.Open(dir, o)
	fmt.Println(state.Counts.Acknowledged, "rows are in, first owed is", state.Settled.Spans()[0].Last+1, err)
	fmt.Println(j.Close())
	// Output:
	// <nil>
	// <nil>
	// 100 rows are in, first owed is 100 <nil>
	// <nil>
}
