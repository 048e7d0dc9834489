// Package harness is what the end-to-end tests share: it builds the headway
// binary once for a test package, runs it as processes, reads what they print
// and leave on disk, and holds that against what a simulated provider has.
//
// Only tests below e2e may import it; a test of one package needs no process.
// A test package calls [Run] in its TestMain. Everything else takes the test
// that it is for, fails that test, and leaves nothing behind when it ends.
// Tests may run in parallel: nothing here changes after Run has built the
// binary, except what a test made for itself. Time is real; whatever is waited
// for is bounded by [Setup.MaxWait].
package harness

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The exit codes that scripts rely on, after sysexits.h.
const (
	ExitDrained = 0
	// ExitIncomplete: something is quarantined.
	ExitIncomplete = 65
	ExitUsage      = 64
	ExitRefused    = 69
	ExitInternal   = 70
	ExitDeferred   = 75
)

// Token is the credential of the connections here. It must never be seen again.
const Token = "canary-5e1f0c77-do-not-tell"

// root is the module's, from the folder of a test package.
var root = filepath.Join("..", "..")

// Setup is what a test package may ask for.
type Setup struct {
	// Flags are more of go build, such as -tags and their value.
	Flags []string
	// MaxWait bounds everything that is waited for; 0 is three minutes.
	MaxWait time.Duration
	// Parallel is how many tests run at once where -parallel does not say; 0 is
	// one a core. Tests that mostly wait should be more.
	Parallel int
}

// limit is how long the tests of a package may take together. A package that
// hangs then ends with its goroutines printed, before go test's own limit.
const limit = 10 * time.Minute

// Set by Run, before the first test.
var (
	program string
	maxWait = 3 * time.Minute
)

// Program is the path of the binary under test.
func Program() string { return program }

// Run builds the binary, runs the tests, and gives the exit code for TestMain.
func Run(m *testing.M, s Setup) int {
	if s.MaxWait > 0 {
		maxWait = s.MaxWait
	}
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
	if err := Build(context.Background(), program, s.Flags...); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	if err := set(s.Parallel); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return m.Run()
}

// set lowers the time limit of go test, except for a long run, and raises how many tests run at once
// unless the command line says.
func set(parallel int) error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if parallel > 0 && !given {
		if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
			return err
		}
	}
	if long := flag.Lookup("long"); long != nil && long.Value.String() == "true" {
		return nil
	}
	f := flag.Lookup("test.timeout")
	if now, err := time.ParseDuration(f.Value.String()); err != nil || now <= limit { // 0 means none, and was asked for
		return err
	}
	return flag.Set(f.Name, limit.String())
}

// Build puts the binary to a path, built with more flags of go build. It is the one that
// go run keeps in the build cache, so that it is linked once and not for each package. The
// error says what the compiler said.
func Build(ctx context.Context, to string, flags ...string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"run", "-exec", "cp"}, flags...), "./cmd/headway", to)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// sources reads every folder of the module. The program is built from them, but
// not imported, so that go test would otherwise take a passed test for passed
// after the program has changed: it looks again at folders that a test has read.
var sources = sync.OnceValue(func() error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && !strings.HasSuffix(path, "..") {
			return fs.SkipDir
		}
		return err
	})
})

// Sources makes go test take the test's result for stale once the program has
// changed, or fails the test. A test that starts [Program] itself must call it; what
// starts processes here does.
func Sources(t *testing.T) {
	t.Helper()
	if err := sources(); err != nil {
		t.Fatal(err)
	}
}

// Write writes a file that its owner may read, or fails the test.
func Write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Eventually waits for something that only looking can tell.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	for pause := 2 * time.Millisecond; !holds(); pause = min(2*pause, 50*time.Millisecond) { // looking takes time from what is looked at
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", maxWait, what)
		}
	}
}
