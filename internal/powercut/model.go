package powercut

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// page is how much of a file a disk writes at once.
const page = 4096

// An operation changed the disk.
type operation struct {
	kind kind
	// node is the file or folder that was changed.
	node int
	// name is the one that was made, renamed or removed, to its new one.
	name, to string
	// made is the node that a name was made for.
	made   int
	folder bool
	offset int64
	data   []byte
}

type kind int

const (
	step     kind = iota // nothing on the disk, but an instant of its own
	made                 // name in the folder node is made
	rename               // from name to to, both in the folder node
	remove               // name in the folder node
	write                // data at offset
	truncate             // to offset
	synced               // a file's content or a folder's names
)

// node is a file or a folder: what programs see, what is certain to survive, and
// what happened in between.
type node struct {
	folder      bool
	data, safe  []byte
	names       map[string]int
	safeNames   map[string]int
	outstanding []operation
}

// model is a tree of nodes; the first is the folder at its top.
type model map[int]*node

func newFolder() *node {
	return &node{folder: true, names: map[string]int{}, safeNames: map[string]int{}}
}

// load reads a folder of the real disk. All of it is safe.
func load(dir string) (model, error) {
	m := model{0: newFolder()}
	return m, m.load(0, dir)
}

func (m model) load(at int, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path, id := filepath.Join(dir, e.Name()), len(m)
		m[at].names[e.Name()], m[at].safeNames[e.Name()] = id, id
		if e.IsDir() {
			m[id] = newFolder()
			if err := m.load(id, path); err != nil {
				return err
			}
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		m[id] = &node{data: b, safe: slices.Clone(b)}
	}
	return nil
}

func (m model) clone() model {
	c := make(model, len(m))
	for id, n := range m {
		d := *n
		d.data, d.safe = slices.Clone(n.data), slices.Clone(n.safe)
		d.names, d.safeNames = maps.Clone(n.names), maps.Clone(n.safeNames)
		d.outstanding = slices.Clone(n.outstanding)
		c[id] = &d
	}
	return c
}

// apply is what an operation does.
func (m model) apply(o operation) {
	if o.kind == step {
		return
	}
	n := m[o.node]
	switch {
	case o.kind == synced && n.folder:
		n.safeNames, n.outstanding = maps.Clone(n.names), nil
		return
	case o.kind == synced:
		n.safe, n.outstanding = slices.Clone(n.data), nil
		return
	case o.kind == made && o.folder:
		m[o.made] = newFolder()
	case o.kind == made:
		m[o.made] = &node{}
	}
	n.outstanding = append(n.outstanding, o)
	if n.folder {
		changeNames(n.names, o)
	} else {
		n.data = changeData(n.data, o)
	}
}

func changeNames(names map[string]int, o operation) {
	switch o.kind {
	case made:
		names[o.name] = o.made
	case remove:
		delete(names, o.name)
	default:
		// A rename may survive where what made the old name did not.
		names[o.to] = o.made
		delete(names, o.name)
	}
}

func changeData(b []byte, o operation) []byte {
	end := o.offset + int64(len(o.data))
	if o.kind == truncate {
		b = b[:min(o.offset, int64(len(b)))]
	}
	if grow := end - int64(len(b)); grow > 0 {
		b = append(b, make([]byte, grow)...)
	}
	copy(b[o.offset:end], o.data)
	return b
}

// fate draws what survives.
type fate func(*node) ([]byte, map[string]int)

// seen is everything, as after a kill.
func seen(n *node) ([]byte, map[string]int) { return n.data, n.names }

// strict is what was synced and nothing else.
func strict(n *node) ([]byte, map[string]int) { return n.safe, n.safeNames }

// chance is what was synced and some of the rest: of each folder the first few
// changes, or some of them in any order, of each file the first few with the last one torn, or some of its
// pages in any order. Folders and files are drawn apart, so names survive
// without content and content without names.
func chance(r *rand.Rand) fate {
	return func(n *node) ([]byte, map[string]int) {
		some := n.outstanding[:r.IntN(len(n.outstanding)+1)]
		if n.folder {
			names, ordered := maps.Clone(n.safeNames), r.IntN(2) == 0
			for i, o := range n.outstanding {
				if ordered && i < len(some) || !ordered && r.IntN(2) == 0 {
					changeNames(names, o)
				}
			}
			return nil, names
		}
		b := slices.Clone(n.safe)
		if !slices.ContainsFunc(n.outstanding, func(o operation) bool { return o.kind == truncate }) && r.IntN(2) == 0 {
			return somePages(r, b, n.data), nil
		}
		for i, o := range some {
			if o.kind == write && i == len(some)-1 {
				o.data = o.data[:r.IntN(len(o.data)+1)]
			}
			b = changeData(b, o)
		}
		return b, nil
	}
}

// somePages is old with some of the pages of now; the others are as they were,
// and zeros where there was nothing.
func somePages(r *rand.Rand, old, now []byte) []byte {
	b := append(old, make([]byte, len(now)-len(old))...)
	for at := 0; at < len(now); at += page {
		if end := min(at+page, len(now)); r.IntN(2) == 0 {
			copy(b[at:end], now[at:end])
		}
	}
	return b
}

// put writes what survives of a folder into an empty one of the real disk.
func (m model) put(id int, dir string, survives fate) error {
	_, names := survives(m[id])
	for _, name := range slices.Sorted(maps.Keys(names)) {
		path, child := filepath.Join(dir, name), names[name]
		if m[child].folder {
			if err := os.Mkdir(path, 0o700); err != nil {
				return err
			}
			if err := m.put(child, path, survives); err != nil {
				return err
			}
			continue
		}
		b, _ := survives(m[child])
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
