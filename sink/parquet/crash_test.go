package parquet

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/powercut"
	"github.com/headway-go/headway/sink/internal/sinktest"
)

// died is what a simulated death of the process throws.
type died struct{}

// die ends a sink as a killed process ends it: no buffer is written, no part is
// made, the lock is gone.
func die(s *Sink) {
	if s.top == nil {
		return
	}
	for _, st := range s.streams {
		if st.spool != nil {
			_ = st.spool.Close()
		}
	}
	_ = s.top.Unlock()
}

// slice is what a runtime does for one slice: write, sync, commit.
type slice map[string][]collect.Record

// fate is a folder and what the store knows of it.
type fate struct {
	dir       string
	committed json.RawMessage
	// rows are those that were committed.
	rows map[string][]row
	done int
}

// collectUntil runs slices from where fate stands, as a runtime would, and dies
// before the given step: steps of the sink, and one before each commit.
func (f *fate) collectUntil(t *testing.T, work []slice, step int) (dead bool) {
	t.Helper()
	s := small(f.dir)
	n := 0
	s.step = func() {
		if n == step {
			panic(died{})
		}
		n++
	}
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
	if err := s.Open(t.Context(), f.committed, sample); err != nil {
		t.Fatalf("step %d: %v", step, err)
	}
	p := synced(t, s)
	s.step()
	f.committed = p
	// Exactly the committed rows can be read.
	f.check(t, func(got, want int) bool { return got == want })
	for _, sl := range work[f.done:] {
		for _, stream := range slices.Sorted(maps.Keys(sl)) {
			put(t, s, stream, sl[stream]...)
		}
		p := synced(t, s)
		s.step() // the commit
		f.committed = p
		f.done++
		for stream, records := range sl {
			for _, r := range records {
				f.rows[stream] = append(f.rows[stream], rowOf(t, r))
			}
		}
	}
	closed(t, s)
	return false
}

// check reads the parts: they hold committed rows only, without duplicates, in
// their order, and as many as enough says.
func (f *fate) check(t sinktest.TB, enough func(got, committed int) bool) {
	t.Helper()
	for _, info := range sample {
		got, want := rows(t, f.dir, info.Name), f.rows[info.Name]
		if len(got) > len(want) || !enough(len(got), len(want)) || !slices.EqualFunc(got, want[:len(got)], sameRow) {
			t.Fatalf("%s has %d rows, and %d were committed; or they are others:\n%v\n%v", info.Name, len(got), len(want), got, want)
		}
	}
}

// TestDeathAtEachStep kills the first run before each thing that it does, and
// the second one, which replays, before things that it does, and lets the third
// one end. At any time only committed rows can be read, after Open all of them,
// and in the end all there are.
func TestDeathAtEachStep(t *testing.T) {
	long := strings.Repeat("x", 150)
	work := []slice{
		{"talks": {sinktest.Record("1", `{"a":1}`)}, "messages": {sinktest.Detail("1", "1", `{"t":"`+long+`"}`)}},
		{"messages": {sinktest.Detail("1", "2", `{"t":"`+long+`"}`)}},
		{"messages": {sinktest.Detail("1", "3", `{"t":5}`)}, "talks": {sinktest.Record("2", `{"a":"`+long+`"}`), sinktest.Record("3", `{"b":`+strconv.Quote(long)+`}`)}},
		{"talks": {sinktest.Record("4", `{"a":2}`)}},
	}
	deaths, stride := 0, longtest.Size(29, 13)
	for first, dead := 0, true; dead; first++ {
		// One step in stride of the second run, from another one each time.
		for second, deadToo := first%stride, true; deadToo; second += stride {
			f := &fate{dir: filepath.Join(powercut.Scratch(t), "out"), rows: map[string][]row{}}
			some := func(got, committed int) bool { return got <= committed }
			dead = f.collectUntil(t, work, first)
			f.check(t, some)
			deadToo = f.collectUntil(t, work, second)
			f.check(t, some)
			if f.collectUntil(t, work, -1) {
				t.Fatal("the last run died")
			}
			deaths++
			f.check(t, func(got, committed int) bool { return got == committed && f.done == len(work) })
			for _, info := range sample {
				for _, name := range files(t, filepath.Join(f.dir, info.Name)) {
					_, part := numberOf(name, partName)
					_, spool := numberOf(name, spoolName)
					if !part && !spool {
						t.Errorf("deaths at %d and %d left %s", first, second, name)
					}
				}
			}
		}
	}
	if deaths < longtest.Size(75, 150) {
		t.Errorf("%d pairs of deaths, want more: the steps are not counted", deaths)
	}
}

