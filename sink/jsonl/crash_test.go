package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/powercut"
	"github.com/headway-go/headway/sink/internal/sinktest"
)

// died is what a simulated death of the process throws.
type died struct{}

// die ends a sink as a killed process ends it: no buffer is written, no file
// is tidied up, the lock is gone.
func die(s *Sink) {
	if s.folder == nil {
		return
	}
	for _, f := range s.streams {
		_ = f.f.Close()
	}
	_ = s.folder.Unlock()
}

// slice is what a runtime does for one slice: write, sync, commit.
type slice map[string][]string

// collectUntil runs slices from a position, as a runtime would, and dies
// before the given step: steps of the sink, and one before each commit. It
// gives the position that was committed last, how many slices that was, and
// whether it died.
func collectUntil(t *testing.T, dir string, committed json.RawMessage, work []slice, step int) (position json.RawMessage, done int, dead bool) {
	t.Helper()
	s := New(dir)
	n := 0
	s.step = func() {
		if n == step {
			panic(died{})
		}
		n++
	}
	position = committed
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if _, ok := r.(died); !ok {
			panic(r)
		}
		dead = true
		die(s)
	}()
	if err := s.Open(t.Context(), committed, nil); err != nil {
		t.Fatalf("step %d: %v", step, err)
	}
	for _, sl := range work {
		for _, stream := range slices.Sorted(maps.Keys(sl)) {
			put(t, s, stream, sl[stream]...)
		}
		p := synced(t, s)
		s.step() // the commit
		position = p
		done++
	}
	closed(t, s)
	return position, done, dead
}

// TestDeathAtEachStep kills the first run before each thing that it does, and
// the second one, which replays, before things that it does, and lets the third
// one end. The files are what a run without a death writes.
func TestDeathAtEachStep(t *testing.T) {
	long := strings.Repeat("x", bufferSize) // more than a buffer: some of it is in the file before Sync
	all := []slice{
		{"a": {`1`, `2`}, "b": {`"` + long + `"`}},
		{"a": {`3`}},
		{"b": {`4`}, "c": {`"` + long + `"`, `5`}},
	}
	want := map[string]string{
		"a.jsonl": "1\n2\n3\n", "b.jsonl": `"` + long + "\"\n4\n", "c.jsonl": `"` + long + "\"\n5\n",
	}
	deaths := 0
	for first, dead := 0, true; dead; first++ {
		// Each third step of the second run, from another one each time.
		for second, deadToo := first%3, true; deadToo; second += 3 {
			dir := powercut.Scratch(t)
			var p json.RawMessage
			var done, more int
			p, done, dead = collectUntil(t, dir, nil, all, first)
			p, more, deadToo = collectUntil(t, dir, p, all[done:], second)
			if _, _, never := collectUntil(t, dir, p, all[done+more:], -1); never {
				t.Fatal("the last run died")
			}
			deaths++
			for name, text := range want {
				if got := content(t, dir, name); got != text {
					t.Fatalf("deaths at %d and %d: %s has %d bytes, want %d", first, second, name, len(got), len(text))
				}
			}
			left := slices.DeleteFunc(files(t, dir), func(name string) bool {
				return want[name] != "" || strings.Contains(name, ".jsonl.uncommitted") || strings.HasSuffix(name, markerSynced)
			})
			if len(left) > 0 {
				t.Errorf("deaths at %d and %d left %v", first, second, left)
			}
		}
	}
	if deaths < 200 {
		t.Errorf("%d pairs of deaths, want more: the steps are not counted", deaths)
	}
}

// TestOnlyTheSyncedIsEverSetAside: a file that no position was given out for
// is emptied, so that deaths leave no litter.
func TestOnlyTheSyncedIsEverSetAside(t *testing.T) {
	dir := t.TempDir()
	for range 5 {
		s := opened(t, dir, nil)
		put(t, s, "x", `"`+strings.Repeat("x", 2*bufferSize)+`"`)
		die(s)
	}
	s := opened(t, dir, nil)
	sinktest.Is(t, "x", content(t, dir, "x.jsonl"), "")
	put(t, s, "x", `1`)
	die(s)
	sinktest.Is(t, "files", files(t, dir), []string{".x.jsonl.new", "x.jsonl"})
}

