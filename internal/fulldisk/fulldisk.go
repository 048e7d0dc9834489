//go:build linux

// Package fulldisk lets a test run out of space: on a small file system where
// the machine permits one (as root), and at a limit on the size of files
// everywhere on Linux. It answers "what does this code do when the disk is
// full?".
//
// It is only for tests. A limit binds the whole process, so [Ways] runs the test
// once more in a process of its own; a test that uses it must not run in
// parallel with others. It reads no clock.
package fulldisk

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The names of the ways.
const (
	SmallFileSystem = "small file system"
	FileSizeLimit   = "file size limit"
)

// Room is how much space there is, in bytes.
type Room struct {
	// Disk is the size of a small file system, and Left what is free once it is filled.
	Disk, Left int64
	// File is the largest size of a file under a file size limit.
	File int64
}

// Way is a way to run out of disk space, and to get some back.
type Way struct {
	// Name is one of the names above.
	Name string
	// Says is what the error must contain.
	Says string
	room Room
}

// limitEnv says that this process may limit the size of its files.
const limitEnv = "HEADWAY_TEST_FILE_LIMIT"

// Ways are those that this machine permits. The limit on the size of files is
// always one of them, in a process of its own: its tests are subtests of t whose
// names begin with [FileSizeLimit], and a failure there fails t.
func Ways(t *testing.T, room Room) []Way {
	t.Helper()
	if os.Getenv(limitEnv) != "" {
		return []Way{{FileSizeLimit, "may not grow further", room}}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(cmd.Environ(), limitEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+"/"+strings.ReplaceAll(FileSizeLimit, " ", "_")) {
		t.Errorf("with a file size limit: %v\n%s", err, out)
	}
	dir := t.TempDir()
	if syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k") != nil {
		return nil
	}
	if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
		t.Error(err)
	}
	return []Way{{SmallFileSystem, "no space is left", room}}
}

// Prepare gives a folder with room, and functions that take its space away and
// give it back.
func (w Way) Prepare(t *testing.T) (dir string, fill, free func()) {
	t.Helper()
	if w.Name == FileSizeLimit {
		return w.limited(t)
	}
	return w.small(t)
}

func (w Way) limited(t *testing.T) (dir string, fill, free func()) {
	t.Helper()
	// Without this the kernel ends the process at the limit.
	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	set := func(l syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		set(old)
		signal.Reset(syscall.SIGXFSZ)
	})
	return t.TempDir(), func() { set(syscall.Rlimit{Cur: uint64(w.room.File), Max: old.Max}) }, func() { set(old) }
}

func (w Way) small(t *testing.T) (dir string, fill, free func()) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+strconv.FormatInt(w.room.Disk, 10)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(dir, "filler")
	fill = func() {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(dir, &fs); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filler, make([]byte, max(0, int64(fs.Bavail)*fs.Bsize-w.room.Left)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, fill, func() { _ = os.Remove(filler) }
}
