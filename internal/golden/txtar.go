package golden

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

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
	slices.SortStableFunc(a.files, func(x, y file) int { return cmp.Compare(stem(x.name), stem(y.name)) })
	return nil
}

func (a *archive) remove(name string) {
	a.files = slices.DeleteFunc(a.files, func(f file) bool { return f.name == name })
}

func stem(name string) string { return strings.TrimSuffix(name, path.Ext(name)) }