// TestAnySequenceKeepsTheCommitted runs random sequences of what a runtime and
// fate can do to a folder, against a model of what was committed.
func TestAnySequenceKeepsTheCommitted(t *testing.T) {
	longtest.Draws(t, 40, 100)
	top := powercut.Scratch(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		m := &model{dir: filepath.Join(top, fmt.Sprint(n)), committed: map[string]string{}, written: map[string]string{}}
		m.open(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"write":       m.write,
			"sync":        m.sync,
			"commit":      m.commit,
			"crash":       m.crash,
			"close":       m.close,
			"":            m.check,
			"write again": m.write,
		})
		m.crash(rt)
		m.check(rt)
		die(m.sink)
	})
}

type model struct {
	dir  string
	sink *Sink
	// position is the store's; committed is what the files held at it.
	position  json.RawMessage
	committed map[string]string
	// written is committed and what came after; pending is a synced position.
	written map[string]string
	pending json.RawMessage
}

var streams = []string{"a", "b", "c c"}

func (m *model) open(rt *rapid.T) {
	m.sink = New(m.dir)
	if err := m.sink.Open(rt.Context(), m.position, nil); err != nil {
		rt.Fatal(err)
	}
	m.written, m.pending = maps.Clone(m.committed), nil
	for name, want := range m.committed {
		if got, err := os.ReadFile(filepath.Join(m.dir, name)); err != nil || string(got) != want {
			rt.Fatalf("after Open %s has %d bytes, %v; want the %d that were committed", name, len(got), err, len(want))
		}
	}
}

func (m *model) write(rt *rapid.T) {
	stream := rapid.SampledFrom(streams).Draw(rt, "stream")
	var records []collect.Record
	// The runtime commits between Sync and the next Write.
	m.commit(rt)
	name, err := fileName(stream)
	if err != nil {
		rt.Fatal(err)
	}
	for _, size := range rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 100, bufferSize - 2, 3 * bufferSize}), 0, 3).Draw(rt, "sizes") {
		record := `"` + strings.Repeat(rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "letter"), size) + `"`
		records = append(records, collect.Record{Data: json.RawMessage(record)})
		m.written[name] += record + "\n"
	}
	if err := m.sink.Write(rt.Context(), stream, records); err != nil {
		rt.Fatal(err)
	}
}

func (m *model) sync(rt *rapid.T) {
	m.commit(rt)
	p, err := m.sink.Sync(rt.Context())
	if err != nil {
		rt.Fatal(err)
	}
	m.pending = p
}

// commit stores a position that was synced, if there is one.
func (m *model) commit(*rapid.T) {
	if m.pending != nil {
		m.position, m.committed, m.pending = m.pending, maps.Clone(m.written), nil
	}
}

func (m *model) crash(rt *rapid.T) {
	die(m.sink)
	m.open(rt)
}

func (m *model) close(rt *rapid.T) {
	if err := m.sink.Close(); err != nil {
		rt.Fatal(err)
	}
	m.open(rt)
}

// check looks at each file: it begins with what was committed, at any time.
func (m *model) check(rt *rapid.T) {
	for name, want := range m.committed {
		if got, err := os.ReadFile(filepath.Join(m.dir, name)); err != nil || !strings.HasPrefix(string(got), want) {
			rt.Fatalf("%s has %d bytes, %v; want them to begin with the %d that were committed", name, len(got), err, len(want))
		}
	}
}

// talks are the streams of a connection whose file's name is not its stream's.
var talks = []collect.StreamInfo{{Name: "t a"}, {Name: "other"}}

