package sinktest

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Hold starts this test binary again with one more variable in its environment, and
// waits until it says "open". kill ends it as SIGKILL does, and waits for its end.
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
		_ = cmd.Wait() // it was killed
	}
}

// Refused runs this test binary again as a user whom permissions bind, which root is
// not, after the files got these modes. It must fail; what it printed is returned.
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
	// Where the binary was built another user may not look.
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
