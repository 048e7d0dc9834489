package jsonl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/sink/internal/folder"
	"github.com/headway-go/headway/sink/internal/sinkstate"
	"github.com/headway-go/headway/sink/internal/sinktest"
)

// opened gives an open sink that closes with the test.
func opened(t *testing.T, dir string, committed json.RawMessage) *Sink {
	t.Helper()
	s := New(dir)
	if err := s.Open(t.Context(), committed, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(t *testing.T, s *Sink, stream string, records ...string) {
	t.Helper()
	if err := s.Write(t.Context(), stream, raw(records...)); err != nil {
		t.Fatal(err)
	}
}

func raw(records ...string) []collect.Record {
	list := make([]collect.Record, len(records))
	for i, r := range records {
		list[i] = collect.Record{Data: json.RawMessage(r)}
	}
	return list
}

func synced(t *testing.T, s *Sink) json.RawMessage {
	t.Helper()
	p, err := s.Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func closed(t *testing.T, s *Sink) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func plant(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// files lists the folder without the lock.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != folder.LockName {
			names = append(names, e.Name())
		}
	}
	return names
}

// lengths are those of a position.
func lengths(t *testing.T, committed json.RawMessage) map[string]int64 {
	t.Helper()
	p, err := parsePosition(committed)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for name, e := range p.Files {
		all[name] = e.Length
	}
	return all
}

func TestRecordsAreOneLineEachAndPositionIsTheirLength(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "out")
	s := opened(t, dir, nil)
	sinktest.Is(t, "first position", string(synced(t, s)), `{"files":{}}`)
	put(t, s, "messages", `{"id":1}`, `{"id":2}`)
	put(t, s, "users", `"é"`)
	put(t, s, "messages")
	sinktest.Is(t, "position", lengths(t, synced(t, s)), "map[messages.jsonl:18 users.jsonl:5]")
	put(t, s, "messages", "{\n\t\"id\": 3,\r\n \"text\": \"a\\nb\"}")
	p := synced(t, s)
	sinktest.Is(t, "messages", content(t, dir, "messages.jsonl"), "{\"id\":1}\n{\"id\":2}\n{\"id\":3,\"text\":\"a\\nb\"}\n")
	sinktest.Is(t, "users", content(t, dir, "users.jsonl"), "\"é\"\n")
	closed(t, s)
	closed(t, s) // again is nothing

	s = opened(t, dir, p)
	put(t, s, "messages", `4`)
	sinktest.Is(t, "position", lengths(t, synced(t, s)), "map[messages.jsonl:43 users.jsonl:5]")
	for name, want := range map[string]fs.FileMode{".": fs.ModeDir | 0o700, "..": fs.ModeDir | 0o700, "users.jsonl": 0o600, folder.LockName: 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %s", name, info.Mode(), err, want)
		}
	}
	closed(t, s)
	sinktest.Is(t, "files", files(t, dir), []string{"messages.jsonl", "users.jsonl"})
}

func TestOpenCutsWhatWasNotCommitted(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir, nil)
	put(t, s, "x", `1`)
	put(t, s, "y", `1`)
	p := synced(t, s)
	put(t, s, "x", `2`)
	put(t, s, "z", `1`) // a stream that the position does not know
	synced(t, s)
	closed(t, s) // and the store commits nothing of it

	s = opened(t, dir, p)
	sinktest.Is(t, "x", content(t, dir, "x.jsonl"), "1\n")
	put(t, s, "z", `9`)
	synced(t, s)
	sinktest.Is(t, "z", content(t, dir, "z.jsonl"), "9\n")
	sinktest.Is(t, "z of the slice that may have been committed", content(t, dir, "z.jsonl.uncommitted"), "1\n")
}

