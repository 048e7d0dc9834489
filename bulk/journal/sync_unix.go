//go:build unix

package journal

import (
	"errors"
	"fmt"
	"os"
)

// syncDir makes a new name in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}
