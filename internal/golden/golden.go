// Package golden compares results of tests with expected ones that are kept as small
// files in txtar archives. Only tests import it.
package golden

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
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

// An archive is a text in the txtar format: a comment, then each file after a line
// "-- NAME --". Such a line cannot be part of a file, and every file that is not
// empty ends with a line break.
type archive struct {
	comment string
	files   []file
}

type file struct{ name, data string }

// parse reads an archive. A name that comes twice is an error, and so is a last
// line without a line break.
func parse(text string) (archive, error) {
	var a archive
	if text != "" && !strings.HasSuffix(text, "\n") {
		return a, fmt.Errorf("the last line has no line break")
	}
	for line := range strings.Lines(text) {
		name, ok := marker(line)
		switch {
		case ok && a.index(name) >= 0:
			return a, fmt.Errorf("the file %s comes twice", name)
		case ok:
			a.files = append(a.files, file{name: name})
		case len(a.files) == 0:
			a.comment += line
		default:
			a.files[len(a.files)-1].data += line
		}
	}
	return a, nil
}

// marker is the name in a line that begins a file.
func marker(line string) (string, bool) {
	rest, begins := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- ")
	name, ends := strings.CutSuffix(rest, " --")
	name = strings.TrimSpace(name)
	return name, begins && ends && name != ""
}

func (a *archive) format() string {
	var b strings.Builder
	b.WriteString(a.comment)
	for _, f := range a.files {
		fmt.Fprintf(&b, "-- %s --\n%s", f.name, f.data)
	}
	return b.String()
}

func (a *archive) index(name string) int {
	return slices.IndexFunc(a.files, func(f file) bool { return f.name == name })
}

// set replaces the named file or adds it. Files are sorted by their names without the
// extension; files with the same such name keep their order.
func (a *archive) set(name, data string) error {
	if data != "" && !strings.HasSuffix(data, "\n") {
		return fmt.Errorf("what is got for %s does not end with a line break", name)
	}
	for line := range strings.Lines(data) {
		if _, ok := marker(line); ok {
			return fmt.Errorf("what is got for %s has a line that begins a file: %q", name, line)
		}
	}
	if i := a.index(name); i >= 0 {
		a.files[i].data = data
		return nil
	}
	a.files = append(a.files, file{name: name, data: data})
	slices.SortStableFunc(a.files, func(x, y file) int { return strings.Compare(stem(x.name), stem(y.name)) })
	return nil
}

func (a *archive) remove(name string) {
	a.files = slices.DeleteFunc(a.files, func(f file) bool { return f.name == name })
}

func stem(name string) string { return strings.TrimSuffix(name, path.Ext(name)) }
