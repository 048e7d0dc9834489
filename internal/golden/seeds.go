package golden

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// seedsFile, below the root of the module, holds the seeds of all fuzz tests, each as
// the file "PACKAGE/FuzzName/name" in the form that Go writes under testdata/fuzz.
// PACKAGE is the package's folder.
const seedsFile = "internal/golden/testdata/seeds.txtar"

// Seeds adds the seeds of f from the module's archive of seeds; without any the test
// fails. With -update it first moves the inputs that Go left under testdata/fuzz into the
// archive; do that for one package at a time.
func Seeds(f *testing.F) {
	f.Helper()
	root, folder, err := module()
	if err != nil {
		f.Fatal(err)
	}
	a := Open(f, filepath.Join(root, filepath.FromSlash(seedsFile)))
	prefix := path.Join(folder, f.Name()) + "/"
	if *update {
		a.take(f, prefix)
	}
	n := 0
	for _, name := range a.Names() {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		text, _ := a.File(name)
		values, err := seed(text)
		if err != nil {
			f.Fatalf("%s in %s: %v", name, seedsFile, err)
		}
		f.Add(values...)
		n++
	}
	if n == 0 {
		f.Fatalf("%s has no seeds %s*", seedsFile, prefix)
	}
}

// module returns the module's root, and below it, with slashes, the working directory,
// which for a test is the folder of its package.
func module() (root, folder string, err error) {
	here, err := os.Getwd()
	if err != nil {
		return "", "", err
	}
	for root = here; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(root) == root {
			return "", "", fmt.Errorf("no go.mod in %s or above", here)
		}
	}
	folder, err = filepath.Rel(root, here)
	return root, filepath.ToSlash(folder), err
}

// take moves the inputs that Go found for f into the archive, as files whose names
// begin with prefix.
func (a *Archive) take(f *testing.F, prefix string) {
	found, err := filepath.Glob(filepath.Join("testdata", "fuzz", f.Name(), "*"))
	if err != nil {
		f.Fatal(err)
	}
	for _, input := range found {
		b, err := os.ReadFile(input)
		if err != nil {
			f.Fatal(err)
		}
		text := strings.TrimRight(string(b), "\n") + "\n"
		if err := a.content.set(prefix+filepath.Base(input), text); err != nil {
			f.Fatal(err)
		}
		a.changed = true
	}
	if a.write(f); f.Failed() {
		return
	}
	a.changed = false
	for _, input := range found {
		if err := os.Remove(input); err != nil {
			f.Error(err)
		}
	}
}

// seed reads the values of an input in Go's form: its version, then a conversion of
// a literal a line.
func seed(text string) ([]any, error) {
	first, rest, _ := strings.Cut(text, "\n")
	if first != "go test fuzz v1" {
		return nil, fmt.Errorf("invalid first line %q", first)
	}
	var values []any
	for line := range strings.Lines(rest) {
		v, err := value(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		values = append(values, v)
	}
	return values, nil
}

// value reads one conversion, such as int64(-5) or []byte("text").
func value(text string) (any, error) {
	e, err := parser.ParseExpr(text)
	if err != nil {
		return nil, err
	}
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return nil, fmt.Errorf("not a conversion")
	}
	kind := "[]byte"
	if name, ok := call.Fun.(*ast.Ident); ok {
		kind = name.Name
	}
	sign, arg := "", call.Args[0]
	if minus, ok := arg.(*ast.UnaryExpr); ok && minus.Op == token.SUB {
		sign, arg = "-", minus.X
	}
	literal := ""
	switch arg := arg.(type) {
	case *ast.BasicLit:
		literal = sign + arg.Value
	case *ast.Ident:
		literal = sign + arg.Name
	default:
		return nil, fmt.Errorf("not a literal")
	}
	switch kind {
	case "[]byte":
		s, err := strconv.Unquote(literal)
		return []byte(s), err
	case "string":
		return strconv.Unquote(literal)
	case "bool":
		return strconv.ParseBool(literal)
	case "int":
		return strconv.Atoi(literal)
	case "int64":
		return strconv.ParseInt(literal, 0, 64)
	case "uint64":
		return strconv.ParseUint(literal, 0, 64)
	case "byte", "uint8":
		if strings.HasPrefix(literal, "'") {
			r, _, _, err := strconv.UnquoteChar(literal[1:len(literal)-1], '\'')
			return byte(r), err
		}
		n, err := strconv.ParseUint(literal, 0, 8)
		return byte(n), err
	case "float64":
		return strconv.ParseFloat(literal, 64)
	}
	return nil, fmt.Errorf("a %s cannot be read here", kind)
}