func TestAFileThatWasMovedAwayIsFollowedByANewOne(t *testing.T) {
	for name, rotate := range map[string]func(path string) error{
		"moved": func(path string) error { return os.Rename(path, path+".1") },
		"moved and made new": func(path string) error {
			return errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, nil, 0o600))
		},
		"copied and emptied": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := opened(t, dir, nil)
			put(t, s, "t a", `1`, `2`)
			put(t, s, "other", `1`)
			p := synced(t, s)
			closed(t, s)
			if err := rotate(filepath.Join(dir, "t_a.jsonl")); err != nil {
				t.Fatal(err)
			}
			for range 2 { // a run that dies before its first commit changes nothing
				s = New(dir)
				if err := s.Open(t.Context(), p, talks); err != nil {
					t.Fatal(err)
				}
				sinktest.Is(t, "noticed", s.Noticed(), []collect.Change{{Kind: collect.SinkFileGone, Stream: "t a"}})
				die(s)
			}
			s = opened(t, dir, p)
			p = synced(t, s)
			sinktest.Is(t, "position", lengths(t, p), "map[other.jsonl:2]")
			put(t, s, "t a", `3`)
			p = synced(t, s)
			closed(t, s)
			s = opened(t, dir, p)
			sinktest.Is(t, "noticed", s.Noticed(), []collect.Change(nil))
			sinktest.Is(t, "the new file", content(t, dir, "t_a.jsonl"), "3\n")
			sinktest.Is(t, "the other", content(t, dir, "other.jsonl"), "1\n")
		})
	}
}

// TestDeathAtEachStepAfterARotation: what the first run wrote is moved away, the
// second dies at each step, and the third one ends.
func TestDeathAtEachStepAfterARotation(t *testing.T) {
	deaths := 0
	for step, dead := 0, true; dead; step++ {
		dir := t.TempDir()
		p, _, _ := collectUntil(t, dir, nil, []slice{{"a": {`1`}, "b": {`1`}}}, -1)
		if err := os.Rename(filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "a.jsonl.1")); err != nil {
			t.Fatal(err)
		}
		// The runtime commits the position that Open came to before anything is written.
		work := []slice{{}, {"a": {`2`}}, {"a": {`3`}, "b": {`3`}}}
		var done int
		p, done, dead = collectUntil(t, dir, p, work, step)
		if _, _, never := collectUntil(t, dir, p, work[done:], -1); never {
			t.Fatal("the last run died")
		}
		deaths++
		for name, want := range map[string]string{"a.jsonl.1": "1\n", "a.jsonl": "2\n3\n", "b.jsonl": "1\n3\n"} {
			if got := content(t, dir, name); got != want {
				t.Fatalf("death at %d: %s is %q, want %q", step, name, got, want)
			}
		}
	}
	if deaths < 10 {
		t.Errorf("%d deaths: the steps are not counted", deaths)
	}
}

func TestFilesThatWereMovedAlongAreRecognized(t *testing.T) {
	old, dir := t.TempDir(), filepath.Join(t.TempDir(), "new")
	s := opened(t, old, nil)
	put(t, s, "x", `1`)
	p := synced(t, s)
	closed(t, s)
	if New(dir).Recognizes(t.Context(), p) {
		t.Error("nothing is there, and it is recognized")
	}
	if err := os.Rename(old, dir); err != nil {
		t.Fatal(err)
	}
	if !New(dir).Recognizes(t.Context(), p) {
		t.Error("the files are not recognized")
	}
	plant(t, dir, "x.jsonl", "2\n3\n")
	if New(dir).Recognizes(t.Context(), p) {
		t.Error("another file is recognized")
	}
	if New(dir).Recognizes(t.Context(), json.RawMessage(`{"streams":{}}`)) {
		t.Error("another sink's position is recognized")
	}
}

// TestTheTailIsTheEndOfTheFile: however lines are written, the tail is what the
// file ends with.
func TestTheTailIsTheEndOfTheFile(t *testing.T) {
	var file []byte
	var end tail
	for i := range 200 {
		line := []byte(strings.Repeat(fmt.Sprint(i%10), i*7%150))
		file = append(append(file, line...), '\n')
		end = end.after(line)
		if want := file[max(0, len(file)-tailSize):]; !bytes.Equal(end, want) {
			t.Fatalf("after line %d the tail is %q, want %q", i, end, want)
		}
	}
}

