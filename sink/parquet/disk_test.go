//go:build linux

package parquet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/fulldisk"
	"github.com/headway-go/headway/sink/internal/folder"
	"github.com/headway-go/headway/sink/internal/sinktest"
)

// childEnv has the task of a test binary that is started as another process; see
// [sinktest.Main].
const childEnv = "HEADWAY_PARQUET_TEST_CHILD"

func TestMain(m *testing.M) {
	sinktest.Main(m, os.Getenv(childEnv), func(dir string) error {
		s := New(dir)
		if err := s.Open(context.Background(), nil, sample); err != nil {
			return err
		}
		return s.Write(context.Background(), "talks", []collect.Record{sinktest.Record("1", `1`)})
	})
}

// room is for a few hundred records.
var room = fulldisk.Room{Disk: 2560 << 10, Left: 512 << 10, File: 300_001}

// noise is a record that no codec makes smaller.
func noise(key string) collect.Record {
	b := make([]byte, 1000)
	for i := range b {
		b[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[rand.IntN(64)]
	}
	return sinktest.Record(key, `"`+string(b)+`"`)
}

// TestFullDisk writes until the disk is full: in a spool, or in a part that is
// made of it. The error says what to do, nothing more is written or committed,
// and with space again all that was committed can be read.
func TestFullDisk(t *testing.T) {
	for _, way := range fulldisk.Ways(t, room) {
		// Of 512 KB, one part takes 190 and a spool 250. A part is smaller than its
		// spool, so a limit on files meets spools.
		for what, target := range map[string]int64{"spool": partSize, "part": 250_000} {
			if what == "part" && way.Name == fulldisk.FileSizeLimit {
				continue
			}
			t.Run(fmt.Sprintf("%s, in a %s", way.Name, what), func(t *testing.T) { fillDisk(t, way, target) })
		}
	}
}

func fillDisk(t *testing.T, way fulldisk.Way, target int64) {
	dir, fill, free := way.Prepare(t)
	fill()
	s := New(dir)
	s.target = target
	opened(t, s, nil)
	p := synced(t, s)
	n, err := 0, error(nil)
	for n < 5000 {
		batch := []collect.Record{noise(fmt.Sprint(n)), noise(fmt.Sprint(n + 1)), noise(fmt.Sprint(n + 2))}
		if err = s.Write(t.Context(), "talks", batch); err != nil {
			break
		}
		var next json.RawMessage
		if next, err = s.Sync(t.Context()); err != nil {
			break
		}
		p, n = next, n+len(batch)
	}
	if err == nil {
		t.Fatal("the disk was never full")
	}
	sinktest.Says(t, err, way.Says, "what was committed is kept", dir)
	sinktest.Is(t, "the part is to blame", strings.Contains(err.Error(), temporary), target < partSize)
	if err := s.Write(t.Context(), "messages", []collect.Record{sinktest.Detail("1", "1", `1`)}); err == nil {
		t.Error("a sink that failed wrote more")
	}
	if _, err := s.Sync(t.Context()); err == nil {
		t.Error("a sink that failed gave a position")
	}
	closed(t, s)
	free()
	s = opened(t, New(dir), p)
	sinktest.Is(t, "rows", len(rows(t, dir, "talks")), n)
	put(t, s, "talks", sinktest.Record("last", `1`))
	synced(t, s)
	closed(t, s)
	sinktest.Is(t, "rows", len(rows(t, dir, "talks")), n+1)
}

// TestAPartThatCannotBeMade: the rows stay in the spool.
func TestAPartThatCannotBeMade(t *testing.T) {
	for _, when := range []string{"close", "complete"} {
		t.Run(when, func(t *testing.T) {
			dir := t.TempDir()
			s := opened(t, small(dir), nil)
			put(t, s, "talks", sinktest.Record("1", `"`+strings.Repeat("x", 300)+`"`))
			p := synced(t, s)
			blocked := filepath.Join(dir, "talks", temporary)
			if err := os.Mkdir(blocked, 0o700); err != nil {
				t.Fatal(err)
			}
			if when == "close" {
				sinktest.Says(t, s.Close(), blocked)
			} else {
				sinktest.Says(t, s.Write(t.Context(), "talks", []collect.Record{sinktest.Record("2", `2`)}), blocked)
				closed(t, s)
			}
			sinktest.Is(t, "rows", len(rows(t, dir, "talks")), 0)
			opened(t, small(dir), p)
			sinktest.Is(t, "rows", len(rows(t, dir, "talks")), 1)
		})
	}
}

func TestWithoutPermission(t *testing.T) {
	dir := t.TempDir()
	plant(t, filepath.Join(dir, folder.LockName), "")
	for _, c := range []struct {
		name      string
		dir, lock os.FileMode
		says      string
	}{
		{"folder", 0o555, 0o666, "talks"},
		{"lock", 0o777, 0o400, folder.LockName},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := sinktest.Refused(t, childEnv+"=write\n"+dir, map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: c.dir, filepath.Join(dir, folder.LockName): c.lock})
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
	if _, ok := errors.AsType[*LockedError](New(dir).Open(t.Context(), nil, sample)); !ok {
		t.Error("two processes opened one folder")
	}
	kill()
	// It had a spool of which no position was ever given out.
	_, err := New(dir).SetAside([]string{"talks"}, time.Unix(0, 0))
	sinktest.Is(t, "set aside", err, nil)
	put(t, opened(t, New(dir), nil), "talks", sinktest.Record("2", `2`))
}
