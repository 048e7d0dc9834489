//go:build unix

package names

import (
	"errors"
	"os"
)

// Sync makes the names in a folder durable. The error is the system's.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