// committed is what a store knows: a position, and what it stands for.
type committed struct {
	position json.RawMessage
	lines    map[string][]string
	// aside says that a file was set aside instead.
	aside bool
}

func sinkOn(d *powercut.Disk) *Sink {
	s := New(filepath.Join(d.Dir, "data", "out"))
	s.disk = d
	return s
}

// lastOf is what was committed last.
func lastOf(l *powercut.Life[committed]) committed {
	if n := len(l.Before); n > 0 {
		return l.Before[n-1]
	}
	return committed{}
}

// collectSlices collects a few slices from where the last life was.
func collectSlices(t *testing.T, l *powercut.Life[committed], s *Sink, c committed, streams ...[]string) {
	t.Helper()
	for i, slice := range streams {
		lines := map[string][]string{}
		for stream, old := range c.lines {
			lines[stream] = slices.Clip(old)
		}
		for _, stream := range slice {
			line := fmt.Sprintf(`{"life":%d,"slice":%d,"text":"%s"}`, len(l.Before), i, strings.Repeat("x", 40))
			put(t, s, stream, line, line)
			lines[stream] = append(lines[stream], line, line)
		}
		position, err := s.Sync(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l.Step()
		c = committed{position: position, lines: lines}
		l.Ack(c)
	}
}

func TestAPowerCutLosesNothingCommitted(t *testing.T) {
	powercut.Test(t, powercut.Plan{Draws: 4, Stride: 2}, func(t *testing.T, l *powercut.Life[committed]) {
		s := sinkOn(l.Disk)
		if err := s.Open(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		collectSlices(t, l, s, committed{}, []string{"talks"}, []string{"talks", "messages"}, []string{"messages"})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}, goOn)
}

// goOn checks what was committed and collects more.
func goOn(t *testing.T, l *powercut.Life[committed]) {
	c := lastOf(l)
	s := sinkOn(l.Disk)
	if err := s.Open(t.Context(), c.position, nil); err != nil {
		t.Fatal(err)
	}
	for stream, lines := range c.lines {
		b, err := os.ReadFile(filepath.Join(s.dir, stream+".jsonl"))
		if want := strings.Join(lines, "\n") + "\n"; err != nil || string(b) != want {
			t.Fatalf("%s holds %q, %v; %q was committed", stream, b, err, want)
		}
	}
	// A new stream first: its marker is made safe, and with it that another's is
	// gone, whose file was cut.
	collectSlices(t, l, s, c, []string{"users"}, []string{"talks", "messages"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAPowerCutUndoesNoStartOver(t *testing.T) {
	const old = "{\"old\":1}\n"
	setAside := func(t *testing.T, l *powercut.Life[committed]) {
		paths, err := sinkOn(l.Disk).SetAside([]string{"talks"}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		l.Step()
		l.Ack(committed{aside: len(paths) > 0})
	}
	powercut.Test(t, powercut.Plan{Draws: 4}, func(t *testing.T, l *powercut.Life[committed]) {
		dir := filepath.Join(l.Dir, "data", "out")
		if err := disk.MkdirAll(l, dir, 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := l.OpenFile(filepath.Join(dir, "talks.jsonl"), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write([]byte(old))
		if err := errors.Join(err, f.Sync(), f.Close(), l.SyncDir(dir)); err != nil {
			t.Fatal(err)
		}
		l.Ack(committed{}) // it is there, and nothing of it set aside
		setAside(t, l)
	}, func(t *testing.T, l *powercut.Life[committed]) {
		switch len(l.Before) {
		case 0:
			return
		case 1:
			setAside(t, l) // it was cut short
			return
		}
		goOn(t, l)
		if b, err := os.ReadFile(filepath.Join(l.Dir, "data", "out", "talks.jsonl.20260102T030405Z.bak")); l.Before[1].aside && string(b) != old {
			t.Fatalf("what was set aside holds %q, %v", b, err)
		}
	})
}
