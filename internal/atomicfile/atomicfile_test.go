package atomicfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/powercut"
)

// content is what the n-th write leaves: more than a page of the disk, so that
// half of it can survive, and of another length than those before.
func content(n int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%06d\n", n), 1000+37*n)
}

// number says which write left a content; 0 when there is no file.
func number(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if _, err := fmt.Sscanf(string(b), "%06d", &n); err != nil || !bytes.Equal(b, content(n)) {
		t.Fatalf("%d bytes that nobody wrote, from %.20q on", len(b), b)
	}
	return n
}

// replacing gives a life that replaces a file three times. A write that was
// acknowledged is there in the next life, or a later one, and always whole.
func replacing(replace func(d disk.Disk, path string, b []byte) error) func(*testing.T, *powercut.Life[int]) {
	return func(t *testing.T, l *powercut.Life[int]) {
		path := filepath.Join(l.Dir, "file")
		have := number(t, path)
		for _, n := range l.Before {
			if have < n {
				t.Fatalf("write %d is there, write %d was acknowledged", have, n)
			}
		}
		for n := have + 1; n <= have+3; n++ {
			if err := replace(l, path, content(n)); err != nil {
				t.Fatal(err)
			}
			if got := number(t, path); got != n {
				t.Fatalf("write %d is there after write %d", got, n)
			}
			l.Ack(n)
		}
	}
}

func TestAPowerCutLeavesTheOldContentOrTheNew(t *testing.T) {
	written := replacing(atomicfile.Write)
	powercut.Test(t, powercut.Plan{Draws: 8}, written, written)
}

func TestAPowerCutLeavesTheOldContentOrTheNewAlsoWhereRoomWasReserved(t *testing.T) {
	committed := replacing(func(d disk.Disk, path string, b []byte) error {
		room, err := atomicfile.Reserve(d, path, 10_000)
		if err != nil {
			return err
		}
		return room.Commit(b)
	})
	powercut.Test(t, powercut.Plan{Draws: 8}, committed, committed)
}

func TestAPlacedFileIsDurable(t *testing.T) {
	placed := func(t *testing.T, l *powercut.Life[int]) {
		path := filepath.Join(l.Dir, "file")
		have := number(t, path)
		for _, n := range l.Before {
			if have < n {
				t.Fatalf("write %d is there, write %d was acknowledged", have, n)
			}
		}
		f, err := l.OpenFile(atomicfile.Beside(path), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(content(have + 1))
		if err = errors.Join(err, f.Sync(), f.Close(), atomicfile.Place(l, path)); err != nil {
			t.Fatal(err)
		}
		l.Ack(have + 1)
	}
	powercut.Test(t, powercut.Plan{Draws: 8}, placed, placed)
}

// recorder is a disk that notes what is done to it, and fails at one operation.
type recorder struct {
	disk.OS
	did  []string
	fail string
}

func (r *recorder) do(what string, f func() error) error {
	r.did = append(r.did, what)
	if what == r.fail {
		return syscall.ENOSPC
	}
	return f()
}

func (r *recorder) OpenFile(path string, flag int, perm fs.FileMode) (f disk.File, err error) {
	err = r.do("open", func() (err error) { f, err = r.OS.OpenFile(path, flag, perm); return err })
	return recorded{f, r}, err
}

func (r *recorder) Rename(from, to string) error {
	return r.do("rename", func() error { return r.OS.Rename(from, to) })
}

func (r *recorder) Remove(path string) error {
	return r.do("remove", func() error { return r.OS.Remove(path) })
}

func (r *recorder) SyncDir(path string) error {
	return r.do("sync folder", func() error { return r.OS.SyncDir(path) })
}

type recorded struct {
	disk.File
	r *recorder
}

func (f recorded) Write(b []byte) (n int, err error) {
	err = f.r.do("write", func() (err error) { n, err = f.File.Write(b); return err })
	return n, err
}

func (f recorded) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.r.do("write at", func() (err error) { n, err = f.File.WriteAt(b, at); return err })
	return n, err
}

func (f recorded) Truncate(n int64) error {
	return f.r.do("truncate", func() error { return f.File.Truncate(n) })
}

func (f recorded) Sync() error { return f.r.do("sync", f.File.Sync) }

func (f recorded) Close() error {
	err := f.File.Close() // also where it fails
	return f.r.do("close", func() error { return err })
}

// ways are those in which a file is replaced, and what each does to the disk.
var ways = []struct {
	name    string
	replace func(d disk.Disk, path string, b []byte) error
	order   []string
	leaves  bool // the next content stays beside the file after an error
}{
	{"write", atomicfile.Write, []string{"open", "write", "sync", "close", "rename", "sync folder"}, false},
	{"write unsynced", atomicfile.WriteUnsynced, []string{"open", "write", "close", "rename"}, false},
	{"commit", func(d disk.Disk, path string, b []byte) error {
		room, err := atomicfile.Reserve(d, path, len(b))
		if err != nil {
			return err
		}
		return room.Commit(b)
	}, []string{"remove", "open", "write", "sync", "write at", "truncate", "sync", "close", "rename", "sync folder"}, true},
}

func TestTheOrderInWhichTheDiskIsChanged(t *testing.T) {
	for _, w := range ways {
		r := &recorder{}
		if err := w.replace(r, filepath.Join(t.TempDir(), "file"), content(1)); err != nil {
			t.Errorf("%s: %v", w.name, err)
		}
		if diff := cmp.Diff(w.order, r.did); diff != "" {
			t.Errorf("%s: %s", w.name, diff)
		}
	}
}

func TestAFailedReplacementLeavesTheOldContent(t *testing.T) {
	for _, w := range ways {
		for _, step := range w.order {
			t.Run(w.name+" fails at "+step, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "file")
				if err := atomicfile.Write(disk.OS{}, path, content(1)); err != nil {
					t.Fatal(err)
				}
				if err := w.replace(&recorder{fail: step}, path, content(2)); !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("got %v, want the disk's error", err)
				}
				want := 1
				if step == "sync folder" {
					want = 2 // it has its name, and the disk does not know it for certain
				}
				if got := number(t, path); got != want {
					t.Errorf("write %d is there, want %d", got, want)
				}
				_, err := os.Stat(atomicfile.Beside(path))
				if left := err == nil; left && !w.leaves {
					t.Error("what it wrote beside the file is left")
				}
			})
		}
	}
}

func TestARoomIsLeftOrDiscarded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	reserve := func() *atomicfile.Reserved {
		t.Helper()
		room, err := atomicfile.Reserve(disk.OS{}, path, 100)
		if err != nil {
			t.Fatal(err)
		}
		return room
	}
	if err := reserve().Leave(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(atomicfile.Beside(path)); err != nil || !bytes.Equal(b, make([]byte, 100)) {
		t.Errorf("%q is left, %v", b, err)
	}
	if err := reserve().Discard(); err != nil { // it takes the place of the one before
		t.Fatal(err)
	}
	if _, err := os.Stat(atomicfile.Beside(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a discarded room is there: %v", err)
	}
	if got := number(t, path); got != 0 {
		t.Errorf("write %d is there", got)
	}
}

func TestAFileIsReadUpToItsBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if _, err := atomicfile.Read(path, 3); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := atomicfile.Read(path, 3); string(b) != "abc" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	if _, err := atomicfile.Read(path, 2); !errors.Is(err, atomicfile.ErrTooLarge) || !strings.Contains(err.Error(), path+" is larger than it may be: 2 bytes at most") {
		t.Errorf("a file over the bound: %v", err)
	}
}
