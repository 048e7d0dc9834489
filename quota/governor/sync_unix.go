//go:build unix

package governor

import (
	"errors"
	"os"
)

// syncNames makes the names in a folder durable.
func syncNames(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
