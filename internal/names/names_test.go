package names_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/headway-go/headway/internal/names"
)

func TestSyncTakesAFolderAndNamesTheSystemsError(t *testing.T) {
	if err := names.Sync(t.TempDir()); err != nil {
		t.Error(err)
	}
	err := names.Sync(filepath.Join(t.TempDir(), "absent"))
	if runtime.GOOS != "windows" && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