func TestOpenRefusesLessThanWasCommitted(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir, nil)
	put(t, s, "x", `"one"`)
	put(t, s, "y", `"one"`)
	p := synced(t, s)
	put(t, s, "y", `"tail"`)
	synced(t, s)
	closed(t, s)
	whole := content(t, dir, "y.jsonl")
	for _, c := range []struct {
		name, text string
		want       LostError
		says       []string
	}{
		{"shorter", "\"on", LostError{Have: 3, Committed: 6}, []string{"has 3 bytes of the 6 that were committed", "it was truncated"}},
		{"another file that ends a line there", "\"two\"\n", LostError{Have: 6, Committed: 6}, []string{"another file", "nothing was changed"}},
		{"another file", "{\"another\":1}\n", LostError{Have: 14, Committed: 6}, []string{"another file", "nothing was changed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plant(t, dir, "x.jsonl", c.text)
			err := New(dir).Open(t.Context(), p, nil)
			lost, ok := errors.AsType[*LostError](err)
			if !ok {
				t.Fatalf("got %v, want *LostError", err)
			}
			c.want.Path = filepath.Join(dir, "x.jsonl")
			sinktest.Is(t, "error", *lost, c.want)
			sinktest.Says(t, err, append(c.says, "restore the file", "move it away and run again", "x.jsonl")...)
			sinktest.Is(t, "x", content(t, dir, "x.jsonl"), c.text)
			sinktest.Is(t, "y, which Open did not get to", content(t, dir, "y.jsonl"), whole)
		})
	}
	plant(t, dir, "x.jsonl", "\"one\"\n") // restored
	opened(t, dir, p)
}

func TestForeignFilesAreNotTouched(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir, "x.jsonl", "mine\n")
	plant(t, dir, "other.jsonl", "mine too\n")
	plant(t, dir, "empty.jsonl", "")
	s := opened(t, dir, nil)
	for range 2 { // it does not become ours by asking again
		err := s.Write(t.Context(), "x", raw(`1`))
		foreign, ok := errors.AsType[*ForeignError](err)
		if !ok {
			t.Fatalf("got %v, want *ForeignError", err)
		}
		sinktest.Is(t, "error", *foreign, ForeignError{Path: filepath.Join(dir, "x.jsonl"), Stream: "x", Bytes: 5})
		sinktest.Says(t, err, "5 bytes", "move it away", "--fresh")
	}
	put(t, s, "empty", `1`) // there is nothing to lose
	p := synced(t, s)
	closed(t, s)
	opened(t, dir, p)
	sinktest.Is(t, "x", content(t, dir, "x.jsonl"), "mine\n")
	sinktest.Is(t, "other", content(t, dir, "other.jsonl"), "mine too\n")
	sinktest.Is(t, "files", files(t, dir), []string{"empty.jsonl", "other.jsonl", "x.jsonl"})
}

// TestAStoreThatWasLostTakesNoFileWithIt opens with no position what was
// committed with one.
func TestAStoreThatWasLostTakesNoFileWithIt(t *testing.T) {
	for slices := 1; slices <= 2; slices++ {
		dir := t.TempDir()
		s := opened(t, dir, nil)
		for i := range slices {
			put(t, s, "x", fmt.Sprint(i))
			synced(t, s)
		}
		before := content(t, dir, "x.jsonl")
		closed(t, s)
		s = opened(t, dir, nil)
		switch err := s.Write(t.Context(), "x", raw(`9`)); slices {
		case 1: // looks like a crash before the commit
			if err != nil {
				t.Fatal(err)
			}
			sinktest.Is(t, "what there was", content(t, dir, "x.jsonl.uncommitted"), before)
		default:
			if _, ok := errors.AsType[*ForeignError](err); !ok {
				t.Errorf("got %v, want *ForeignError", err)
			}
			sinktest.Is(t, "what there was", content(t, dir, "x.jsonl"), before)
		}
	}
}

func TestOneSinkAFolder(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir, nil)
	err := New(dir).Open(t.Context(), nil, nil)
	if locked, ok := errors.AsType[*LockedError](err); !ok || locked.Dir != dir {
		t.Errorf("got %v, want *LockedError of %s", err, dir)
	}
	sinktest.Says(t, err, "another collection is writing", "folder of its own")
	if _, err := New(dir).SetAside([]string{"x"}, time.Now()); err == nil {
		t.Error("files were set aside under an open sink")
	}
	if err := s.Open(t.Context(), nil, nil); err == nil {
		t.Error("an open sink was opened")
	}
	closed(t, s)
	opened(t, dir, nil)
}

func TestBadRecordsLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir, nil)
	for _, bad := range []string{"", "{", "nope", "\"\xff\"", "1 2", "{}\n{}"} {
		err := s.Write(t.Context(), "x", raw(`"secret"`, bad))
		sinktest.Says(t, err, `stream "x"`, "record 2 of 2", "none of them was written")
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error holds content: %v", err)
		}
	}
	put(t, s, "x", `1`)
	synced(t, s)
	sinktest.Is(t, "x", content(t, dir, "x.jsonl"), "1\n")
}

func TestStreamNames(t *testing.T) {
	for stream, want := range map[string]string{
		"conversations": "conversations.jsonl", "a b:c": "a_b_c.jsonl", "v1.2_x-y": "v1.2_x-y.jsonl", "会話": "会話.jsonl",
		"a..b": "a..b.jsonl", `q"*?<>|`: "q______.jsonl", strings.Repeat("x", folder.MaxName): strings.Repeat("x", folder.MaxName) + ".jsonl",
	} {
		if got, err := fileName(stream); err != nil || got != want {
			t.Errorf("%q: file %q, %v; want %q", stream, got, err, want)
		}
	}
	s := opened(t, t.TempDir(), nil)
	for stream, why := range map[string]string{
		"": "empty", ".": "dot", "..": "dot", ".hidden": "dot", "../x": "dot", "a/b": "separator", `a\b`: "separator", "a/../../b": "separator",
		"a\x00b": "control", "a\nb": "control", "\xff": "UTF-8", strings.Repeat("x", folder.MaxName+1): "at most 180",
	} {
		sinktest.Says(t, s.Write(t.Context(), stream, raw(`1`)), why, "rename the stream")
	}
	put(t, s, "a b", `1`)
	for _, other := range []string{"a_b", "a:b", "A b", "A_B"} {
		if err := s.Write(t.Context(), other, raw(`1`)); !errors.Is(err, errShared) {
			t.Errorf("stream %q beside \"a b\": got %v, want an error that they share a file", other, err)
		}
	}
	put(t, s, "a b", `2`) // the first one goes on
	p := synced(t, s)
	closed(t, s)
	s = opened(t, s.dir, p)
	if err := s.Write(t.Context(), "A b", raw(`1`)); !errors.Is(err, errShared) {
		t.Errorf("a file of the position that differs in case: got %v", err)
	}
	put(t, s, "a b", `3`)
}

func TestOpenRefusesPositionsOfOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	for _, p := range []string{
		"{", "[]", `{}`, `{"lsn":5}`, `{"files":null}`, `{"files":{"x.jsonl":{"length":-1}}}`, `{"files":{"x.csv":{"length":1}}}`,
		`{"files":{"../x.jsonl":{"length":0}}}`, `{"files":{".x.jsonl":{"length":0}}}`, `{"files":{"/etc/x.jsonl":{"length":0}}}`,
		`{"files":{"a.jsonl":{"length":0},"A.jsonl":{"length":0}}}`, `{"files":{"x.jsonl":{"length":1e99}}}`, `{"files":{".jsonl":{"length":1}}}`,
	} {
		sinktest.Says(t, New(dir).Open(t.Context(), json.RawMessage(p), nil), "position cannot be read", "--fresh")
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a refused position created the folder")
	}
	for _, p := range []string{"", "null", `{"files":{}}`, `{"files":{"x.jsonl":{"length":0}}}`} {
		closed(t, opened(t, dir, json.RawMessage(p)))
	}
}

