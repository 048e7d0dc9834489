//go:build unix

// Package hold_test checks that collections hold: it runs the headway binary
// against full, read-only and damaged disks, against providers that lie, fall
// silent or fail for a while, and with secrets planted everywhere. Each test ends
// with a healthy run, and what was collected by then is what the provider has.
package hold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The exit codes that scripts rely on, after sysexits.h.
const (
	exitDrained  = 0
	exitRefused  = 69
	exitInternal = 70
	exitDeferred = 75
)

// token is the credential of the connections here. It must never be seen again.
const token = "canary-5e1f0c77-do-not-tell"

// patience bounds everything that is waited for.
const patience = 100 * time.Second

// program is the binary under test.
var program string

func TestMain(m *testing.M) {
	if os.Getenv(bounded) != "" {
		becomeBounded()
	}
	os.Exit(withBinary(m.Run))
}

// withBinary builds the program once for all tests.
func withBinary(run func() int) int {
	dir, err := os.MkdirTemp("", "headway-e2e-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // other users run it too
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "headway")
	build := exec.Command("go", "build", "-o", program, "./cmd/headway")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: go build ./cmd/headway: %v\n%s", err, out)
		return 1
	}
	return run()
}

// sources reads every folder of the module. The program is built from them, but
// not imported, so that go test would otherwise take a passed test for passed
// after the program has changed: it looks again at folders that a test has read.
var sources = sync.OnceValue(func() error {
	return filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && !strings.HasSuffix(path, "..") {
			return fs.SkipDir
		}
		return err
	})
})

// process is the program at work.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr transcript
	began          time.Time
	ended          chan struct{} // closed once it has ended and been waited for
	took           time.Duration // set when ended
}

// launch starts the program in a folder, with nothing in its environment but
// what is given. When the test ends before it does, it is killed.
func launch(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	return launchAs(t, nil, dir, env, append([]string{program}, args...)...)
}

// launchAs starts any program, with what the system should do about it.
func launchAs(t *testing.T, how *syscall.SysProcAttr, dir string, env []string, args ...string) *process {
	t.Helper()
	if err := sources(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env, p.cmd.SysProcAttr = dir, append([]string{"HOME=" + dir}, env...), how
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("headway %s: %v", strings.Join(args, " "), err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended stands in ProcessState
		p.took = time.Since(p.began)
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.signal(t, os.Kill)
		<-p.ended
	})
	return p
}

// signal sends a signal, unless the process has ended.
func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal %v to process %d: %v", s, p.cmd.Process.Pid, err)
	}
}

// outcome is how a process ended. A code of -1 is a process that was killed.
type outcome struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

// String is for failures of tests.
func (o outcome) String() string {
	return fmt.Sprintf("exit code %d after %v\nstandard output:\n%s\nstandard error:\n%s", o.code, o.took.Round(time.Millisecond), o.stdout, o.stderr)
}

// wait waits for the end.
func (p *process) wait(t *testing.T) outcome {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.signal(t, os.Kill)
		<-p.ended
		t.Errorf("headway %s had not ended after %v", strings.Join(p.cmd.Args[1:], " "), patience)
	}
	return outcome{code: p.cmd.ProcessState.ExitCode(), stdout: p.stdout.text(), stderr: p.stderr.text(), took: p.took}
}

// transcript is what a process has written so far.
type transcript struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // closed by the next write
}

// Write is called by one goroutine of package exec.
func (w *transcript) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.more != nil {
		close(w.more)
		w.more = nil
	}
	return w.b.Write(b)
}

func (w *transcript) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// await waits until the process has written some text, or has ended.
func (p *process) await(t *testing.T, from *transcript, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		from.mu.Lock()
		found := strings.Contains(from.b.String(), text)
		if from.more == nil {
			from.more = make(chan struct{})
		}
		more := from.more
		from.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-p.ended:
			if !strings.Contains(from.text(), text) {
				t.Fatalf("it ended without %q: %s", text, p.wait(t))
			}
		case <-ctx.Done():
			t.Fatalf("%q did not come within %v; standard output:\n%s\nstandard error:\n%s", text, patience, p.stdout.text(), p.stderr.text())
		}
	}
}