// values are drawn often, beside random ones: each is on an edge.
var values = []string{
	`null`, `true`, `false`, `0`, `-0`, `-0.0`, `1`, `1.0`, `1e2`, `9223372036854775807`, `9223372036854775808`, `9007199254740993`,
	`-9223372036854775808`, `123456789012345678901234567890`, `0.1`, `0.30000000000000004`, `0.12345678901234567890`,
	`1e308`, `1e309`, `-1e-320`, `1e-350`, `""`, `"x"`, `"1"`, `"true"`, `"null"`, `"[1]"`, `"a\u0000b"`, `"\ud800"`,
	`"\ufffd"`, `"\\ufffd\ud800"`, `"😀\n\"\\\u2028"`, `[]`, `{}`, `[1,"a",null,{"b":[true]}]`, `{"a":{"b":1.0}}`,
}

var names = []string{"a", "b", "c", "d", "A", "é", "_key", "_rest", "_value", "_parent", "", "x.y", `q"`}

// aRecord draws a record of few names, whose values are often of one kind.
func aRecord(rt *rapid.T) string {
	value := rapid.OneOf(rapid.SampledFrom(values), rapid.Map(rapid.Float64(), func(f float64) string {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}), rapid.Map(rapid.Int64(), func(n int64) string { return strconv.FormatInt(n, 10) }))
	own := map[string]*rapid.Generator[string]{
		"a": rapid.SampledFrom([]string{`true`, `false`, `null`}), "b": rapid.SampledFrom([]string{`[]`, `{"a":[1]}`}),
		"c": rapid.SampledFrom([]string{`1`, `2.5`, `9007199254740993`}), "d": rapid.SampledFrom([]string{`"x"`, `"\ud800"`}),
	}
	if rapid.IntRange(0, 9).Draw(rt, "scalar") == 0 {
		return value.Draw(rt, "record")
	}
	var fields []string
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 6, rapid.ID).Draw(rt, "names") {
		of := value
		if g := own[name]; g != nil && rapid.IntRange(0, 9).Draw(rt, "other kind") > 0 {
			of = g
		}
		fields = append(fields, fmt.Sprintf("%s : %s", strconv.QuoteToGraphic(name), of.Draw(rt, "value")))
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// TestAnySequenceReadsBack runs random slices, commits that fail, deaths and
// new starts, and compares the rows that can be read with those committed.
func TestAnySequenceReadsBack(t *testing.T) {
	longtest.Draws(t, 20, 100)
	top := powercut.Scratch(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		f := &fate{dir: filepath.Join(top, fmt.Sprint(n)), rows: map[string][]row{}}
		s := small(f.dir)
		open := func() {
			if err := s.Open(rt.Context(), f.committed, sample); err != nil {
				rt.Fatal(err)
			}
			f.committed = synced(rt, s)
			f.check(rt, func(got, committed int) bool { return got == committed })
		}
		open()
		for range rapid.IntRange(1, 10).Draw(rt, "slices") {
			next := maps.Clone(f.rows)
			for range rapid.IntRange(0, 5).Draw(rt, "records") {
				r, stream := sinktest.Record(rapid.SampledFrom([]string{"1", "\x00", "é<"}).Draw(rt, "key"), aRecord(rt)), "talks"
				if rapid.Bool().Draw(rt, "detail") {
					r.Parent, stream = rapid.SampledFrom([]string{"p", `"`}).Draw(rt, "parent"), "messages"
				}
				put(rt, s, stream, r)
				next[stream] = append(slices.Clone(next[stream]), rowOf(rt, r))
			}
			p := synced(rt, s)
			end := rapid.IntRange(0, 9).Draw(rt, "end")
			if end != 0 {
				f.committed, f.rows = p, next
			}
			switch end {
			case 0, 1: // the commit fails, or the run ends
				closed(rt, s)
				if end == 1 {
					f.check(rt, func(got, committed int) bool { return got == committed })
				}
				open()
			case 2:
				die(s)
				s = small(f.dir)
				open()
			}
		}
		closed(rt, s)
		f.check(rt, func(got, committed int) bool { return got == committed })
	})
}

// committed is what a store knows: a position, and what it stands for.
type committed struct {
	position json.RawMessage
	keys     []string
	// aside is how many folders were set aside instead.
	aside int
}

