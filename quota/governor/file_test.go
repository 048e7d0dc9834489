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
