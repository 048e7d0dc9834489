package jsonl

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes the lock, or says that somebody else has it. The lock belongs
// to the open file: it ends when the file is closed, also by the process's death.
func lockFile(f *os.File) (taken bool, err error) {
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// syncFolder has nothing to do: the file system journals names itself, and
// gives no way to wait for it.
func syncFolder(string) error { return nil }
