package disk_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/headway-go/headway/internal/disk"
)

func TestSyncTakesAFolderAndNamesTheSystemsError(t *testing.T) {
	if err := disk.SyncDir(t.TempDir()); err != nil {
		t.Error(err)
	}
	err := disk.SyncDir(filepath.Join(t.TempDir(), "absent"))
	if runtime.GOOS != "windows" && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
