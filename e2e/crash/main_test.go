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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
)

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
