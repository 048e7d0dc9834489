package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
)

// Process is a program at work.
type Process struct {
	// Stdout and Stderr are what it has written so far.
	Stdout, Stderr Transcript

	cmd   *exec.Cmd
	began time.Time
	ended chan struct{} // closed once it has ended and been waited for
	took  time.Duration // set when ended
}

// Launch starts the binary in a folder, with nothing in its environment but
// what is given. When the test ends before it does, it is killed.
func Launch(t *testing.T, dir string, env []string, args ...string) *Process {
	t.Helper()
	return LaunchAs(t, nil, dir, env, append([]string{program}, args...)...)
}

// LaunchAs starts any program as [Launch] starts the binary; how is what the
// system should do about it, nil for nothing.
func LaunchAs(t *testing.T, how *syscall.SysProcAttr, dir string, env []string, args ...string) *Process {
	t.Helper()
	Sources(t)
	p := &Process{cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env, p.cmd.SysProcAttr = dir, append([]string{"HOME=" + dir}, env...), how
	p.cmd.Stdout, p.cmd.Stderr = &p.Stdout, &p.Stderr
	p.cmd.WaitDelay = time.Minute // what it started and left behind may hold them open
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended stands in ProcessState
		p.took = time.Since(p.began)
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Signal(t, os.Kill)
		<-p.ended
	})
	return p
}

// String is what was started, for failures of tests.
func (p *Process) String() string { return strings.Join(p.cmd.Args, " ") }

// ID is the process's number.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Ended is closed once the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Signal sends a signal, unless the process has ended.
func (p *Process) Signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal %v to process %d: %v", s, p.ID(), err)
	}
}

// Outcome is how a process ended.
type Outcome struct {
	// Code is its exit code, -1 after a signal.
	Code int
	// Killed says that it was a SIGKILL that ended it.
	Killed         bool
	Stdout, Stderr string
	Took           time.Duration
}

// String is for failures of tests.
func (o Outcome) String() string {
	return fmt.Sprintf("exit code %d after %v\nstandard output:\n%s\nstandard error:\n%s", o.Code, o.Took.Round(time.Millisecond), o.Stdout, o.Stderr)
}

// Wait waits for the end. A process that does not come to one in time is
// killed, and fails the test.
func (p *Process) Wait(t *testing.T) Outcome {
	t.Helper()
	late := time.NewTimer(maxWait)
	defer late.Stop()
	select {
	case <-p.ended:
	case <-late.C:
		p.Signal(t, os.Kill)
		<-p.ended
		t.Errorf("%s had not ended after %v", p, maxWait)
	}
	o := Outcome{Code: p.cmd.ProcessState.ExitCode(), Stdout: p.Stdout.Text(), Stderr: p.Stderr.Text(), Took: p.took}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		o.Killed = status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	return o
}

// Transcript is what a process has written so far. It is safe for concurrent
// use.
type Transcript struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // closed by the next write
}

// Write is called by one goroutine of package exec.
func (w *Transcript) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.more != nil {
		close(w.more)
		w.more = nil
	}
	return w.b.Write(b)
}

// Text is all of it.
func (w *Transcript) Text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// holds reports whether a text was written, and what the next write closes.
func (w *Transcript) holds(text string) (bool, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.more == nil {
		w.more = make(chan struct{})
	}
	return strings.Contains(w.b.String(), text), w.more
}

// Await waits until the process has written some text to one of its
// transcripts. It fails the test when the process ends without that.
func (p *Process) Await(t *testing.T, from *Transcript, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	for {
		found, more := from.holds(text)
		if found {
			return
		}
		select {
		case <-more:
		case <-p.ended:
			if found, _ := from.holds(text); !found {
				t.Fatalf("it ended without %q: %s", text, p.Wait(t))
			}
		case <-ctx.Done():
			t.Fatalf("%q did not come within %v; standard output:\n%s\nstandard error:\n%s", text, maxWait, p.Stdout.Text(), p.Stderr.Text())
		}
	}
}

// FreeAddress is a loopback address that nobody listened on a moment ago.
func FreeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// NewServer is a server of this process that its caller starts. When the test
// ends, the context of every request under way ends first, so that a handler
// that waits for it returns, even where the server cannot see that the client
// has gone: it does not look for that until the request's body is read.
func NewServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	// Not the test's own context: Close waits for handlers.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s := httptest.NewUnstartedServer(h)
	s.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // what it has to say of its clients
	t.Cleanup(func() {
		cancel()
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Serve starts a server of this process, which ends with the test as that of
// [NewServer] does.
func Serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := NewServer(t, h)
	s.Start()
	return s
}

// Line is one line of collect --json.
type Line struct {
	// Type says which of the others is there.
	Type     string
	Event    json.RawMessage
	Progress json.RawMessage
	Held     *struct{ Connection, Holder, Run string }
	Summary  *collect.Summary
}

// Lines reads the output of collect --json: valid JSON in every line, of a known
// type, the last one and no other a summary.
func Lines(t *testing.T, o Outcome) []Line {
	t.Helper()
	if o.Stdout == "" || !strings.HasSuffix(o.Stdout, "\n") {
		t.Fatalf("the output is empty or its last line unfinished: %s", o)
	}
	var all []Line
	for text := range strings.Lines(o.Stdout) {
		var l Line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q is not JSON: %v", text, err)
		}
		held := map[string]bool{
			"event": l.Event != nil, "progress": l.Progress != nil, "held": l.Held != nil, "summary": l.Summary != nil,
		}
		if !held[l.Type] {
			t.Errorf("a line of type %q without it: %s", l.Type, text)
		}
		if len(all) > 0 && all[len(all)-1].Summary != nil {
			t.Errorf("a line after the summary: %s", text)
		}
		all = append(all, l)
	}
	return all
}

// Summary is the last line of collect --json.
func Summary(t *testing.T, o Outcome) collect.Summary {
	t.Helper()
	all := Lines(t, o)
	last := all[len(all)-1].Summary
	if last == nil {
		t.Fatalf("the last line is not a summary: %s", o)
	}
	return *last
}
