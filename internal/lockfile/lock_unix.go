//go:build unix

package lockfile

import (
	"errors"
	"os"
	"syscall"
)

// Try takes the lock of an open file; taken is false when somebody else has it.
func Try(f *os.File) (taken bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