func sinkOn(d *powercut.Disk) *Sink {
	s := small(filepath.Join(d.Dir, "data", "out"))
	s.disk = d
	return s
}

// collectMore checks what was committed, collects a few slices more, and checks
// the parts.
func collectMore(slices int) func(*testing.T, *powercut.Life[committed]) {
	return func(t *testing.T, l *powercut.Life[committed]) {
		var c committed
		if n := len(l.Before); n > 0 {
			c = l.Before[n-1]
		}
		s := sinkOn(l.Disk)
		if err := s.Open(t.Context(), c.position, sample); err != nil {
			t.Fatal(err)
		}
		holds(t, s, c)
		// As the runtime does, so that the store knows what is whose.
		c.position = synced(t, s)
		l.Step()
		l.Ack(c)
		for i := range slices {
			key := fmt.Sprintf("%d-%d", len(l.Before), i)
			r := sinktest.Record(key, fmt.Sprintf(`{"text":"%0100d"}`, i)) // two make a part
			for _, stream := range sample {
				put(t, s, stream.Name, r)
			}
			position := synced(t, s)
			l.Step()
			c = committed{position: position, keys: append(append([]string(nil), c.keys...), key)}
			l.Ack(c)
		}
		// A part that the last commit completed, and no write after it.
		c.position = synced(t, s)
		l.Step()
		l.Ack(c)
		closed(t, s)
		holds(t, s, c)
	}
}

// holds checks the rows of each stream.
func holds(t *testing.T, s *Sink, c committed) {
	t.Helper()
	for _, stream := range sample {
		var keys []string
		for _, r := range rows(t, s.dir, stream.Name) {
			keys = append(keys, r.key)
		}
		if fmt.Sprint(keys) != fmt.Sprint(c.keys) {
			t.Fatalf("%s holds %v; %v were committed", stream.Name, keys, c.keys)
		}
	}
}

func TestAPowerCutLosesNothingCommitted(t *testing.T) {
	powercut.Test(t, powercut.Plan{Draws: 1, Stride: longtest.Size(23, 11)}, collectMore(4), collectMore(1))
}

func TestAPowerCutUndoesNoStartOver(t *testing.T) {
	setAside := func(t *testing.T, l *powercut.Life[committed]) {
		paths, err := sinkOn(l.Disk).SetAside([]string{"talks", "messages"}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		l.Step()
		l.Ack(committed{aside: len(paths)})
	}
	powercut.Test(t, powercut.Plan{Draws: 1, Stride: 7}, func(t *testing.T, l *powercut.Life[committed]) {
		collectMore(1)(t, l)
		setAside(t, l)
	}, func(t *testing.T, l *powercut.Life[committed]) {
		if n := len(l.Before); n > 0 && l.Before[n-1].position == nil {
			collectMore(1)(t, l)
			kept, err := filepath.Glob(filepath.Join(l.Dir, "data", "out", "*.bak"))
			if err != nil || len(kept) < l.Before[n-1].aside {
				t.Fatalf("of %d folders that were set aside there are %v, %v", l.Before[n-1].aside, kept, err)
			}
			return
		}
		setAside(t, l) // it was cut short
	})
}

// What a life wrote and did not commit is gone for good once the next has opened
// the sink, also for who reads the parts without it.
func TestAPowerCutBringsNothingBackThatWasDiscarded(t *testing.T) {
	reopen := func(t *testing.T, l *powercut.Life[committed]) {
		var c committed
		if n := len(l.Before); n > 0 {
			c = l.Before[n-1]
		}
		s := sinkOn(l.Disk)
		if c.aside > 0 {
			holds(t, s, committed{})
		}
		if err := s.Open(t.Context(), c.position, sample); err != nil {
			t.Fatal(err)
		}
		l.Step()
		l.Ack(committed{position: c.position, aside: 1})
		closed(t, s)
	}
	powercut.Test(t, powercut.Plan{Draws: 1, Stride: 3}, func(t *testing.T, l *powercut.Life[committed]) {
		s := sinkOn(l.Disk)
		if err := s.Open(t.Context(), nil, sample); err != nil {
			t.Fatal(err)
		}
		c := committed{position: synced(t, s)}
		l.Step()
		l.Ack(c)
		for _, stream := range sample {
			put(t, s, stream.Name, sinktest.Record("1", `{"text":"lost"}`))
		}
		synced(t, s)
		closed(t, s)
		again := *l
		again.Before = []committed{c}
		reopen(t, &again)
		l.Ack(committed{position: c.position, aside: 1})
	}, reopen)
}
