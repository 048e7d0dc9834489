package governor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/lockfile"
	"github.com/headway-go/headway/quota"
)

// maxFile bounds the file of daily use in bytes: some 300,000 scopes.
const maxFile = 64 << 20

// fileVersion is the version of the file format.
const fileVersion = 1

// fileContent is the content of the file.
type fileContent struct {
	Version int            `json:"version"`
	Use     []quota.DayUse `json:"use"`
}

// File is a [Store] in one file, for one process at a time. Save replaces the whole file
// and syncs it before it returns, so that the file is never half written. Safe for
// concurrent use.
type File struct {
	path string
	disk disk.Disk
	mu   sync.Mutex
	lock *lockfile.Lock
}

// ErrInUse is matched by the error of [OpenFile] if another process has the file open.
var ErrInUse = errors.New("another process uses it; stop that one, or use another file")

// OpenFile opens the store at path. Its folder must exist, the file need not. It takes a
// lock on path.lock that ends with the process. The error matches [ErrInUse] if another
// process holds the lock.
func OpenFile(path string) (*File, error) { return openFile(disk.OS{}, path) }

func openFile(on disk.Disk, path string) (*File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("governor: %w", err)
	}
	lock, err := lockfile.Open(path + ".lock")
	if held, ok := errors.AsType[*lockfile.HeldError](err); ok {
		err = fmt.Errorf("%w; %s has it", ErrInUse, held.Holder())
	}
	if err != nil {
		return nil, fmt.Errorf("governor: %s: %w", path, err)
	}
	// The result of Load is acted upon: a killed process may have renamed the file
	// without syncing the folder.
	if err := on.SyncDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("governor: %s: %w", path, errors.Join(err, lock.Close()))
	}
	return &File{path: path, disk: on, lock: lock}, nil
}

// Load reads the file; it returns nothing if there is no file. If the file cannot be
// read, the error names it.
func (f *File) Load() ([]quota.DayUse, error) {
	use, err := ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return use, err
}

// ReadFile reads what a [File] stored, even while another process uses it. The use
// returned is then the most that the process may reach before it saves again. The error
// matches fs.ErrNotExist if there is no such file.
func ReadFile(path string) (use []quota.DayUse, err error) {
	b, err := atomicfile.Read(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("governor: %w", err)
	}
	if use, err = decode(b); err != nil {
		return nil, fmt.Errorf("governor: %s: %w", path, err)
	}
	return use, nil
}

// decode parses the content of the file.
func decode(b []byte) ([]quota.DayUse, error) {
	var c fileContent
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("not a file of daily use: %w", err)
	}
	if c.Version != fileVersion {
		return nil, fmt.Errorf("its version is %d, this program reads version %d", c.Version, fileVersion)
	}
	return c.Use, nil
}

// Save replaces the file. When it returns nil, the file is durable.
func (f *File) Save(use []quota.DayUse) error {
	b, err := json.Marshal(fileContent{fileVersion, use})
	if err != nil {
		return fmt.Errorf("governor: %w", err)
	}
	if b = append(b, '\n'); len(b) > maxFile { // ReadFile would not take it
		return fmt.Errorf("governor: %s: the daily use of %d scopes takes more than %d bytes", f.path, len(use), maxFile)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lock == nil {
		return fmt.Errorf("governor: %s: %w", f.path, os.ErrClosed)
	}
	if err := atomicfile.Write(f.disk, f.path, b); err != nil {
		return fmt.Errorf("governor: %w", err)
	}
	return nil
}

// Close releases the lock. It may be called more than once.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lock == nil {
		return nil
	}
	err := f.lock.Close()
	f.lock = nil
	return err
}
