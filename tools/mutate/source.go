package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// source is a package, parsed and checked.
type source struct {
	dir, root, rel, name string
	fset                 *token.FileSet
	files                []*file
	info                 *types.Info
	pkg                  *types.Package
}

type file struct {
	path, rel string
	text      []byte
	ast       *ast.File
}

func load(dir, pkg string) (*source, error) {
	text, err := command(dir, "go", "list", "-json=Dir,Name,ImportPath,GoFiles,Module", pkg)
	if err != nil {
		return nil, err
	}
	var l struct {
		Dir, Name, ImportPath string
		GoFiles               []string
		Module                struct{ Dir string }
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return nil, err
	}
	exports, err := command(dir, "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", pkg)
	if err != nil {
		return nil, err
	}
	export := map[string]string{}
	for line := range strings.Lines(exports) {
		name, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		export[name] = at
	}
	s := &source{dir: l.Dir, root: l.Module.Dir, name: l.Name, fset: token.NewFileSet()}
	if s.rel, err = filepath.Rel(l.Module.Dir, l.Dir); err != nil {
		return nil, err
	}
	var trees []*ast.File
	for _, name := range l.GoFiles {
		f := &file{path: filepath.Join(l.Dir, name), rel: path.Join(s.rel, name)}
		if f.text, err = os.ReadFile(f.path); err != nil {
			return nil, err
		}
		if f.ast, err = parser.ParseFile(s.fset, f.path, f.text, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		s.files, trees = append(s.files, f), append(trees, f.ast)
	}
	s.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(s.fset, "gc", func(p string) (io.ReadCloser, error) {
		if export[p] == "" {
			return nil, fmt.Errorf("no export data of %s", p)
		}
		return os.Open(export[p])
	})}
	s.pkg, err = config.Check(l.ImportPath, s.fset, trees, s.info)
	return s, err
}

// instrument writes a copy of the package that holds the mutants in only, or all of them
// if it is nil, and the overlay. It returns all mutants that there are, in or not.
// Only files whose name matches pattern are changed; an empty one matches all.
// Where calls names methods, leaving their calls out is all there is.
func (s *source) instrument(work, pattern string, calls []string, only map[int]bool) ([]mutant, string, error) {
	w := &writer{source: s, calls: calls, keys: map[string]int{}, only: only}
	replace := map[string]string{}
	for _, f := range s.files {
		if ok, err := path.Match(pattern, path.Base(f.rel)); err != nil {
			return nil, "", err
		} else if pattern != "" && !ok {
			continue
		}
		at := filepath.Join(work, filepath.Base(f.path))
		if err := os.WriteFile(at, w.file(f), 0o600); err != nil {
			return nil, "", err
		}
		replace[f.path] = at
	}
	at := filepath.Join(work, "zz_mutants.go")
	code := strings.ReplaceAll(strings.ReplaceAll(switches, "PACKAGE", s.name), "COUNT", fmt.Sprint(len(w.mutants)+1))
	if err := os.WriteFile(at, []byte(code), 0o600); err != nil {
		return nil, "", err
	}
	replace[filepath.Join(s.dir, "zz_mutants.go")] = at
	overlay := filepath.Join(work, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, "", err
	}
	return w.mutants, overlay, os.WriteFile(overlay, text, 0o600)
}

// switches is what the copy calls. Each call names the first of its mutants and
// yields which of them is switched on, 0 when none is.
const switches = `package PACKAGE

import (
	"os"
	"strconv"
	"sync/atomic"
)

var mutantOn, _ = strconv.Atoi(os.Getenv("MUTANT"))
var mutantLog = func() *os.File {
	name := os.Getenv("MUTANT_REACHED")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	return f
}()
var mutantSeen [COUNT]atomic.Bool

func mutantIs(id int) bool { return mutantPick(id, 1) == 1 }

func mutantPick(id, n int) int {
	if mutantLog != nil {
		mutantReached(id, n)
	}
	if k := mutantOn - id; k >= 0 && k < n {
		return k + 1
	}
	return 0
}

//go:noinline
func mutantReached(id, n int) {
	for i := id; i < id+n; i++ {
		if !mutantSeen[i].Swap(true) {
			mutantLog.WriteString(strconv.Itoa(i) + "\n")
		}
	}
}

func mutantCall(id int, call func() error) error {
	if mutantIs(id) {
		return nil
	}
	return call()
}

type mutantInt interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}
type mutantNumber interface{ mutantInt | ~float32 | ~float64 }
type mutantOrdered interface{ mutantNumber | ~string }

func mutantLess[T mutantOrdered](id int, a, b T) bool {
	switch mutantPick(id, 2) {
	case 1:
		return a <= b
	case 2:
		return a >= b
	}
	return a < b
}

func mutantLessEqual[T mutantOrdered](id int, a, b T) bool {
	switch mutantPick(id, 2) {
	case 1:
		return a < b
	case 2:
		return a > b
	}
	return a <= b
}

func mutantMore[T mutantOrdered](id int, a, b T) bool {
	switch mutantPick(id, 2) {
	case 1:
		return a >= b
	case 2:
		return a <= b
	}
	return a > b
}

func mutantMoreEqual[T mutantOrdered](id int, a, b T) bool {
	switch mutantPick(id, 2) {
	case 1:
		return a > b
	case 2:
		return a < b
	}
	return a >= b
}

func mutantAdd[T mutantNumber](id int, a, b T) T {
	if mutantIs(id) {
		return a - b
	}
	return a + b
}

func mutantSub[T mutantNumber](id int, a, b T) T {
	if mutantIs(id) {
		return a + b
	}
	return a - b
}

func mutantMul[T mutantNumber](id int, a, b T) T {
	if mutantIs(id) {
		return a + b
	}
	return a * b
}

func mutantQuo[T mutantNumber](id int, a, b T) T {
	if mutantIs(id) {
		return a * b
	}
	return a / b
}

func mutantRem[T mutantInt](id int, a, b T) T {
	if mutantIs(id) {
		return a * b
	}
	return a % b
}

func mutantAnd[T mutantInt](id int, a, b T) T {
	if mutantIs(id) {
		return a | b
	}
	return a & b
}

func mutantOr[T mutantInt](id int, a, b T) T {
	if mutantIs(id) {
		return a & b
	}
	return a | b
}

func mutantFlip[T ~bool](id int, b T) T { return b != T(mutantIs(id)) }

func mutantNear[T mutantNumber](id int, a T) T {
	switch mutantPick(id, 2) {
	case 1:
		return a + 1
	case 2:
		return a - 1
	}
	return a
}

func mutantDouble[T mutantNumber](id int, a T) T {
	if mutantIs(id) {
		return 2 * a
	}
	return a
}
`
