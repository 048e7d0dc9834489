package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
)

// viewFile holds how the load under way stands, for "bulk status".
const viewFile = "progress.json"

// viewEvery is the time between two of them.
const viewEvery = time.Second

// loadNow is a load as it stood at an instant.
type loadNow struct {
	At time.Time `json:"at"`
	progressJSON
}

// keepView replaces the view in the load's folder. It is not synced: a power cut
// costs the view alone. One that cannot be written is left out, since the load
// must not end for it.
func (l *loadScreen) keepView(p bulk.Progress) {
	if l.kept && p.Elapsed-l.viewed < viewEvery*9/10 {
		return
	}
	l.kept, l.viewed = true, p.Elapsed
	view := loadNow{At: time.Now().Round(time.Millisecond), progressJSON: loadView(p)}
	view.RecentRowsPerSecond = l.recent.perSecond()
	b, err := json.Marshal(view)
	if err != nil {
		return
	}
	_ = atomicfile.WriteUnsynced(disk.OS{}, filepath.Join(l.dir, viewFile), b)
}

// readView reads the view of a folder; nil when there is none that can be read.
func readView(dir string) *loadNow {
	b, err := os.ReadFile(filepath.Join(dir, viewFile))
	var view loadNow
	if err != nil || json.Unmarshal(b, &view) != nil || view.At.IsZero() {
		return nil
	}
	return &view
}

// dropViews removes the view of a run that is over.
func dropViews(dir string) {
	path := filepath.Join(dir, viewFile)
	_ = os.Remove(path)
	_ = os.Remove(atomicfile.Beside(path))
}
