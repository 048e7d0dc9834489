package nginx_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// statusFile is dpkg's database: what Debian has installed on this machine.
const statusFile = "/var/lib/dpkg/status"

// maxStatus bounds what is read of it; a full desktop has a tenth of this.
const maxStatus = 64 << 20

// pageSize is how many packages one page of the list holds.
const pageSize = 50

// listed is a package as the list shows it.
type listed struct {
	Package string `json:"package"`
	Version string `json:"version"`
}

// detail is a package's own document.
type detail struct {
	listed
	Architecture string   `json:"architecture"`
	Depends      []string `json:"depends"`
	Description  string   `json:"description"`
}

// installed reads the installed packages by name, at most limit of them, spread
// over the alphabet.
func installed(t *testing.T, limit int) []detail {
	t.Helper()
	f, err := os.Open(statusFile)
	if err != nil {
		t.Fatalf("this test serves dpkg's database, which only Debian and its kin have: %v", err)
	}
	defer func() { _ = f.Close() }()
	all, err := parseStatus(io.LimitReader(f, maxStatus))
	if err != nil {
		t.Fatalf("%s: %v", statusFile, err)
	}
	if len(all) <= limit {
		return all
	}
	some := make([]detail, limit)
	for i := range some {
		some[i] = all[i*len(all)/limit]
	}
	return some
}

// parseStatus reads stanzas of "Field: value" with continuation lines that begin
// with a space, as deb-control(5) has them.
func parseStatus(r io.Reader) ([]detail, error) {
	var all []detail
	fields := map[string]string{}
	field := ""
	flush := func() {
		if strings.HasSuffix(fields["Status"], " installed") {
			all = append(all, stanza(fields))
		}
		clear(fields)
		field = ""
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			flush()
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			fields[field] += "\n" + strings.TrimSpace(line)
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("a line after package %q is not a field", fields["Package"])
		}
		field = name
		fields[field] = strings.TrimSpace(value)
	}
	flush()
	slices.SortFunc(all, func(a, b detail) int { return cmp.Compare(a.Package, b.Package) })
	return all, lines.Err()
}

// stanza makes a document of one package's fields.
func stanza(fields map[string]string) detail {
	d := detail{
		listed:       listed{Package: fields["Package"], Version: fields["Version"]},
		Architecture: fields["Architecture"], Depends: []string{}, Description: fields["Description"],
	}
	if fields["Multi-Arch"] == "same" {
		// dpkg itself names these so: they can be there for several architectures.
		d.Package += ":" + d.Architecture
	}
	for dependency := range strings.SplitSeq(fields["Depends"], ",") {
		if dependency = strings.TrimSpace(dependency); dependency != "" {
			d.Depends = append(d.Depends, dependency)
		}
	}
	return d
}

// publish writes what nginx serves: packages/NAME.json for each detail, and the
// pages of the list as list/CURSOR.json. A cursor is opaque: the name after
// which the page begins, in hexadecimal; the first page's is empty.
func publish(t *testing.T, root string, packages []detail) {
	t.Helper()
	write := func(folder, name string, v any) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, folder, name+".json"), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cursor := ""
	for page := range slices.Chunk(packages, pageSize) {
		var body struct {
			Items      []listed `json:"items"`
			NextCursor *string  `json:"next_cursor"`
		}
		for _, d := range page {
			body.Items = append(body.Items, d.listed)
			write("packages", d.Package, d)
		}
		last := page[len(page)-1]
		if last.Package != packages[len(packages)-1].Package {
			body.NextCursor = new(hex.EncodeToString([]byte(last.Package)))
		}
		write("list", cursor, body)
		if body.NextCursor != nil {
			cursor = *body.NextCursor
		}
	}
}

// records reads a file of JSON lines.
func records[T any](t *testing.T, path string) []T {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []T
	for line := range bytes.Lines(b) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("%s, line %d: %v", path, len(all)+1, err)
		}
		all = append(all, v)
	}
	return all
}

func TestStatusFileIsReadAsDpkgReadsIt(t *testing.T) {
	const file = `Package: libstdc++6
Status: install ok installed
Architecture: amd64
Multi-Arch: same
Version: 12.2.0-14
Depends: gcc-12-base (= 12.2.0-14), libc6 (>= 2.36)
Description: GNU Standard C++ Library v3
 The runtime.
 .
 More of it.

Package: gone
Status: deinstall ok config-files
Version: 1
Architecture: all

Package: adduser
Status: install ok installed
Architecture: all
Version: 3.134
Description: add users
`
	got, err := parseStatus(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want := []detail{
		{listed{"adduser", "3.134"}, "all", []string{}, "add users"},
		{
			listed{"libstdc++6:amd64", "12.2.0-14"}, "amd64",
			[]string{"gcc-12-base (= 12.2.0-14)", "libc6 (>= 2.36)"},
			"GNU Standard C++ Library v3\nThe runtime.\n.\nMore of it.",
		},
	}
	if !slices.EqualFunc(got, want, sameDetail) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func sameDetail(a, b detail) bool {
	return a.listed == b.listed && a.Architecture == b.Architecture &&
		a.Description == b.Description && slices.Equal(a.Depends, b.Depends)
}
