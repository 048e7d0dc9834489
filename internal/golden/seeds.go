package golden

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// seedsFile holds the seeds of a package's fuzz tests, each as the file
// "FuzzName/name" in the form that Go writes under testdata/fuzz.
const seedsFile = "testdata/seeds.txtar"

// Seeds adds the seeds of f from the package's testdata/seeds.txtar; without any
// the test fails. With -update what Go found and left under testdata/fuzz is moved
// there first.
func Seeds(f *testing.F) {
	f.Helper()
	a := Open(f, seedsFile)
	if *update {
		a.take(f)
	}
	n := 0
	for _, name := range a.Names() {
		if !strings.HasPrefix(name, f.Name()+"/") {
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
		f.Fatalf("%s has no seeds of %s", seedsFile, f.Name())
	}
}

// take moves the inputs that Go found for f into the archive.
func (a *Archive) take(f *testing.F) {
	found, err := filepath.Glob(filepath.Join("testdata", "fuzz", f.Name(), "*"))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range found {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		text := strings.TrimRight(string(b), "\n") + "\n"
		if err := a.content.set(f.Name()+"/"+filepath.Base(path), text); err != nil {
			f.Fatal(err)
		}
		a.changed = true
	}
	if a.write(f); f.Failed() {
		return
	}
	a.changed = false
	for _, path := range found {
		if err := os.Remove(path); err != nil {
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
