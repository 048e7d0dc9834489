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

	"pgregory.net/rapid"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/powercut"
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
func (f *fate) check(t testingT, enough func(got, committed int) bool) {
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
		{"talks": {rec("1", `{"a":1}`)}, "messages": {detail("1", "1", `{"t":"`+long+`"}`)}},
		{"messages": {detail("1", "2", `{"t":"`+long+`"}`)}},
		{"messages": {detail("1", "3", `{"t":5}`)}, "talks": {rec("2", `{"a":"`+long+`"}`), rec("3", `{"b":`+strconv.Quote(long)+`}`)}},
		{"talks": {rec("4", `{"a":2}`)}},
	}
	deaths := 0
	for first, dead := 0, true; dead; first++ {
		// Each 13th step of the second run, from another one each time.
		for second, deadToo := first%13, true; deadToo; second += 13 {
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
	if deaths < 150 {
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
				r, stream := rec(rapid.SampledFrom([]string{"1", "\x00", "é<"}).Draw(rt, "key"), aRecord(rt)), "talks"
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
