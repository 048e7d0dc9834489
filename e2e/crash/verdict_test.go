//go:build unix

// Package crash_test kills collecting processes with SIGKILL, at every step of
// a commit and at random instants, and lets others go on where they died. What
// they leave on disk is held against what the provider has: nothing lost,
// nothing twice, no gap forgotten, no cursor ahead of its records.
package crash_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/e2e/internal/harness"
)

// committed checks what a killed process leaves: whatever is committed is on
// disk once, as the provider has or had it; whatever stands before a stored
// cursor is there or owed. Changing says that the provider changed while the
// steady lane walked, so that the newest version need not be there yet.
func (w place) committed(t *testing.T, changing bool) held {
	t.Helper()
	h, want := w.look(t), w.p.truth()
	h.genuine(t, want)
	h.accounted(t, want)
	for kind, lane := range h.lanes {
		if kind != collect.Catchup && changing {
			continue
		}
		for i, id := range want.order[:h.before(t, lane, want)] {
			versions := want.conversations[id]
			if last := versions[len(versions)-1]; kind == collect.Steady && last.UpdatedAt < lane.Since {
				continue // not in this walk
			} else if kind == collect.Steady && !slices.Contains(h.conversations[id], last) {
				t.Errorf("the %s cursor is past conversation %d, whose newest version is not there", kind, i)
			}
			if len(h.conversations[id]) == 0 {
				t.Errorf("the %s cursor is past conversation %d, which is not there", kind, i)
			}
			if _, known := h.known[id]; !known {
				t.Errorf("the %s cursor is past conversation %d, which the store does not know", kind, i)
			}
		}
	}
	return h
}

// before is how many conversations stand before a lane's cursor.
func (h held) before(t *testing.T, lane collect.Lane, want truth) int {
	t.Helper()
	switch {
	case lane.Walking && lane.Cursor == "":
		return 0
	case lane.Walking:
		n, err := number(lane.Cursor)
		if err != nil {
			t.Fatal(err)
		}
		return n + 1
	case lane.Done && lane.Kind == collect.Catchup:
		n := 0 // those that there were then
		for _, id := range want.order {
			if len(h.conversations[id]) == 0 {
				break
			}
			n++
		}
		if n < len(want.order)-1 { // one is added later
			t.Errorf("the walk is done and conversation %d of %d is not there", n, len(want.order))
		}
		return n
	}
	return 0
}

// genuine fails for records that the provider never had, and for those that are
// there twice.
func (h held) genuine(t *testing.T, want truth) {
	t.Helper()
	truths := map[string]map[string]versions{"conversations": want.conversations, "messages": want.messages}
	for stream, all := range h.streams() {
		for id, got := range all {
			for i, r := range got {
				if !slices.Contains(truths[stream][id], r) {
					t.Errorf("%s: %s is there as the provider never had it: %+v", stream, id, r)
				}
				if slices.Contains(got[:i], r) {
					t.Errorf("%s: %s is there twice", stream, id)
				}
			}
		}
	}
}

// accounted fails for each conversation whose messages are neither there nor
// owed: what the store knows was delivered or is on record.
func (h held) accounted(t *testing.T, want truth) {
	t.Helper()
	tail := h.gaps[""]
	open := tail.Backlog && tail.Status != collect.GapRecovered
	for id, item := range h.known {
		g, found := h.gaps[id]
		backlog := item.Owed && open
		owed := backlog || (found && g.Status != collect.GapRecovered)
		if item.Owed && !backlog {
			t.Errorf("%s is owed through a backlog that is not on record", id)
		}
		if len(h.conversations[id]) == 0 {
			t.Errorf("%s is known to the store and not there", id)
		}
		if owed {
			continue
		}
		if want.gone[id] {
			t.Errorf("%s is neither owed nor to be had: its gap is forgotten: %+v", id, g)
		}
		if len(h.messages[id+"-m0"]) == 0 || len(h.messages[id+"-m1"]) == 0 || len(h.messages[id+"-m2"]) == 0 {
			t.Errorf("%s is not owed and its messages are not all there", id)
		}
	}
}

