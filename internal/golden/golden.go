// Package golden compares results of tests with expected ones that are kept as small
// files in txtar archives. Only tests import it.
package golden

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what is got into the archives of golden files")

// Updating reports whether the flag -update is set. The flags must have been parsed, so
// do not call it during package initialization.
func Updating() bool { return *update }

// An Archive is a file that holds golden files. Not safe for parallel tests.
type Archive struct {
	path    string
	content archive
	changed bool
}

// Open reads the archive at path. With -update a missing archive counts as empty, and a
// changed one is written once, when t ends.
func Open(t testing.TB, path string) *Archive {
	t.Helper()
	a := &Archive{path: path}
	b, err := os.ReadFile(path)
	if err != nil && (!*update || !errors.Is(err, fs.ErrNotExist)) {
		t.Fatalf("%v; -update writes it", err)
	}
	if a.content, err = parse(string(b)); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if *update {
		t.Cleanup(func() { a.write(t) })
	}
	return a
}

// Names returns the names of all files, in order.
func (a *Archive) Names() []string {
	names := make([]string, len(a.content.files))
	for i, f := range a.content.files {
		names[i] = f.name
	}
	return names
}

// File returns the content of the named file.
func (a *Archive) File(name string) (string, bool) {
	if i := a.content.index(name); i >= 0 {
		return a.content.files[i].data, true
	}
	return "", false
}

// Check compares got, which must end with a line break, with the named file and shows the
// difference. With -update it writes got to the file instead.
func (a *Archive) Check(t testing.TB, name, got string) {
	t.Helper()
	want, found := a.File(name)
	switch {
	case *update:
		if found && got == want {
			return
		}
		if err := a.content.set(name, got); err != nil {
			t.Errorf("%s: %v", a.path, err)
			return
		}
		a.changed = true
	case !found:
		t.Errorf("%s has no file %s; -update writes it. Got\n%s", a.path, name, got)
	default:
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s in %s (-want +got):\n%s", name, a.path, diff)
		}
	}
}

// Only reports each file that is not among names. With -update it removes them instead.
func (a *Archive) Only(t testing.TB, names []string) {
	t.Helper()
	for _, name := range a.Names() {
		switch {
		case slices.Contains(names, name):
		case *update:
			a.content.remove(name)
			a.changed = true
		default:
			t.Errorf("%s in %s belongs to no test; -update removes it", name, a.path)
		}
	}
}

func (a *Archive) write(t testing.TB) {
	if !a.changed {
		return
	}
	if err := os.WriteFile(a.path, []byte(a.content.format()), 0o644); err != nil {
		t.Error(err)
	}
}
