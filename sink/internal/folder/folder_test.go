package folder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/disk"
)

// locked is a new folder, two levels below what there was.
func locked(t *testing.T) *Locked {
	t.Helper()
	d, err := Lock("test", filepath.Join(t.TempDir(), "a", "b"), func() {}, disk.OS{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func plant(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOneHasTheFolder(t *testing.T) {
	d := locked(t)
	for name, lock := range map[string]func(string, string, func(), disk.Disk) (*Locked, error){"Lock": Lock, "LockExisting": LockExisting} {
		_, err := lock("other", d.Dir, d.Step, d.Disk)
		if held, ok := errors.AsType[*LockedError](err); !ok || held.Dir != d.Dir || !strings.HasPrefix(err.Error(), "other: another collection") || !strings.Contains(err.Error(), fmt.Sprintf("this process (%d) has it", os.Getpid())) {
			t.Errorf("%s: got %v, want *LockedError of %s", name, err, d.Dir)
		}
	}
	if err := d.Unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := LockExisting("test", d.Dir, d.Step, d.Disk)
	if err != nil || again == nil {
		t.Fatalf("after Unlock: %v, %v", again, err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestLockExistingCreatesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	if d, err := LockExisting("test", dir, func() {}, disk.OS{}); d != nil || err != nil {
		t.Errorf("got %v, %v, want neither a folder nor an error", d, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was created")
	}
}

func TestAFileIsNoFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	plant(t, path, "x")
	if _, err := Lock("test", filepath.Join(path, "below"), func() {}, disk.OS{}); err == nil {
		t.Error("a folder in a file was made")
	}
	if _, err := Lock("test", path, func() {}, disk.OS{}); err == nil || !strings.Contains(err.Error(), "name a folder") {
		t.Errorf("got %v, want an error that says what to do", err)
	}
}

func TestAsideTakesNothingFromAnyone(t *testing.T) {
	d := locked(t)
	defer func() { _ = d.Unlock() }()
	at := time.Date(2024, 2, 3, 4, 5, 6, 0, time.FixedZone("", 3600))
	for _, want := range []string{"x.20240203T030506Z.bak", "x.20240203T030506Z.2.bak", "x.20240203T030506Z.3.bak"} {
		plant(t, d.Path("x"), want)
		path, err := d.Aside("x", Backup("x", at))
		if err != nil || path != d.Path(want) {
			t.Fatalf("set aside as %s, %v; want %s", path, err, want)
		}
	}
	names, err := d.Names()
	if err != nil || len(names) != 4 { // the lock, too
		t.Errorf("the folder has %v, %v", names, err)
	}
	for _, name := range names[1:] {
		if b, err := os.ReadFile(d.Path(name)); err != nil || string(b) != name {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
	}
}

func TestCutAndLines(t *testing.T) {
	d := locked(t)
	defer func() { _ = d.Unlock() }()
	plant(t, d.Path("x"), "one\ntwo\nthr")
	for n, want := range map[int64]string{4: "\n", 8: "\n", 3: "e", 11: "r"} {
		if got, err := d.Tail("x", n, 1); err != nil || string(got) != want {
			t.Errorf("the last of the first %d bytes: %q, %v; want %q", n, got, err, want)
		}
	}
	if got, err := d.Tail("x", 3, 64); string(got) != "one" || err != nil {
		t.Errorf("a tail longer than what is asked for: %q, %v", got, err)
	}
	if _, err := d.Tail("x", 12, 1); err == nil {
		t.Error("more bytes than there are have a tail")
	}
	if err := d.Cut("x", 8); err != nil {
		t.Fatal(err)
	}
	if n, there, err := d.Size("x"); n != 8 || !there || err != nil {
		t.Errorf("size %d, there %v, %v; want 8", n, there, err)
	}
	if n, there, err := d.Size("y"); n != 0 || there || err != nil {
		t.Errorf("size %d, there %v, %v of what is not there", n, there, err)
	}
	if err := d.In("sub").Make(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Size("sub"); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("got %v for a folder in the place of a file", err)
	}
}

func TestEveryChangeIsAStep(t *testing.T) {
	d := locked(t)
	defer func() { _ = d.Unlock() }()
	steps := 0
	d.Step = func() { steps++ }
	f, err := d.Append("x")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), d.Cut("x", 0), d.Rename("x", "y"), d.Remove("y"), d.Remove("y"), d.Sync()); err != nil {
		t.Fatal(err)
	}
	if steps != 6 {
		t.Errorf("%d steps, want 6", steps)
	}
}

func TestAdviceFitsTheFailure(t *testing.T) {
	for cause, advice := range map[error]string{
		syscall.ENOSPC: "free some", syscall.EFBIG: "raise the limit", syscall.EACCES: "right to write",
		syscall.EROFS: "another folder", syscall.EIO: "check it",
	} {
		err := Explain("test", "write", "/some/file", &os.PathError{Op: "write", Path: "/some/file", Err: cause})
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), advice) || !strings.HasPrefix(err.Error(), "test: write /some/file: ") {
			t.Errorf("%v: %v, want advice with %q", cause, err, advice)
		}
	}
}
