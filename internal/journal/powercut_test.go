package journal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/internal/powercut"
)

// written is what a load was acknowledged: its state, and the side files' lines.
type written struct {
	state           journal.State
	rejects, doubts string
	// aside is what was in a side file and did not count.
	aside string
}

// load is a journal whose every write is acknowledged.
type load struct {
	t       *testing.T
	l       *powercut.Life[written]
	j       *journal.Journal
	written written
}

func openLoad(t *testing.T, l *powercut.Life[written]) *load {
	t.Helper()
	j, s, err := journal.OpenOn(l, filepath.Join(l.Dir, "loads", "one"), options())
	if err != nil {
		t.Fatal(err)
	}
	o := &load{t: t, l: l, j: j, written: written{state: s}}
	// What Open says, the dispatcher acts on.
	o.written.rejects, o.written.doubts = o.side(journal.RejectsFile), o.side(journal.UncertainFile)
	o.written.aside = o.aside()
	l.Ack(o.written)
	return o
}

func (o *load) side(name string) string {
	b, err := os.ReadFile(filepath.Join(o.l.Dir, "loads", "one", name))
	if err != nil && !os.IsNotExist(err) {
		o.t.Fatal(err)
	}
	return string(b)
}

func (o *load) aside() string {
	return o.side(journal.RejectsFile+".unrecorded") + "|" + o.side(journal.UncertainFile+".unrecorded")
}

func (o *load) write(entries ...journal.Entry) {
	o.t.Helper()
	write(o.t, o.j, entries...)
	o.written = written{o.j.State(), o.side(journal.RejectsFile), o.side(journal.UncertainFile), o.aside()}
	o.l.Ack(o.written)
}

// batch sends some rows in batches, more than a page of the journal holds, and
// settles them.
func (o *load) batches(first int64, n int) {
	o.t.Helper()
	number := o.j.State().LastBatch
	var sent, done []journal.Entry
	for i := range int64(n) {
		at := first + 10*i
		sent = append(sent, journal.Entry{Batch: number + i + 1, Sent: rows(at, at+9)})
		done = append(done, journal.Entry{
			Batch: number + i + 1, Acknowledged: rows(at, at+7), Rejected: rows(at+8, at+8), Uncertain: rows(at+9, at+9),
			Rejects: fmt.Appendf(nil, "{\"row\":%d}\n", at+8), Doubts: fmt.Appendf(nil, "{\"row\":%d}\n", at+9),
		})
	}
	o.write(sent...)
	o.write(done...)
}

// check looks for what was acknowledged.
func (o *load) check(before written) {
	o.t.Helper()
	now := o.written
	settled, rows := now.state.Settled.Len(), before.state.Settled.Len()
	if settled < rows || now.state.LastBatch < before.state.LastBatch || now.state.Rows < before.state.Rows {
		o.t.Fatalf("state %s after %s was acknowledged", state(now.state), state(before.state))
	}
	if !strings.HasPrefix(now.rejects, before.rejects) || !strings.HasPrefix(now.doubts, before.doubts) {
		o.t.Fatalf("side files hold %q and %q; %q and %q were acknowledged", now.rejects, now.doubts, before.rejects, before.doubts)
	}
	for i, part := range strings.Split(before.aside, "|") {
		if !strings.HasPrefix(strings.Split(now.aside, "|")[i], part) {
			o.t.Fatalf("%q was set aside, there is %q", part, now.aside)
		}
	}
	for name, side := range map[string]struct {
		content string
		rows    int64
	}{journal.RejectsFile: {now.rejects, now.state.Counts.Rejected}, journal.UncertainFile: {now.doubts, now.state.Counts.Uncertain}} {
		lines := int64(0)
		for line := range bytes.Lines([]byte(side.content)) {
			if !json.Valid(line) {
				o.t.Fatalf("%s holds the line %q", name, line)
			}
			lines++
		}
		if want := side.rows + min(side.rows, 1); lines != want { // with the preamble
			o.t.Fatalf("%s has %d lines for %d rows", name, lines, side.rows)
		}
	}
}

func (o *load) close() {
	o.t.Helper()
	if err := o.j.Close(); err != nil {
		o.t.Fatal(err)
	}
}

func TestAPowerCutLosesNothingAcknowledged(t *testing.T) {
	for batches, plan := range map[int]powercut.Plan{2: {Draws: 4}, 150: {Draws: 8, Stride: 5}} {
		t.Run(fmt.Sprint(batches), func(t *testing.T) {
			powercut.Test(t, plan, func(t *testing.T, l *powercut.Life[written]) {
				o := openLoad(t, l)
				defer o.close()
				o.batches(0, batches)
				o.batches(10_000, 1)
			}, func(t *testing.T, l *powercut.Life[written]) {
				o := openLoad(t, l)
				defer o.close()
				for _, before := range l.Before {
					o.check(before)
				}
				o.batches(100_000*int64(1+o.written.state.LastBatch), 1)
				o.write(journal.Entry{End: true, Rows: 1 << 40})
				o.check(o.written)
			})
		})
	}
}

// Lines of a side file that the journal does not count are in the file beside it
// and nowhere else, once a load was opened.
func TestAPowerCutBringsNothingBackThatWasSetAside(t *testing.T) {
	const line = "{\"row\":4711}\n"
	powercut.Test(t, powercut.Plan{Draws: 2}, func(t *testing.T, l *powercut.Life[written]) {
		o := openLoad(t, l)
		o.batches(0, 1)
		o.close()
		f, err := l.OpenFile(filepath.Join(l.Dir, "loads", "one", journal.RejectsFile), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write([]byte(line))
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		openLoad(t, l).close()
	}, func(t *testing.T, l *powercut.Life[written]) {
		now := (&load{t: t, l: l}).side(journal.RejectsFile)
		for _, before := range l.Before {
			if strings.Contains(before.aside, line) && strings.Contains(now, line) {
				t.Fatalf("what was set aside is back: %q", now)
			}
		}
	})
}
