// Package pgserver starts a PostgreSQL server for a test: a real one, from Debian's
// package, which is installed when it is missing and the test runs as root. It
// answers "what does this code do with a real database, and when that goes away?".
//
// It is only for tests, on Linux. A server has a folder and a port of its own, so that
// nothing is shared with a service of the machine, and runs as the user postgres where
// the test runs as root. It ends with the test's process.
package pgserver

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/headway-go/headway/internal/debian"
	"github.com/headway-go/headway/internal/leaktest"
)

// Server is one PostgreSQL server. Make one with [New], or take [Shared].
type Server struct {
	dir, bin  string
	port      int
	settings  []string
	process   *exec.Cmd
	ended     chan struct{} // closed when the process has ended
	databases atomic.Int64
}

var (
	mu     sync.Mutex
	shared *Server
)

// Main is TestMain of packages that use [Shared]: it runs the tests, stops the server, and
// fails if a goroutine was left behind. If task is not empty, the process is a child of a test
// instead: it calls run with the lines of task, prints what run returns, and exits with 1.
func Main(m *testing.M, task string, run func(args []string) error) {
	if task != "" {
		fmt.Println("ended", run(strings.Split(task, "\n")))
		os.Exit(1)
	}
	code := m.Run()
	if shared != nil {
		shared.close()
	}
	if err := leaktest.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Shared is the server that the tests of one binary share. TestMain has to be [Main].
func Shared(t testing.TB) *Server {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if shared == nil {
		s, err := start()
		if err != nil {
			t.Fatal(err)
		}
		shared = s
	}
	return shared
}

// New starts a server for one test, with settings such as "fsync=on" over our own. It is
// stopped when the test ends.
func New(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := start(settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// Database makes an empty database and gives its URL, which names the user headway and
// no password: everybody is trusted, except a user named locked.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test%d", s.databases.Add(1))
	s.Exec(t, s.url("postgres"), "CREATE DATABASE "+name)
	return s.url(name)
}

func (s *Server) url(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("headway"), Host: s.Address(), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Address is where the server listens.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Exec runs statements in the database at a URL.
func (s *Server) Exec(t testing.TB, at string, statements ...string) {
	t.Helper()
	db := Open(t, at)
	for _, text := range statements {
		if _, err := db.ExecContext(context.Background(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// Open gives a pool for the database at a URL, which is closed when the test ends.
func Open(t testing.TB, at string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// KillWriter runs this test binary again with an environment variable, such as NAME=value. The
// process prints "committed N" after each acknowledged commit, and is killed after some of
// them. With restart, the server is killed and started after the first. KillWriter returns the
// last N, or last if there was none.
func (s *Server) KillWriter(t testing.TB, variable string, last int, restart bool) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(cmd.Environ(), variable)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for left := 1 + rand.IntN(20); lines.Scan(); left-- {
		n, ok := strings.CutPrefix(lines.Text(), "committed ")
		if !ok {
			t.Fatal(lines.Text())
		}
		if last, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
		if restart {
			s.Stop(t, syscall.SIGQUIT)
			s.Start(t)
			restart = false
		}
		if left <= 0 {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	return last
}

// Stop ends the server: with SIGINT it ends its sessions and stops in order, with
// SIGQUIT at once, as after a crash.
func (s *Server) Stop(t testing.TB, how syscall.Signal) {
	t.Helper()
	if err := s.stop(how); err != nil {
		t.Fatal(err)
	}
}

// Start starts the server again.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// start makes a folder with an empty cluster and runs a server on it.
func start(settings ...string) (*Server, error) {
	bin, err := debian.Install("postgresql", newest)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headway-postgresql-")
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, bin: bin, port: listener.Addr().(*net.TCPAddr).Port, settings: settings}
	if err := listener.Close(); err != nil {
		return nil, err
	}
	who, err := account()
	if err == nil && who != nil {
		err = os.Chown(dir, int(who.Uid), int(who.Gid))
	}
	if err == nil {
		err = s.initialize()
	}
	if err == nil {
		err = s.run()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) initialize() error {
	cmd, err := s.command("initdb", "-D", s.data(), "-U", "headway", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	const rules = "host all locked all scram-sha-256\nlocal all all trust\nhost all all 127.0.0.1/32 trust\n"
	return os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(rules), 0o644)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// run starts the server and waits until it answers.
func (s *Server) run() error {
	args := []string{"-D", s.data()}
	for _, setting := range slices.Concat([]string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(s.port), "unix_socket_directories=" + s.dir,
		// A test cuts no power: what the system has survives every end of the server.
		"fsync=off", "full_page_writes=off", "max_connections=200", "shared_buffers=64MB", "max_wal_size=256MB", "autovacuum=on",
	}, s.settings) {
		args = append(args, "-c", setting)
	}
	cmd, err := s.command("postgres", args...)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := errors.Join(cmd.Start(), log.Close()); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the log says how it ended
		close(ended)
	}()
	s.process, s.ended = cmd, ended
	db, err := sql.Open("pgx", s.url("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		if err = db.PingContext(context.Background()); err == nil {
			return nil
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(filepath.Join(s.dir, "server.log"))
			return fmt.Errorf("the server ended instead of listening (%v):\n%s", cmd.ProcessState, text)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not answer after a minute: %w", err)
		}
	}
}

func (s *Server) stop(how syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		_ = s.process.Process.Signal(syscall.SIGQUIT)
		<-s.ended
	}
	s.process = nil
	return nil
}

func (s *Server) close() {
	_ = s.stop(syscall.SIGQUIT) // nobody reads it again
	_ = os.RemoveAll(s.dir)
}

// command is one of PostgreSQL's programs, as the user that it may run as; it ends with
// this process.
func (s *Server) command(name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	who, err := account()
	if err != nil {
		return nil, err
	}
	cmd.Dir, cmd.Env = s.dir, []string{"LC_ALL=C", "PATH=/usr/bin:/bin", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
	return cmd, nil
}

// account is the user that a server runs as when this process is root's, which
// PostgreSQL refuses; nil is this process's own.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// newest is where Debian keeps the programs of the newest version; empty if there is none.
func newest() (bin string) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	version := 14
	for _, path := range found {
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))); err == nil && n > version {
			version, bin = n, filepath.Dir(path)
		}
	}
	return bin
}
