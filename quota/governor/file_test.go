package governor_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// openFile opens a file that the test closes.
func openFile(t *testing.T, path string) *governor.File {
	t.Helper()
	file, err := governor.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	return file
}

func TestAFileThatCannotBeReadIsNoEmptyDay(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		size    int64 // when it is larger
		want    string
	}{
		"empty":                 {"", 0, "not a file of daily use: unexpected end of JSON input"},
		"cut off":               {`{"version":1,"use":[{"day":"20`, 0, "not a file of daily use: unexpected end of JSON input"},
		"another version":       {`{"version":2}`, 0, "its version is 2, this program reads version 1"},
		"a bad day":             {`{"version":1,"use":[{"scope":{"model":"m"},"day":"soon","tokens":1}]}`, 0, `"soon"`},
		"as large as it may be": {"", 64 << 20, "not a file of daily use: invalid character"},
		"larger":                {"", 64<<20 + 1, "it is larger than 67108864 bytes: not a file of daily use"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "use.json")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.size > 0 {
				if err := os.Truncate(path, c.size); err != nil {
					t.Fatal(err)
				}
			}
			file := openFile(t, path)
			g, err := governor.New(governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 1}), Store: file})
			if err == nil {
				_ = g.Close()
				t.Fatal("it was taken for an empty day")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if b, err := os.ReadFile(path); err != nil || c.size == 0 && string(b) != c.content || c.size > 0 && int64(len(b)) != c.size {
				t.Errorf("the file was touched: %d bytes, %v", len(b), err)
			}
		})
	}
	if _, err := governor.ReadFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := governor.OpenFile(filepath.Join(t.TempDir(), "none", "use.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestAFailedSaveLeavesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "use.json")
	file := openFile(t, path)
	want := []quota.DayUse{{Scope: quota.Scope{Model: "m"}, Day: "2026-03-04", Zone: "UTC", Tokens: 5, Calls: 1}}
	if err := file.Save(want); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".new", 0o700); err != nil { // where the next one would be written
		t.Fatal(err)
	}
	if err := file.Save(nil); err == nil {
		t.Error("it was saved")
	}
	got, err := file.Load()
	if err != nil || len(got) != 1 || got[0] != want[0] {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestWhatIsSavedCanBeRead: up to the largest file, and more is refused.
func TestWhatIsSavedCanBeRead(t *testing.T) {
	const largest = 64 << 20
	path := filepath.Join(t.TempDir(), "use.json")
	file := openFile(t, path)
	use := []quota.DayUse{{Scope: quota.Scope{Model: "m"}, Day: "2026-03-04", Zone: "UTC", Tokens: 5, Calls: 1}}
	if err := file.Save(use); err != nil {
		t.Fatal(err)
	}
	around, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{largest, largest + 1} {
		use[0].Scope.Model = strings.Repeat("m", size-len(around)+1)
		err := file.Save(use)
		if size > largest {
			if err == nil || !strings.Contains(err.Error(), "of 1 scopes takes more than 67108864 bytes") {
				t.Errorf("%d bytes: %v", size, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() > largest { // what is larger is not read
			t.Errorf("%d bytes: %d in the file, %v", size, info.Size(), err)
		}
	}
}

// TestReadingLeavesNothingOpen: a console reads the file every few seconds.
func TestReadingLeavesNothingOpen(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc here")
		}
		return len(all)
	}
	file := openFile(t, filepath.Join(t.TempDir(), "use.json"))
	if err := file.Save(nil); err != nil {
		t.Fatal(err)
	}
	before := open()
	for range 50 {
		if _, err := file.Load(); err != nil {
			t.Fatal(err)
		}
	}
	if n := open() - before; n > 25 {
		t.Errorf("%d more files are open", n)
	}
}
