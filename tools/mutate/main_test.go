package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module of one package into a git repository, which copyTree asks.
func module(t *testing.T, code, test string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/m\n\ngo 1.26\n", "m.go": code, "m_test.go": test} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := command(dir, "git", "init", "-q"); err != nil {
		t.Fatal(err)
	}
	return dir
}

const code = `package m

import "time"

type state int

const (
	idle state = iota
	busy
)

const bound = 3

func In(n int, d time.Duration, on bool) (ok bool) {
	if on && n < bound {
		return true
	}
	for i := 0; ; i++ {
		if i == n {
			break
		}
	}
	switch s := state(n); s {
	case busy:
		n = 7
	}
	var a [4]float64
	a[n%4] += 0.5
	ok = d-time.Second > 0 || a[0] != 0
	return ok
}
`

func TestEveryMutantCompilesAndSurvivorsAreNamed(t *testing.T) {
	dir := module(t, code, `package m

import "testing"

func TestIn(t *testing.T) {
	if !In(2, 0, true) || In(3, 0, true) {
		t.Error("n")
	}
}
`)
	var out strings.Builder
	ok, err := mutate(&out, ".", options{dir: dir, min: 0.99, equivalent: "equivalent.txt"})
	if err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if ok {
		t.Error("passed with survivors")
	}
	for _, want := range []string{
		"m.go:15: on becomes true | if on && n < bound {",
		"m.go:25: assignment left out | n = 7 (no test reaches it)",
		"m.go:29: time.Second becomes twice that | ok = d-time.Second > 0 || a[0] != 0",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("survivor %q is not named", want)
		}
	}
	if strings.Contains(text, "n < bound becomes n <= bound") || strings.Contains(text, "bound becomes bound - 1") {
		t.Error("a boundary that the test looks at survived")
	}
	if t.Failed() {
		t.Log(text)
	}
	if list, _ := command(dir, "git", "ls-files", "--others"); strings.Count(list, "\n") != 2 {
		t.Errorf("the checkout was changed: %s", list)
	}
}

func TestACallThatIsAskedForIsLeftOut(t *testing.T) {
	dir := module(t, `package m

import "os"

func Save(f *os.File) error {
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}
`, `package m

import (
	"os"
	"testing"
)

func TestSave(t *testing.T) {
	f, _ := os.CreateTemp(t.TempDir(), "")
	if Save(f) != nil || f.Close() == nil {
		t.Error("is open")
	}
}
`)
	for calls, want := range map[string]string{
		"Sync":       "0 of 1 killed, 0.0 %; 1 survived",
		"Close":      "1 of 1 killed",
		"Sync,Close": "1 of 2 killed",
		"Name":       "0 of 0 killed",
	} {
		var out strings.Builder
		if _, err := mutate(&out, ".", options{dir: dir, calls: strings.Split(calls, ",")}); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, want %q in\n%s", calls, err, want, &out)
		}
		if calls == "Sync" && !strings.Contains(out.String(), "m.go:6: f.Sync() left out | if err := f.Sync(); err != nil {") {
			t.Errorf("the survivor is not named:\n%s", &out)
		}
	}
}

func TestBrokenBaselineIsAnError(t *testing.T) {
	dir := module(t, "package m\n\nfunc One() int { return 1 }\n", "package m\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) { t.Error(One()) }\n")
	var out strings.Builder
	if _, err := mutate(&out, ".", options{dir: dir}); err == nil || !strings.Contains(err.Error(), "without any fault") {
		t.Errorf("got %v", err)
	}
}

func TestEquivalentMutantsCountForNothing(t *testing.T) {
	dir := module(t, "package m\n\nfunc One(b []int) int { return cap(append(b, 1)) }\n",
		"package m\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif One(nil) < 1 {\n\t\tt.Error()\n\t}\n}\n")
	row := "m.go | 1 becomes 1 + 1 | func One(b []int) int { return cap(append(b, 1)) } | the value is not looked at\n"
	other := strings.Replace(row, "1 + 1", "1 - 1", 1)
	for _, tt := range []struct {
		rows string
		ok   bool
	}{{"# a word\n\n" + row + other, true}, {row, false}, {row + other + "m.go | gone | x | y\n", false}} {
		if err := os.WriteFile(filepath.Join(dir, "e.txt"), []byte(tt.rows), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if ok, err := mutate(&out, ".", options{dir: dir, equivalent: "e.txt", min: 1}); err != nil || ok != tt.ok {
			t.Errorf("%q: %v, %v\n%s", tt.rows, ok, err, &out)
		}
	}
}
