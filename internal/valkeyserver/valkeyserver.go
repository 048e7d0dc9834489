//go:build unix

// Package valkeyserver starts a Valkey, or Redis, for a test: a real one, from Debian's
// package, which is installed when it is missing and the test runs as root. A server has a
// folder and a port of its own.
package valkeyserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/debian"
)

// maxWait bounds what is waited for. It is far from what anything here takes.
const maxWait = 5 * time.Minute

// Server is a server for one test, with its own folder and its own port on loopback.
type Server struct {
	t       testing.TB
	program string
	args    []string
	// Address is the server's host and port.
	Address string

	mu      sync.Mutex
	process *exec.Cmd // nil while the server is stopped
}

// New starts a server with additional arguments of valkey-server. It installs Debian's
// package if that is missing.
func New(t testing.TB, args ...string) *Server {
	t.Helper()
	program := debian.Require(t, "redis-server", "valkey-server", "redis-server")
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &Server{t: t, program: program, Address: l.Addr().String()}
	_ = l.Close()
	host, port, _ := net.SplitHostPort(v.Address)
	v.args = append([]string{"--bind", host, "--port", port, "--dir", t.TempDir(), "--save", "", "--appendonly", "no"}, args...)
	v.Start()
	t.Cleanup(v.Stop)
	return v
}

// Start starts the server and waits until it answers.
func (v *Server) Start() {
	v.t.Helper()
	cmd := exec.Command(v.program, v.args...)
	if err := cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	v.mu.Lock()
	v.process = cmd
	v.mu.Unlock()
	for deadline := time.Now().Add(maxWait); ; time.Sleep(10 * time.Millisecond) {
		answer, err := v.Ask("PING")
		switch {
		case err == nil && !strings.HasPrefix(answer, "-LOADING"):
			return
		case time.Now().After(deadline):
			v.t.Fatalf("%s does not answer after %v: %q, %v", v.program, maxWait, answer, err)
		}
	}
}

// Stop kills the server if it is running.
func (v *Server) Stop() {
	v.mu.Lock()
	cmd := v.process
	v.process = nil
	v.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// Pause suspends the server until Resume.
func (v *Server) Pause() { v.signal(syscall.SIGSTOP) }

// Resume resumes a suspended server.
func (v *Server) Resume() { v.signal(syscall.SIGCONT) }

func (v *Server) signal(s syscall.Signal) {
	v.t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.process.Process.Signal(s); err != nil {
		v.t.Error(err)
	}
}

// Ask sends one command and returns the first line of the answer, or of a text.
func (v *Server) Ask(words ...string) (string, error) {
	text, err := v.Text(words...)
	line, _, _ := strings.Cut(text, "\r\n")
	return line, err
}

// Must sends one command, and fails the test if the answer is an error.
func (v *Server) Must(words ...string) {
	v.t.Helper()
	if answer, err := v.Ask(words...); err != nil || strings.HasPrefix(answer, "-") {
		v.t.Fatalf("%v: %s, %v", words, answer, err)
	}
}

// Text sends one command and returns the first line of the answer, or all of a text.
func (v *Server) Text(words ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", v.Address, maxWait)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(maxWait))
	command := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := conn.Write(command); err != nil {
		return "", err
	}
	from := bufio.NewReader(conn)
	line, err := from.ReadString('\n')
	line = strings.TrimSpace(line)
	var size int
	if _, no := fmt.Sscanf(line, "$%d", &size); err != nil || no != nil || size < 0 {
		return line, err
	}
	text := make([]byte, size)
	_, err = io.ReadFull(from, text)
	return string(text), err
}

// Proxy forwards connections to a server. It can be stalled: it then holds data back and
// forwards it later.
type Proxy struct {
	// Address is the host and port at which the proxy listens.
	Address string

	listen net.Listener
	mu     sync.Mutex
	to     string
	held   chan struct{} // closed by Stall(false); nil while the proxy is not stalled
	conns  map[net.Conn]bool
	tasks  sync.WaitGroup
}

// NewProxy starts a proxy to an address.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: l.Addr().String(), listen: l, to: to, conns: make(map[net.Conn]bool)}
	p.tasks.Go(p.run)
	t.Cleanup(func() {
		_ = l.Close()
		p.Stall(false)
		p.Move(to)
		p.tasks.Wait()
	})
	return p
}

// Stall stalls the proxy, or ends that.
func (p *Proxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.held == nil:
		p.held = make(chan struct{})
	case !on && p.held != nil:
		close(p.held)
		p.held = nil
	}
}

// Move closes all connections and changes the server's address.
func (p *Proxy) Move(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
	for conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *Proxy) run() {
	for {
		here, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.tasks.Go(func() {
			p.wait()
			p.mu.Lock()
			to := p.to
			p.mu.Unlock()
			there, err := net.Dial("tcp", to)
			if err != nil {
				_ = here.Close()
				return
			}
			p.mu.Lock()
			p.conns[here], p.conns[there] = true, true
			p.mu.Unlock()
			p.tasks.Go(func() { p.pass(here, there) })
			p.pass(there, here)
		})
	}
}

// wait returns once the proxy is not stalled.
func (p *Proxy) wait() {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		<-held
	}
}

// pass copies data until one of the connections ends.
func (p *Proxy) pass(from, to net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		p.wait()
		if n > 0 {
			if _, wrong := to.Write(b[:n]); wrong != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = from.Close()
	_ = to.Close()
	p.mu.Lock()
	delete(p.conns, from)
	delete(p.conns, to)
	p.mu.Unlock()
}
