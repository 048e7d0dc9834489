package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/store/sqlite"
)

// childEnv makes the test binary a second process: "<role> <path> <run>".
const childEnv = "HEADWAY_SQLITE_TEST_CHILD"

// child is the second process. It says on standard output what it did.
func child() {
	role := os.Getenv(childEnv)
	if role == "" {
		return
	}
	if err := serve(strings.Split(role, "\n")); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(args []string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, args[1])
	if err != nil || args[0] == "open" {
		return err
	}
	l, err := s.Acquire(ctx, request("c", args[2], time.Now()))
	if isHeld(err) {
		fmt.Println("held")
		return s.Close()
	}
	if err != nil {
		return err
	}
	fmt.Println("acquired")
	for n := 0; args[0] == "commit until killed" || n < 50; n++ {
		c := page(10*n, 10)
		c.Progress = collect.Progress{Pages: int64(n + 1)}
		if err := s.Commit(ctx, l, c); err != nil {
			return err
		}
		fmt.Println("committed", n+1) // only what was acknowledged
	}
	if args[0] == "commit and stay" {
		_, err := io.Copy(io.Discard, os.Stdin) // alive until its parent lets go
		return err
	}
	if args[0] == "commit and finish" {
		return errors.Join(s.Finish(ctx, l, collect.RunEnd{At: time.Now(), State: collect.RunDrained}), s.Close())
	}
	return nil
}

// start runs a second process. Its standard input stays open until the process
// is waited for or the returned pipe is closed.
func start(t *testing.T, role, path, run string) (*exec.Cmd, *bufio.Scanner, io.Closer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childEnv+"="+role+"\n"+path+"\n"+run)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, bufio.NewScanner(out), in
}

// TestProcessesShareOneStore lets another process win, write and be watched.
func TestProcessesShareOneStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	mine := fill(t, s, "mine", "r0", 5)
	cmd, out, _ := start(t, "commit and finish", path, "r1")
	for out.Scan() {
		if strings.HasPrefix(out.Text(), "error") {
			t.Error(out.Text())
		}
		// This process writes too, between and during the other's commits.
		if err := s.Commit(t.Context(), mine, page(0, 5)); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	runs, err := s.Runs(t.Context(), "c", 0)
	if err != nil || len(runs) != 1 || runs[0].State != collect.RunDrained {
		t.Errorf("runs %+v, %v; want one that drained", runs, err)
	}
	status, err := s.Connections(t.Context())
	if err != nil || status[0].Items["x"] != 500 {
		t.Errorf("status %+v, %v; want 500 items", status, err)
	}
}

func TestOneOfManyProcessesWins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var cmds []*exec.Cmd
	var outs []*bufio.Scanner
	var stays []io.Closer
	for i := range 4 {
		cmd, out, stay := start(t, "commit and stay", path, fmt.Sprintf("r%d", i))
		cmds, outs, stays = append(cmds, cmd), append(outs, out), append(stays, stay)
	}
	won := 0
	for _, out := range outs { // what each says first
		switch out.Scan(); {
		case out.Text() == "acquired":
			won++
		case out.Text() != "held":
			t.Errorf("a process said %q", out.Text())
		}
	}
	for i, out := range outs {
		if err := stays[i].Close(); err != nil {
			t.Error(err)
		}
		for out.Scan() {
			if strings.HasPrefix(out.Text(), "error") {
				t.Error(out.Text())
			}
		}
		if err := cmds[i].Wait(); err != nil {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d processes acquired the connection, want 1", won)
	}
}

// TestKilledProcessLosesNothing kills a writer between and within commits and
// compares the store with what was acknowledged.
func TestKilledProcessLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for round := range 8 {
		_ = os.Remove(path)
		_, _ = os.Remove(path+"-wal"), os.Remove(path+"-shm")
		cmd, out, _ := start(t, "commit until killed", path, "r1")
		acknowledged := 0
		for out.Scan() {
			if _, err := fmt.Sscanf(out.Text(), "committed %d", &acknowledged); err == nil && acknowledged == 3*round+1 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // it was killed
		check(t, path, acknowledged)
	}
}

func check(t *testing.T, path string, acknowledged int) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	status, err := s.Connections(t.Context())
	if err != nil || len(status) != 1 {
		t.Fatalf("status %+v, %v", status, err)
	}
	pages := int(status[0].LastRun.Pages)
	if pages < acknowledged || pages > acknowledged+1 {
		t.Errorf("%d pages are there of %d acknowledged", pages, acknowledged)
	}
	// Cursor, counters and items are of the same commit.
	if got := int(status[0].Items["x"]); got != 10*pages {
		t.Errorf("%d items with %d pages", got, pages)
	}
	if got := status[0].Lanes[0].Cursor; got != key(10*(pages-1)) {
		t.Errorf("cursor %s with %d pages", got, pages)
	}
	next, err := s.Acquire(t.Context(), request("c", "r2", time.Now().Add(2*time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), next, page(0, 1)); err != nil {
		t.Error(err)
	}
}

// TestALeaseEndsWithItsProcess: while the holder lives its lease is respected,
// once it was killed nobody waits for the lease to expire.
func TestALeaseEndsWithItsProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	cmd, out, _ := start(t, "commit until killed", path, "r1")
	if !out.Scan() || out.Text() != "acquired" {
		t.Fatalf("the process said %q", out.Text())
	}
	s := open(t, path)
	if _, err := s.Acquire(t.Context(), request("c", "r2", time.Now())); !isHeld(err) {
		t.Fatalf("a living holder's lease was taken: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	l, err := s.Acquire(t.Context(), request("c", "r3", time.Now()))
	if err != nil {
		t.Fatalf("a dead holder's lease was respected: %v", err)
	}
	runs, err := s.Runs(t.Context(), "c", 0)
	if err != nil || len(runs) != 2 || runs[1].State != collect.RunAbandoned {
		t.Errorf("runs %+v, %v; want the killed one abandoned", runs, err)
	}
	if err := s.Finish(t.Context(), l, collect.RunEnd{At: time.Now(), State: collect.RunDrained}); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(path + "-lease-*"); err != nil || len(left) != 0 {
		t.Errorf("lock files were left behind: %v, %v", left, err)
	}
}

// TestWhoMayReadTheStoreMayAskWhoIsAlive: the lock file of a lease can be read by
// those who can read the store, and written by nobody else.
func TestWhoMayReadTheStoreMayAskWhoIsAlive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	if err := os.Chmod(path, 0o664); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), request("c", "r1", time.Now())); err != nil {
		t.Fatal(err)
	}
	locks, err := filepath.Glob(path + "-lease-*")
	if err != nil || len(locks) != 1 {
		t.Fatalf("lock files %v, %v", locks, err)
	}
	if info, err := os.Stat(locks[0]); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%s has mode %v, %v; want 0644", locks[0], info.Mode(), err)
	}
}
