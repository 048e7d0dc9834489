package sinktest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-go/headway/internal/leaktest"
)

// Main runs the tests of a package and fails if they leak goroutines. With a task
// "<role>\n<folder>" the process is a child of [Hold] or [Refused] instead: it opens a
// sink in the folder, prints "open", and with the role "hold" waits to be killed. If open
// fails, it prints the error and exits with 1.
func Main(m *testing.M, task string, open func(dir string) error) {
	if task != "" {
		role, dir, _ := strings.Cut(task, "\n")
		if err := open(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("open")
		if role == "hold" {
			select {}
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

// Hold starts this test binary again with one more environment variable, and waits until
// it prints "open". kill sends SIGKILL and waits for its end.
func Hold(t *testing.T, variable string) (kill func()) {
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
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" || err != nil {
		t.Fatalf("the child said %q, %v", line, err)
	}
	return func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // an error, since it was killed
	}
}

// Refused sets the modes of files and runs this test binary again, not as root, since
// permissions do not apply to root. The child must fail; Refused returns its output.
func Refused(t *testing.T, variable string, modes map[string]os.FileMode) error {
	t.Helper()
	for path, mode := range modes {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Another user may not be able to read the directory of the binary.
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "child")
	if err := errors.Join(os.WriteFile(bin, b, 0o755), os.Chmod(filepath.Dir(filepath.Dir(bin)), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Env = append(cmd.Environ(), variable)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		t.Errorf("got %v, want the child to run and fail", err)
	}
	return errors.New(string(out))
}
