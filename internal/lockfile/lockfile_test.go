package lockfile_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headway-go/headway/internal/lockfile"
)

// childEnv makes the test binary another process, which holds the lock of a path
// until its input ends.
const childEnv = "HEADWAY_LOCKFILE_TEST"

func TestMain(m *testing.M) {
	path := os.Getenv(childEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	if _, err := lockfile.Open(path); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func open(t *testing.T, path string) *lockfile.Lock {
	t.Helper()
	l, err := lockfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// taken checks that a lock cannot be had, and that the error says who has it and
// what to do.
func taken(t *testing.T, path string, process int) {
	t.Helper()
	_, err := lockfile.Open(path)
	e, ok := errors.AsType[*lockfile.HeldError](err)
	if !ok {
		t.Fatalf("got %v, want a *HeldError", err)
	}
	if e.Path != path || e.Process != process {
		t.Errorf("process %d has %s, want process %d and %s", e.Process, e.Path, process, path)
	}
	for _, want := range []string{fmt.Sprint(process), path, "wait until it is done, or stop it"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
}

func TestTwoHoldersInOneProcessExcludeEachOther(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	first := open(t, path)
	other := filepath.Join(dir, "other")
	if err := os.Link(path, other); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, other} {
		taken(t, p, os.Getpid())
		if held, err := lockfile.Held(p); err != nil || !held {
			t.Errorf("%s: held is %v, %v", p, held, err)
		}
	}
	// Those that were refused and those that asked have freed nothing.
	taken(t, path, os.Getpid())
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if held, err := lockfile.Held(path); err != nil || held {
		t.Errorf("after it was closed: held is %v, %v", held, err)
	}
	second := open(t, path)
	// Closing the first again does not free the lock of the second.
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	taken(t, path, os.Getpid())
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

func TestALockOfAnotherProcessEndsWithIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self)
	child.Env = append(os.Environ(), childEnv+"="+path)
	if _, err := child.StdinPipe(); err != nil { // held open
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	taken(t, path, child.Process.Pid)
	if held, err := lockfile.Held(path); err != nil || !held {
		t.Errorf("held is %v, %v", held, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	open(t, path)
	taken(t, path, os.Getpid())
}

func TestALockWithoutASignatureIsHeldByAnotherProcess(t *testing.T) {
	for _, content := range []string{"", " ", "what somebody wrote", " process -4\n", " process 99999999999999999999\n"} {
		path := filepath.Join(t.TempDir(), "lock")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := lockfile.Try(f); !ok || err != nil {
			t.Fatal(ok, err)
		}
		_, err = lockfile.Open(path)
		if e, ok := errors.AsType[*lockfile.HeldError](err); !ok || e.Process != 0 || !strings.Contains(err.Error(), "another process has the lock") {
			t.Errorf("%q: %v", content, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestHeldCreatesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if held, err := lockfile.Held(path); held || err != nil {
		t.Errorf("held is %v, %v", held, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was made: %v", err)
	}
}

func TestThoseThatWaitTakeTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var inside, most, done int
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			err := lockfile.With(t.Context(), path, func(context.Context) error {
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				taken(t, path, os.Getpid())
				mu.Lock()
				inside, done = inside-1, done+1
				mu.Unlock()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most != 1 || done != 4 {
		t.Errorf("%d were done, %d at once", done, most)
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := lockfile.With(ctx, path, func(context.Context) error { t.Error("it was called"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Two that take two locks in different orders would wait for ever.
func TestNobodyWaitsForALockWhileHoldingAnother(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	broken := errors.New("broken")
	err := lockfile.With(t.Context(), a, func(ctx context.Context) error {
		for _, second := range []string{a, b} {
			err := lockfile.With(ctx, second, func(context.Context) error { t.Error("it was called"); return nil })
			if err == nil || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), "one after the other") {
				t.Errorf("got %v", err)
			}
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want what the function gave", err)
	}
	if held, err := lockfile.Held(a); held || err != nil {
		t.Errorf("it is held after its use: %v, %v", held, err)
	}
}

func TestALockEndsWithItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	try := func(f *os.File) bool {
		taken, err := lockfile.Try(f)
		if err != nil {
			t.Fatal(err)
		}
		return taken
	}
	first, second := open(), open()
	if !try(first) || try(second) {
		t.Fatal("two files have one lock")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if !try(second) {
		t.Fatal("the lock outlived its file")
	}
}
