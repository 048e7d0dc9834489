//go:build linux

package jsonl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/fulldisk"
	"github.com/headway-go/headway/sink/internal/folder"
	"github.com/headway-go/headway/sink/internal/sinktest"
)

// childEnv has the task of a test binary that is started as another process; see
// [sinktest.Main].
const childEnv = "HEADWAY_JSONL_TEST_CHILD"

func TestMain(m *testing.M) {
	sinktest.Main(m, os.Getenv(childEnv), func(dir string) error {
		s := New(dir)
		if err := s.Open(context.Background(), nil, nil); err != nil {
			return err
		}
		return s.Write(context.Background(), "x", raw(`1`))
	})
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
	sinktest.Says(t, err, way.Says, "what was committed is kept", dir)
	if err := s.Write(t.Context(), "y", raw(`1`)); err == nil {
		t.Error("a sink that failed wrote more")
	}
	if _, err := s.Sync(t.Context()); err == nil {
		t.Error("a sink that failed gave a position")
	}
	closed(t, s)
	// What was committed can be opened on a full disk, which frees the rest.
	s = opened(t, dir, p)
	sinktest.Is(t, "file", len(content(t, dir, "x.jsonl")), lines*(len(record)+1))
	free()
	put(t, s, "x", record)
	synced(t, s)
	sinktest.Is(t, "file", content(t, dir, "x.jsonl") == strings.Repeat(record+"\n", lines+1), true)
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
			err := sinktest.Refused(t, childEnv+"=write\n"+dir, map[string]os.FileMode{
				filepath.Dir(dir): 0o755, dir: c.dir, filepath.Join(dir, folder.LockName): c.lock, filepath.Join(dir, "x.jsonl"): c.file,
			})
			sinktest.Says(t, err, "cannot be written", "right to write", c.says)
		})
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestLockEndsWithTheProcess kills a process that has the folder.
func TestLockEndsWithTheProcess(t *testing.T) {
	dir := t.TempDir()
	kill := sinktest.Hold(t, childEnv+"=hold\n"+dir)
	if _, ok := errors.AsType[*LockedError](New(dir).Open(t.Context(), nil, nil)); !ok {
		t.Error("two processes opened one folder")
	}
	kill()
	put(t, opened(t, dir, nil), "x", `2`)
}
