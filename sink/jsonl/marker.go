package jsonl

import (
	"os"
	"strings"

	"github.com/headway-go/headway/sink/internal/folder"
)

// markers tell how far a file's first slice has come. See the package comment.
const (
	markerNew    = ".new"
	markerSynced = ".synced"
)

func marker(file, state string) string { return "." + file + state }

// putMarker creates an empty marker that is on disk when it returns.
func putMarker(d folder.Folder, name string) error {
	d.Step()
	f, err := d.Disk.OpenFile(d.Path(name), os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return folder.Explain(d.Sink, "create", d.Path(name), err)
	}
	return d.Sync()
}

// discardNew empties the files whose first slice was never synced. No position
// was given out for them, so whoever wrote them has nothing committed there.
func discardNew(d folder.Folder, committed map[string]extent) error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		hidden, ok := strings.CutSuffix(name, markerNew)
		file, dotted := strings.CutPrefix(hidden, ".")
		if !ok || !dotted || checkName(file) != nil {
			continue
		}
		if _, known := committed[file]; !known {
			size, _, err := d.Size(file)
			if err != nil {
				return err
			}
			if size > 0 {
				if err := d.Cut(file, 0); err != nil {
					return err
				}
			}
		}
		if err := d.Remove(name); err != nil {
			return err
		}
	}
	return nil
}
