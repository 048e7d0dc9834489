//go:build linux

package sqlite_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/fulldisk"
	"github.com/headway-go/headway/store/sqlite"
)

// room leaves little more than the log may use.
var room = fulldisk.Room{Disk: 2 << 20, Left: 64 << 10, File: 256 << 10}

// TestFullDisk commits until the disk is full: the error says what to do, what
// was committed stays, and the same store goes on when there is space again.
func TestFullDisk(t *testing.T) {
	for _, way := range fulldisk.Ways(t, room) {
		t.Run(way.Name, func(t *testing.T) {
			dir, fillUp, free := way.Prepare(t)
			path := filepath.Join(dir, "state.db")
			s := open(t, path)
			l := fill(t, s, "c", "r1", 100)
			fillUp()
			pages, err := 0, error(nil)
			for ; err == nil && pages < 1000; pages++ {
				c := page(100*pages, 100)
				c.Progress = collect.Progress{Pages: int64(pages + 1)}
				err = s.Commit(t.Context(), l, c)
			}
			if err == nil {
				t.Fatal("the disk was never full")
			}
			pages-- // the last one failed
			if !strings.Contains(err.Error(), "what was committed is kept") || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v: does not say where and what to do", err)
			}
			if errors.Is(err, collect.ErrLeaseLost) {
				t.Errorf("%v: the lease was not lost", err)
			}
			free()
			run, err := s.Runs(t.Context(), "c", 1)
			if err != nil || int(run[0].Pages) != pages {
				t.Errorf("after the failure: %+v, %v; want the %d pages that were acknowledged", run, err, pages)
			}
			if err := s.Commit(t.Context(), l, page(0, 100)); err != nil {
				t.Errorf("with space again: %v", err)
			}
		})
	}
}

// TestNoRoomForAStore creates a store where there is no space at all.
func TestNoRoomForAStore(t *testing.T) {
	for _, way := range fulldisk.Ways(t, room) {
		t.Run(way.Name, func(t *testing.T) {
			dir, fillUp, free := way.Prepare(t)
			fillUp()
			write(t, filepath.Join(dir, "last"), nil)
			if way.Name == fulldisk.SmallFileSystem {
				write(t, filepath.Join(dir, "last"), make([]byte, 60<<10))
			} else if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 512, Max: ^uint64(0)}); err != nil {
				t.Fatal(err)
			}
			_, err := sqlite.Open(t.Context(), filepath.Join(dir, "state.db"))
			free()
			says(t, "Open", err, dir, "free")
		})
	}
}

// TestWithoutPermission opens stores as a user who may not write them.
func TestWithoutPermission(t *testing.T) {
	dir := shared(t)
	path := filepath.Join(dir, "state.db")
	store(t, path)
	before := read(t, path)
	for _, c := range []struct {
		name      string
		dir, file os.FileMode
	}{
		{"read-only file", 0o777, 0o444},
		{"read-only folder", 0o555, 0o666},
		{"read-only both", 0o555, 0o444},
	} {
		t.Run(c.name, func(t *testing.T) {
			chmod(t, path, c.file)
			chmod(t, dir, c.dir)
			out := unprivileged(t, "open", path)
			for _, part := range []string{"cannot be written", path, "right to write"} {
				if !strings.Contains(out, part) {
					t.Errorf("%q does not say %q", out, part)
				}
			}
			chmod(t, dir, 0o755)
			if string(before) != string(read(t, path)) {
				t.Error("the file was changed")
			}
		})
	}
	t.Run("new store in a read-only folder", func(t *testing.T) {
		chmod(t, dir, 0o555)
		out := unprivileged(t, "open", filepath.Join(dir, "sub", "new.db"))
		if !strings.Contains(out, "cannot be written") || !strings.Contains(out, "permission denied") {
			t.Errorf("%q does not say that the folder cannot be written", out)
		}
	})
	chmod(t, dir, 0o755)
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// shared is a folder that other users may enter.
func shared(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	chmod(t, filepath.Dir(dir), 0o755)
	return dir
}

// unprivileged runs a role of the test binary as a user whom permissions bind,
// which root is not.
func unprivileged(t *testing.T, role, path string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Where the binary was built another user may not look.
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(shared(t), "child")
	if err := os.WriteFile(bin, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Env = append(os.Environ(), childEnv+"="+role+"\n"+path+"\nr9", "TMPDIR=/tmp")
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		t.Errorf("role %s: got %v, want it to run and fail", role, err)
	}
	return string(out)
}
