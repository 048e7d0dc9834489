package lockfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-go/headway/internal/lockfile"
)

func TestALockEndsWithItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	try := func(f *os.File) bool {
		taken, err := lockfile.Try(f)
		if err != nil {
			t.Fatal(err)
		}
		return taken
	}
	first, second := open(), open()
	if !try(first) || try(second) {
		t.Fatal("two files have one lock")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if !try(second) {
		t.Fatal("the lock outlived its file")
	}
}
