// Package powercut tests that what a program acknowledged survives a power cut.
// Its [Disk] does what it is asked in a folder of the real disk, and remembers of
// each step what is certain to survive: a file's content as of its last Sync, a
// folder's names as of its last SyncDir. [Test] then cuts the power after every
// step.
//
// Only tests import it. A Disk is safe for concurrent use; it syncs nothing, so
// it is fast.
package powercut

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/headway-go/headway/internal/disk"
)

// Disk is a disk that remembers. [Test] makes it.
type Disk struct {
	// Dir is the folder of the real disk that everything happens in. It was there
	// before.
	Dir string

	mu    sync.Mutex
	start model
	now   model
	log   []operation
	// next numbers nodes.
	next int
}

var _ disk.Disk = (*Disk)(nil)

// open gives a disk whose folder holds what m has, all of it seen.
func open(dir string, m model) *Disk {
	d := &Disk{Dir: dir, start: m, now: m.clone()}
	for id := range m {
		d.next = max(d.next, id+1)
	}
	return d
}

// Step is an instant at which nothing is done to the disk: one at which somebody
// else commits, for instance.
func (d *Disk) Step() { d.did(operation{kind: step}) }

// Steps is how many there were.
func (d *Disk) Steps() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.log)
}

// at is the model after the first n steps.
func (d *Disk) at(n int) model {
	m := d.start.clone()
	for _, o := range d.log[:n] {
		m.apply(o)
	}
	return m
}

func (d *Disk) did(o operation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, o)
	d.now.apply(o)
}

// find gives the node at a path, which must be in the disk's folder.
func (d *Disk) find(path string) (int, bool) {
	rel, err := filepath.Rel(d.Dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		panic(fmt.Sprintf("powercut: %s is outside of %s", path, d.Dir))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at := 0
	if rel == "." {
		return at, true
	}
	for name := range strings.SplitSeq(rel, string(filepath.Separator)) {
		next, ok := d.now[at].names[name]
		if !ok {
			return 0, false
		}
		at = next
	}
	return at, true
}

// parent gives the folder of a path, which is there.
func (d *Disk) parent(path string) int {
	id, ok := d.find(filepath.Dir(path))
	if !ok {
		panic("powercut: the folder of " + path + " was not made on this disk")
	}
	return id
}

func (d *Disk) make(path string, folder bool) (id int) {
	d.mu.Lock()
	id = d.next
	d.next++
	d.mu.Unlock()
	d.did(operation{kind: made, node: d.parent(path), name: filepath.Base(path), made: id, folder: folder})
	return id
}

// OpenFile is os.OpenFile.
func (d *Disk) OpenFile(path string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	id, there := d.find(path)
	if !there {
		id = d.make(path, false)
	}
	opened := &file{f: f, disk: d, node: id, appends: flag&os.O_APPEND != 0}
	if there && flag&os.O_TRUNC != 0 {
		d.did(operation{kind: truncate, node: id})
	}
	return opened, nil
}

// Mkdir is os.Mkdir.
func (d *Disk) Mkdir(path string, perm fs.FileMode) error {
	err := os.Mkdir(path, perm)
	if err == nil {
		d.make(path, true)
	}
	return err
}

// Rename is os.Rename, within one folder.
func (d *Disk) Rename(from, to string) error {
	if filepath.Dir(from) != filepath.Dir(to) {
		return errors.New("powercut: this model renames within one folder only")
	}
	id, _ := d.find(from)
	err := os.Rename(from, to)
	if err == nil {
		d.did(operation{kind: rename, node: d.parent(to), name: filepath.Base(from), to: filepath.Base(to), made: id})
	}
	return err
}

// Remove is os.Remove.
func (d *Disk) Remove(path string) error {
	err := os.Remove(path)
	if err == nil {
		d.did(operation{kind: remove, node: d.parent(path), name: filepath.Base(path)})
	}
	return err
}

// SyncDir makes the names in a folder survive.
func (d *Disk) SyncDir(path string) error {
	if rel, err := filepath.Rel(d.Dir, path); err != nil || !filepath.IsLocal(rel) {
		return nil // above the disk
	}
	id, there := d.find(path)
	if !there {
		return &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	d.did(operation{kind: synced, node: id})
	return nil
}

// file is an open file of a disk. It embeds nothing: a method of *os.File that
// io.Copy finds would go past the record.
type file struct {
	f       *os.File
	disk    *Disk
	node    int
	offset  int64
	appends bool
}

func (f *file) Name() string { return f.f.Name() }

func (f *file) Stat() (fs.FileInfo, error) { return f.f.Stat() }

func (f *file) Close() error { return f.f.Close() }

func (f *file) ReadAt(b []byte, offset int64) (int, error) { return f.f.ReadAt(b, offset) }

func (f *file) Read(b []byte) (int, error) {
	n, err := f.f.Read(b)
	f.offset += int64(n)
	return n, err
}

func (f *file) Write(b []byte) (int, error) {
	if f.appends {
		f.disk.mu.Lock()
		f.offset = int64(len(f.disk.now[f.node].data))
		f.disk.mu.Unlock()
	}
	n, err := f.f.Write(b)
	f.wrote(b[:n], f.offset)
	f.offset += int64(n)
	return n, err
}

func (f *file) WriteAt(b []byte, offset int64) (int, error) {
	n, err := f.f.WriteAt(b, offset)
	f.wrote(b[:n], offset)
	return n, err
}

func (f *file) wrote(b []byte, offset int64) {
	if len(b) > 0 {
		f.disk.did(operation{kind: write, node: f.node, offset: offset, data: slices.Clone(b)})
	}
}

func (f *file) Truncate(size int64) error {
	err := f.f.Truncate(size)
	if err == nil {
		f.disk.did(operation{kind: truncate, node: f.node, offset: size})
	}
	return err
}

// Sync makes the content survive.
func (f *file) Sync() error {
	f.disk.did(operation{kind: synced, node: f.node})
	return nil
}
