//go:build unix

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/store/sqlite"
)

// nobody is a user without rights of its own.
const nobody = 65534

// TestStatusNeedsNoWriteAccess runs itself again as nobody where it runs as root,
// for whom nothing is read-only.
func TestStatusNeedsNoWriteAccess(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t)
		return
	}
	path := owing(t)
	readOnly(t, path)
	for _, command := range []string{"status", "runs", "rate", "gaps list"} {
		if code, _, errs := headway(t, append(strings.Fields(command), "--state", path)...); code != 0 {
			t.Errorf("%s: exit %d, %s", command, code, errs)
		}
	}
}

// TestADeadHolderIsSeenWithoutWriteAccess: who may only read learns of a lease
// whose process is gone as well as who may write.
func TestADeadHolderIsSeenWithoutWriteAccess(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t)
		return
	}
	path := filepath.Join(t.TempDir(), "state.db")
	store, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Acquire(t.Context(), collect.LeaseRequest{
		Connection: "acme", Run: "r1", Holder: "the dead", Now: time.Now(), TTL: time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil { // its locks end as with the process
		t.Fatal(err)
	}
	readOnly(t, path)
	for _, command := range []string{"status", "runs"} {
		code, out, errs := headway(t, command, "--state", path)
		if code != 0 || strings.Contains(out, "the dead") || !strings.Contains(out, "abandoned") {
			t.Errorf("%s: exit %d, %s%s", command, code, out, errs)
		}
	}
}

// readOnly takes the right to write a state and what is beside it.
func readOnly(t *testing.T, path string) {
	t.Helper()
	dir := filepath.Dir(path)
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.Chmod(file, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "more"), nil, 0o600); err == nil {
		t.Fatal("the folder can be written, so the test shows nothing")
	}
}

// asNobody runs the test that calls it in a process of another user.
func asNobody(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "nobody") //nolint:usetesting // the other user cannot enter the test's own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "test")
	if err := os.WriteFile(copied, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), copied, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}