func FuzzPosition(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte(`{"files":{"x.jsonl":{"length":3}}}`))
	f.Add([]byte(`{"files":{"../canary.jsonl":{"length":0}}}`))
	f.Add([]byte(`{"files":{"x.jsonl":{"length":0},"y.jsonl":{"length":0}}}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		top := t.TempDir()
		dir := filepath.Join(top, "out")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		plant(t, top, "canary.jsonl", "sing\n")
		plant(t, dir, "canary.txt", "sing\n")
		plant(t, dir, "x.jsonl", "12\n45\n")
		s := New(dir)
		if err := s.Open(t.Context(), p, nil); err == nil {
			closed(t, s)
		}
		sinktest.Is(t, "file outside", content(t, top, "canary.jsonl"), "sing\n")
		sinktest.Is(t, "file of no stream", content(t, dir, "canary.txt"), "sing\n")
		if x := content(t, dir, "x.jsonl"); !strings.HasPrefix("12\n45\n", x) {
			t.Errorf("x is %q, want a part of what it was", x)
		}
	})
}

func TestContextsAndOrder(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := New(dir)
	if err := s.Open(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v, want context.Canceled", err)
	}
	if err := s.Write(t.Context(), "x", raw(`1`)); !errors.Is(err, sinkstate.ErrNotOpen) {
		t.Errorf("Write before Open: %v", err)
	}
	if _, err := s.Sync(t.Context()); !errors.Is(err, sinkstate.ErrNotOpen) {
		t.Errorf("Sync before Open: %v", err)
	}
	s = opened(t, dir, nil)
	if err := s.Write(ctx, "x", raw(`1`)); !errors.Is(err, context.Canceled) {
		t.Errorf("Write: %v, want context.Canceled", err)
	}
	if _, err := s.Sync(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Sync: %v, want context.Canceled", err)
	}
	put(t, s, "x", `1`) // a context that ended breaks nothing
}

func TestSetAside(t *testing.T) {
	dir := t.TempDir()
	if paths, err := New(filepath.Join(dir, "none")).SetAside([]string{"x"}, time.Now()); err != nil || len(paths) != 0 {
		t.Errorf("no folder: %v, %v; want nothing", paths, err)
	}
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 3600))
	for i := range 2 {
		s := opened(t, dir, nil)
		put(t, s, "x", fmt.Sprint(i))
		put(t, s, "other", fmt.Sprint(i))
		synced(t, s)
		if _, err := s.SetAside([]string{"x"}, at); err == nil {
			t.Error("an open sink set files aside")
		}
		closed(t, s)
		paths, err := s.SetAside([]string{"x", "never"}, at)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{filepath.Join(dir, "x.jsonl.20260304T040607Z.bak"), filepath.Join(dir, "x.jsonl.20260304T040607Z.2.bak")}
		sinktest.Is(t, "paths", paths, want[i:i+1])
		sinktest.Is(t, "what was set aside", content(t, dir, filepath.Base(want[i])), fmt.Sprintf("%d\n", i))
		if slices.Contains(files(t, dir), "x.jsonl") || slices.Contains(files(t, dir), ".x.jsonl.synced") {
			t.Errorf("left: %v", files(t, dir))
		}
		sinktest.Is(t, "a stream that was not named", content(t, dir, "other.jsonl"), fmt.Sprintf("%d\n", i))
	}
	if _, err := New(dir).SetAside([]string{"../x"}, at); err == nil {
		t.Error("a bad name was accepted")
	}
	// A foreign file too: that is how one gets out of the error about it.
	plant(t, dir, "x.jsonl", "mine\n")
	if paths, err := New(dir).SetAside([]string{"x"}, at); err != nil || len(paths) != 1 {
		t.Errorf("foreign file: %v, %v", paths, err)
	}
	put(t, opened(t, dir, nil), "x", `1`)
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "x.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := opened(t, dir, nil)
	sinktest.Says(t, s.Write(t.Context(), "x", raw(`1`)), "not a file", "move it away")
	closed(t, s)
	sinktest.Says(t, New(dir).Open(t.Context(), json.RawMessage(`{"files":{"x.jsonl":{"length":5}}}`), nil), "not a file")
	plant(t, dir, "file", "")
	sinktest.Says(t, New(filepath.Join(dir, "file")).Open(t.Context(), nil, nil), "name a folder")
}

// BenchmarkWriteSync is one slice of 100 records of 1 KB, on disk.
func BenchmarkWriteSync(b *testing.B) {
	s := New(b.TempDir())
	if err := s.Open(b.Context(), nil, nil); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	records := make([]collect.Record, 100)
	for i := range records {
		records[i].Data = json.RawMessage(`{"id":12345,"text":"` + strings.Repeat("lorem ipsum ", 80) + `"}`)
	}
	b.SetBytes(int64(len(records) * (len(records[0].Data) + 1)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := s.Write(b.Context(), "x", records); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		n += len(records)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
