//go:build unix

package disk

import (
	"errors"
	"os"
)

// SyncDir makes the names in a folder durable. The error is the system's.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
