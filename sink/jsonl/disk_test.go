//go:build linux

package jsonl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/headway-go/headway/internal/fulldisk"
	"github.com/headway-go/headway/sink/internal/folder"
)

// childEnv makes the test binary another process: "<role>\n<folder>".
const childEnv = "HEADWAY_JSONL_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		child(role)
	}
	goleak.VerifyTestMain(m)
}

// child opens a folder, says so, and holds it until it is killed.
func child(role string) {
	role, dir, _ := strings.Cut(role, "\n")
	s := New(dir)
	err := s.Open(context.Background(), nil, nil)
	if err == nil {
		err = s.Write(context.Background(), "x", raw(`1`))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	if role == "hold" {
		select {}
	}
	os.Exit(0)
}

// room is for some hundred records, and no whole number of them.
var room = fulldisk.Room{Disk: 512 << 10, Left: 384 << 10, File: 300_001}

// TestFullDisk writes until the disk is full, which cuts a line in half. The
// error says what to do, nothing more is written or committed, and a sink
// opened again goes on after the last line that was. A small batch fails in
// Sync, one that does not fit the buffer in Write.
func TestFullDisk(t *testing.T) {
	for _, way := range fulldisk.Ways(t, room) {
		for _, batch := range []int{10, 100} {
			t.Run(fmt.Sprintf("%s, %d records at a time", way.Name, batch), func(t *testing.T) { fillDisk(t, way, batch) })
		}
	}
}

func fillDisk(t *testing.T, way fulldisk.Way, batch int) {
	dir, fill, free := way.Prepare(t)
	fill()
	s := opened(t, dir, nil)
	record := `"` + strings.Repeat("x", 1000) + `"`
	var p json.RawMessage
	lines, err := 0, error(nil)
	for ; err == nil && lines < 5000; lines += batch {
		if err = s.Write(t.Context(), "x", slices.Repeat(raw(record), batch)); err != nil {
			break
		}
		var next json.RawMessage
		if next, err = s.Sync(t.Context()); err != nil {
			break
		}
		p = next
	}
	if err == nil {
		t.Fatal("the disk was never full")
	}
	says(t, err, way.Says, "what was committed is kept", dir)
	if err := s.Write(t.Context(), "y", raw(`1`)); err == nil {
		t.Error("a sink that failed wrote more")
	}
	if _, err := s.Sync(t.Context()); err == nil {
		t.Error("a sink that failed gave a position")
	}
	closed(t, s)
	// What was committed can be opened on a full disk, which frees the rest.
	s = opened(t, dir, p)
	is(t, "file", len(content(t, dir, "x.jsonl")), lines*(len(record)+1))
	free()
	put(t, s, "x", record)
	synced(t, s)
	is(t, "file", content(t, dir, "x.jsonl") == strings.Repeat(record+"\n", lines+1), true)
}

func TestWithoutPermission(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir, "x.jsonl", "")
	plant(t, dir, folder.LockName, "")
	for _, c := range []struct {
		name            string
		dir, lock, file os.FileMode
		says            string
	}{
		{"folder", 0o555, 0o666, 0o666, ".x.jsonl.new"},
		{"lock", 0o777, 0o400, 0o666, folder.LockName},
		{"file", 0o777, 0o666, 0o400, "x.jsonl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for path, mode := range map[string]os.FileMode{
				filepath.Dir(dir): 0o755, dir: c.dir, filepath.Join(dir, folder.LockName): c.lock, filepath.Join(dir, "x.jsonl"): c.file,
			} {
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			out, err := unprivileged(t, dir).CombinedOutput()
			if _, ok := errors.AsType[*exec.ExitError](err); !ok {
				t.Errorf("got %v, want the child to run and fail", err)
			}
			says(t, errors.New(string(out)), "cannot be written", "right to write", c.says)
		})
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// unprivileged is the test binary as a user whom permissions bind, which root
// is not.
func unprivileged(t *testing.T, dir string) *exec.Cmd {
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
	bin := filepath.Join(t.TempDir(), "child")
	if err := errors.Join(os.WriteFile(bin, b, 0o755), os.Chmod(filepath.Dir(filepath.Dir(bin)), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Env = append(os.Environ(), childEnv+"=write\n"+dir)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return cmd
}

// TestLockEndsWithTheProcess kills a process that has the folder.
func TestLockEndsWithTheProcess(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childEnv+"=hold\n"+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	is(t, "the child", fmt.Sprint(line, err), "open\n<nil>")
	if _, ok := errors.AsType[*LockedError](New(dir).Open(t.Context(), nil, nil)); !ok {
		t.Error("two processes opened one folder")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	put(t, opened(t, dir, nil), "x", `2`)
}
