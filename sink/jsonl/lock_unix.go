//go:build unix

package jsonl

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the lock, or says that somebody else has it. The lock belongs
// to the open file: it ends when the file is closed, also by the process's death.
func lockFile(f *os.File) (taken bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// syncFolder makes the names in a folder durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
