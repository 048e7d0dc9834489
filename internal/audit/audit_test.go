package audit

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headway-go/headway/internal/disk"
)

func done(after map[string]any) func(context.Context) (map[string]any, error) {
	return func(context.Context) (map[string]any, error) { return after, nil }
}

func (l *Log) must(t *testing.T) []Entry {
	t.Helper()
	list, unread, err := l.Read(time.Time{}, 0, 0)
	if err != nil || unread > 0 {
		t.Fatalf("%d unread, %v", unread, err)
	}
	return list
}

func TestAChangeIsOnDiskBeforeItIsMadeAndAfter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	l := New(dir, nil)
	if list := l.must(t); len(list) > 0 {
		t.Fatalf("without a file: %v", list)
	}
	e := Entry{Who: "operator shift", Action: "quota.override", Target: "quota openai", Before: map[string]any{"callsPerMinute": 60.0}}
	err := l.Do(t.Context(), e, func(context.Context) (map[string]any, error) {
		if list := New(dir, nil).must(t); len(list) != 1 || list[0].Outcome != Unknown || list[0].Who != "operator shift" || list[0].Before == nil {
			t.Errorf("while it is made: %+v", list)
		}
		return map[string]any{"callsPerMinute": 40.0}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no such key hw_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG")
	if err := l.Do(t.Context(), Entry{Who: "admin ops", Action: "key.revoke", Target: "key hw_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"}, func(context.Context) (map[string]any, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("the change's error: %v", err)
	}
	want := []Entry{
		{Who: "admin ops", Action: "key.revoke", Target: "key hw_…", Outcome: Failed, Error: "no such key hw_…"},
		{Who: "operator shift", Action: "quota.override", Target: "quota openai", Before: map[string]any{"callsPerMinute": 60.0}, After: map[string]any{"callsPerMinute": 40.0}, Outcome: Done},
	}
	if diff := cmp.Diff(want, l.must(t), cmpopts.IgnoreFields(Entry{}, "ID", "At")); diff != "" {
		t.Error(diff)
	}
	if b, err := os.ReadFile(filepath.Join(dir, FileName)); err != nil || strings.Contains(string(b), "0123456789") {
		t.Errorf("a key is in the file: %s %v", b, err)
	}
	if info, err := os.Stat(filepath.Join(dir, FileName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if list, _, err := l.Read(time.Now().Add(time.Minute), 0, 0); err != nil || len(list) > 0 {
		t.Errorf("since later: %v %v", list, err)
	}
	if list, _, err := l.Read(time.Time{}, 1, 1); err != nil || len(list) != 1 || list[0].Action != "quota.override" {
		t.Errorf("the second one: %v %v", list, err)
	}
}

func TestALineThatACrashCutOffIsPassedOver(t *testing.T) {
	l := New(t.TempDir(), nil)
	for _, action := range []string{"first", "second"} {
		if err := l.Do(t.Context(), Entry{Action: action}, done(nil)); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < len(whole); cut += 7 {
		if err := os.WriteFile(l.path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := l.Do(t.Context(), Entry{Action: "third"}, done(nil)); err != nil {
			t.Fatal(err)
		}
		list, unread, err := l.Read(time.Time{}, 0, 0)
		if err != nil || unread > 1 || len(list) == 0 || list[0].Action != "third" || list[0].Outcome != Done {
			t.Fatalf("cut at %d: %+v, %d unread, %v", cut, list, unread, err)
		}
	}
}

func TestFormerFilesStayUpToABound(t *testing.T) {
	l := New(t.TempDir(), nil)
	long := map[string]any{"y": strings.Repeat("v", 2*maxValues)}
	for range Kept + 3 {
		if err := l.Do(t.Context(), Entry{Action: "long", After: long}, done(long)); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(l.path, os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(strings.Repeat(" ", MaxSize) + "\n") // as if there had been many more
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	list := l.must(t)
	if len(list) != Kept+1 {
		t.Errorf("%d changes are kept", len(list))
	}
	if list[0].After["omitted_bytes"] == nil {
		t.Errorf("values that are too long: %.100v", list[0].After)
	}
	files, err := filepath.Glob(l.path + "*")
	if err != nil || len(files) != Kept+2 { // and the lock
		t.Errorf("%d files: %v, %v", len(files), files, err)
	}
}

// full is a disk on which half of what is written fits.
type full struct{ disk.Disk }

type fullFile struct{ disk.File }

func (f full) OpenFile(path string, flag int, perm fs.FileMode) (disk.File, error) {
	file, err := f.Disk.OpenFile(path, flag, perm)
	return fullFile{file}, err
}

var errFull = errors.New("no space left on device")

func (f fullFile) WriteAt(b []byte, at int64) (int, error) {
	n, _ := f.File.WriteAt(b[:len(b)/2], at)
	return n, errFull
}

func TestNothingIsChangedThatCannotBeWrittenDown(t *testing.T) {
	l := New(t.TempDir(), nil)
	if err := l.Do(t.Context(), Entry{Action: "first"}, done(nil)); err != nil {
		t.Fatal(err)
	}
	l.disk = full{disk.OS{}}
	err := l.Do(t.Context(), Entry{Action: "second"}, func(context.Context) (map[string]any, error) {
		t.Error("it was changed")
		return nil, nil
	})
	if !errors.Is(err, errFull) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("%v", err)
	}
	l.disk = disk.OS{}
	if list := l.must(t); len(list) != 1 || list[0].Outcome != Done {
		t.Errorf("%+v", list)
	}
}

func TestManyMayWriteAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 4 {
		l := New(dir, nil) // as processes of their own
		all.Go(func() {
			for range 5 {
				if err := l.Do(t.Context(), Entry{Action: "x"}, done(nil)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if list := New(dir, nil).must(t); len(list) != 20 {
		t.Errorf("%d changes", len(list))
	}
}