// owes fails unless exactly these are owed, or were given up and are on record.
func (h held) owes(t *testing.T, ids map[string]bool) {
	t.Helper()
	for id, yes := range ids {
		if g, found := h.gaps[id]; yes && (!found || g.Status == collect.GapRecovered) {
			t.Errorf("%s cannot be had and no gap says so: %+v", id, g)
		}
	}
	for id, g := range h.gaps {
		if g.Status == collect.GapLeased {
			t.Errorf("the gap of %q is leased, and nobody runs", id)
		}
		if !ids[id] && g.Status != collect.GapRecovered {
			t.Errorf("the gap of %q is %s, and nothing is missing there: %+v", id, g.Status, g)
		}
	}
}

// complete checks a collection that has come to its end: all that can be had is
// there in its newest version, and nothing is owed but what cannot be had.
// Every says that each version was there to be collected, so that a sink with
// history has to have it.
func (w place) complete(t *testing.T, every bool) held {
	t.Helper()
	h, want := w.look(t), w.p.truth()
	h.genuine(t, want)
	h.accounted(t, want)
	h.owes(t, want.gone)
	if h.tail {
		t.Error("more is on disk than was committed, and the run has ended")
	}
	truths := map[string]map[string]versions{"conversations": want.conversations, "messages": want.messages}
	for stream, all := range truths {
		got := h.streams()[stream]
		for id, versions := range all {
			must := versions[len(versions)-1:]
			if every && w.sink == jsonlSink && (stream == "conversations" || !want.sick[of(id)]) {
				must = versions
			}
			if len(got[id]) < len(must) || !slices.Equal(got[id][len(got[id])-len(must):], must) {
				t.Errorf("%s: of %s there are %+v, want %+v", stream, id, got[id], must)
			}
			if w.sink.records != "" && len(got[id]) != 1 {
				t.Errorf("%s: %s has %d rows", stream, id, len(got[id]))
			}
		}
	}
	if len(h.runs) == 0 || h.runs[0].State == collect.RunRunning {
		t.Errorf("the last run is not on record, or said to be running: %+v", h.runs)
	}
	return h
}

// The exit codes of a run that ended by itself and of wrong usage.
const (
	exitDrained  = 0
	exitDeferred = 75
)

// maxWait bounds one process.
const maxWait = 3 * time.Minute

// TestMain has the program built with points to die at.
func TestMain(m *testing.M) {
	os.Exit(harness.Run(m, harness.Setup{Flags: []string{"-tags", "faults"}, MaxWait: maxWait}))
}

// outcome is how a process ended.
type outcome struct {
	killed bool // by SIGKILL
	code   int
	output string // standard output and error
}

// String is for failures of tests.
func (o outcome) String() string {
	if o.killed {
		return "killed, after it said:\n" + o.output
	}
	return fmt.Sprintf("exit code %d, after it said:\n%s", o.code, o.output)
}

// launch runs the program in a folder until it has ended. A time to kill it
// after of 0 lets it live.
func launch(t *testing.T, dir string, env []string, after time.Duration, args ...string) outcome {
	t.Helper()
	kill := make(chan struct{})
	if after > 0 {
		defer time.AfterFunc(after, func() { close(kill) }).Stop()
	}
	return launchUntil(t, dir, env, kill, args...)
}

// launchUntil runs the program until it has ended, or kills it once a channel is
// closed.
func launchUntil(t *testing.T, dir string, env []string, kill <-chan struct{}, args ...string) outcome {
	t.Helper()
	harness.Sources(t)
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, harness.Program(), args...)
	cmd.Dir, cmd.Env = dir, append([]string{"HOME=" + dir}, env...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatalf("headway %s: %v", strings.Join(args, " "), err)
	}
	ended := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		select {
		case <-kill:
			_ = cmd.Process.Kill() // nothing to a process that was waited for
		case <-ended:
		}
	})
	_ = cmd.Wait() // how it ended stands in ProcessState
	close(ended)
	killer.Wait()
	if ctx.Err() != nil {
		t.Fatalf("headway %s had not ended after %v:\n%s", strings.Join(args, " "), maxWait, output.String())
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		t.Fatalf("the state of the process is a %T", cmd.ProcessState.Sys())
	}
	return outcome{
		killed: status.Signaled() && status.Signal() == syscall.SIGKILL,
		code:   cmd.ProcessState.ExitCode(), output: output.String(),
	}
}
