package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// mutant is one fault.
type mutant struct {
	id         int
	file       string
	line       int
	what, code string
}

// key is how the list of equivalent mutants names it: it has no line number, so
// that other changes of the file leave it.
func (m mutant) key() string { return m.file + " | " + m.what + " | " + m.code }

func (m mutant) String() string { return fmt.Sprintf("%s:%d: %s | %s", m.file, m.line, m.what, m.code) }

// writer puts the mutants of a package into its text.
type writer struct {
	*source
	calls   []string
	mutants []mutant
	keys    map[string]int
	only    map[int]bool // the mutants to put in; nil for all
	wanted  bool         // whether one of the newest is to be put in

	now     *file
	edits   []edit
	skip    map[ast.Node]bool
	flip    map[ast.Expr]bool
	imports map[string]string // the file's name of each import
}

// edit is an insertion. What is inserted at one offset ends inner nodes, then
// outer ones, then begins outer nodes, then inner ones.
type edit struct {
	at, drop, seq int
	begins        bool
	text          string
}

// The function that stands for each operator, and what its mutants do instead.
var ordered = map[token.Token][]string{
	token.LSS: {"mutantLess", "<=", ">="},
	token.LEQ: {"mutantLessEqual", "<", ">"},
	token.GTR: {"mutantMore", ">=", "<="},
	token.GEQ: {"mutantMoreEqual", ">", "<"},
}

var arithmetic = map[token.Token][]string{
	token.ADD: {"mutantAdd", "-"},
	token.SUB: {"mutantSub", "+"},
	token.MUL: {"mutantMul", "+"},
	token.QUO: {"mutantQuo", "*"},
	token.REM: {"mutantRem", "*"},
	token.AND: {"mutantAnd", "|"},
	token.OR:  {"mutantOr", "&"},
}

// file returns f's text with all of its mutants in it.
func (w *writer) file(f *file) []byte {
	w.now, w.edits, w.skip, w.flip, w.imports = f, nil, map[ast.Node]bool{}, map[ast.Expr]bool{}, map[string]string{}
	for _, i := range f.ast.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		w.imports[p] = p[strings.LastIndexByte(p, '/')+1:]
		if i.Name != nil {
			w.imports[p] = i.Name.Name
		}
	}
	ast.Inspect(f.ast, w.visit)
	slices.SortStableFunc(w.edits, func(a, b edit) int {
		switch {
		case a.at != b.at:
			return cmp.Compare(a.at, b.at)
		case a.begins != b.begins && a.begins:
			return 1
		case a.begins != b.begins:
			return -1
		case a.begins:
			return cmp.Compare(a.seq, b.seq)
		}
		return cmp.Compare(b.seq, a.seq)
	})
	var out bytes.Buffer
	at := 0
	for _, e := range w.edits {
		out.Write(f.text[at:e.at])
		out.WriteString(e.text)
		at = e.at + e.drop
	}
	out.Write(f.text[at:])
	return out.Bytes()
}

func (w *writer) offset(p token.Pos) int { return w.fset.Position(p).Offset }

// add makes one mutant for each description and returns the first one's number.
func (w *writer) add(p token.Pos, what ...string) int {
	at := w.fset.Position(p)
	line := bytes.Split(w.now.text, []byte("\n"))[at.Line-1]
	w.wanted = false
	for _, one := range what {
		m := mutant{id: len(w.mutants) + 1, file: w.now.rel, line: at.Line, what: one, code: strings.TrimSpace(string(line))}
		w.keys[m.key()]++
		if n := w.keys[m.key()]; n > 1 {
			m.what = fmt.Sprintf("%s, number %d", one, n)
		}
		w.mutants = append(w.mutants, m)
		w.wanted = w.wanted || w.only == nil || w.only[m.id]
	}
	return len(w.mutants) - len(what) + 1
}

// text is n's source on one line.
func (w *writer) text(n ast.Node) string {
	return strings.Join(strings.Fields(string(w.now.text[w.offset(n.Pos()):w.offset(n.End())])), " ")
}

func (w *writer) becomes(n ast.Node, to string) string { return w.text(n) + " becomes " + to }

// wrap puts text around n, if one of the newest mutants is wanted.
func (w *writer) wrap(n ast.Node, before, after string) {
	if !w.wanted {
		return
	}
	w.edits = append(w.edits,
		edit{at: w.offset(n.Pos()), begins: true, seq: len(w.edits), text: before},
		edit{at: w.offset(n.End()), seq: len(w.edits), text: after})
}

func (w *writer) visit(n ast.Node) bool {
	if n == nil || w.skip[n] {
		return false
	}
	if w.calls != nil {
		if call, ok := n.(*ast.CallExpr); ok {
			w.call(call)
		}
		return true
	}
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.Field, *ast.ArrayType, *ast.TypeSwitchStmt:
		if s, ok := n.(*ast.TypeSwitchStmt); ok {
			w.skip[s.Assign] = true
			for _, c := range s.Body.List {
				w.cases(c.(*ast.CaseClause))
			}
			return true
		}
		return false
	case *ast.SwitchStmt:
		if n.Tag != nil {
			for _, c := range n.Body.List {
				w.cases(c.(*ast.CaseClause))
			}
		}
	case *ast.KeyValueExpr:
		w.skip[n.Key] = true
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && w.info.Types[id].IsBuiltin() && (id.Name == "make" || id.Name == "panic") {
			return false
		}
	case *ast.IfStmt:
		w.flip[n.Cond] = true
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			w.flip[r] = true
		}
	case *ast.BlockStmt:
		w.statements(n.List)
	case *ast.CaseClause:
		w.statements(n.Body)
	case *ast.CommClause:
		if n.Comm != nil {
			w.skip[n.Comm] = true
		}
		w.statements(n.Body)
	}
	if e, ok := n.(ast.Expr); ok {
		return w.expression(e)
	}
	return true
}

func (w *writer) cases(c *ast.CaseClause) {
	for _, e := range c.List {
		w.skip[e] = true
	}
}

// call makes a mutant that leaves out a call that is asked for, as if it had
// given no error.
func (w *writer) call(c *ast.CallExpr) {
	name := ""
	switch f := c.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	if !slices.Contains(w.calls, name) || !types.Identical(w.info.Types[c].Type, types.Universe.Lookup("error").Type()) {
		return
	}
	w.wrap(c, fmt.Sprintf("mutantCall(%d, func() error { return ", w.add(c.Pos(), w.text(c)+" left out")), " })")
}

// statements makes mutants that leave out one statement.
func (w *writer) statements(list []ast.Stmt) {
	for _, s := range list {
		what := ""
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok {
				if id, ok := call.Fun.(*ast.Ident); !ok || id.Name != "panic" {
					what = "call left out"
				}
			}
		case *ast.AssignStmt:
			if id, ok := s.Lhs[0].(*ast.Ident); s.Tok != token.DEFINE && (!ok || id.Name != "_") {
				what = "assignment left out"
			}
		case *ast.IncDecStmt, *ast.SendStmt:
			what = "statement left out"
		case *ast.DeferStmt:
			what = "defer left out"
		case *ast.GoStmt:
			what = "go left out"
		case *ast.ReturnStmt:
			if len(s.Results) == 0 {
				what = "return left out"
			}
		case *ast.BranchStmt:
			if s.Tok == token.BREAK || s.Tok == token.CONTINUE {
				what = s.Tok.String() + " left out"
			}
		}
		if what != "" {
			w.wrap(s, fmt.Sprintf("if !mutantIs(%d) { ", w.add(s.Pos(), what)), " }")
		}
	}
}

// expression makes the mutants of e itself and says whether to look inside.
func (w *writer) expression(e ast.Expr) bool {
	tv := w.info.Types[e]
	if tv.Value != nil {
		w.constant(e, tv)
		return false
	}
	b, binary := e.(*ast.BinaryExpr)
	if binary && b.Op == token.EQL || binary && b.Op == token.NEQ {
		if plainBool(tv.Type) {
			to := map[token.Token]string{token.EQL: " != ", token.NEQ: " == "}[b.Op]
			w.wrap(b, fmt.Sprintf("mutantFlip(%d, ", w.add(b.OpPos, w.becomes(b, w.text(b.X)+to+w.text(b.Y)))), ")")
		}
		return true
	}
	if binary && (b.Op == token.LAND || b.Op == token.LOR) {
		w.logical(b, tv)
		return true
	}
	if binary {
		w.operator(b, tv)
		return true
	}
	if w.flip[e] && tv.IsValue() && plainBool(tv.Type) {
		if _, paren := e.(*ast.ParenExpr); !paren {
			w.wrap(e, fmt.Sprintf("mutantFlip(%d, ", w.add(e.Pos(), w.becomes(e, "its opposite"))), ")")
		}
	}
	return true
}

func (w *writer) logical(b *ast.BinaryExpr, tv types.TypeAndValue) {
	if !plainBool(tv.Type) {
		return
	}
	before, value := "(mutantIs(%d) || (", "true"
	if b.Op == token.LOR {
		before, value = "(!mutantIs(%d) && (", "false"
	}
	id := w.add(b.OpPos, w.becomes(b.X, value), w.becomes(b.Y, value))
	w.wrap(b.X, fmt.Sprintf(before, id), "))")
	w.wrap(b.Y, fmt.Sprintf(before, id+1), "))")
}

func (w *writer) operator(b *ast.BinaryExpr, tv types.TypeAndValue) {
	operand := w.info.Types[b.X].Type
	if w.info.Types[b.X].Value != nil {
		operand = w.info.Types[b.Y].Type
	}
	basic, ok := operand.Underlying().(*types.Basic)
	if _, param := operand.(*types.TypeParam); !ok || param {
		return
	}
	name, what := "", []string(nil)
	if o, ok := ordered[b.Op]; ok && basic.Info()&types.IsOrdered != 0 && plainBool(tv.Type) {
		name, what = o[0], o[1:]
	}
	if a, ok := arithmetic[b.Op]; ok && basic.Info()&(types.IsInteger|types.IsFloat) != 0 {
		name, what = a[0], a[1:]
	}
	if name == "" {
		return
	}
	var all []string
	for _, op := range what {
		all = append(all, w.becomes(b, w.text(b.X)+" "+op+" "+w.text(b.Y)))
	}
	w.wrap(b, fmt.Sprintf("%s(%d, ", name, w.add(b.OpPos, all...)), ")")
	if !w.wanted {
		return
	}
	w.edits = append(w.edits, edit{at: w.offset(b.OpPos), drop: len(b.Op.String()), begins: true, seq: len(w.edits), text: ","})
}

func (w *writer) constant(e ast.Expr, tv types.TypeAndValue) {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.CHAR {
		return // The comparison with it has mutants of its own.
	}
	if tv.Value.Kind() == constant.Bool {
		if plainBool(tv.Type) {
			w.wrap(e, fmt.Sprintf("mutantFlip(%d, bool(", w.add(e.Pos(), w.becomes(e, "its opposite"))), "))")
		}
		return
	}
	name := w.typeName(tv.Type)
	basic, ok := tv.Type.Underlying().(*types.Basic)
	if name == "" || !ok || basic.Info()&(types.IsInteger|types.IsFloat) == 0 {
		return
	}
	zero := constant.Sign(tv.Value) == 0
	switch {
	case basic.Info()&types.IsInteger != 0 && (name == basic.Name() || zero) && !(zero && basic.Info()&types.IsUnsigned != 0):
		w.wrap(e, fmt.Sprintf("mutantNear(%d, %s(", w.add(e.Pos(), w.becomes(e, w.text(e)+" + 1"), w.becomes(e, w.text(e)+" - 1")), name), "))")
	case basic.Info()&(types.IsInteger|types.IsFloat) != 0 && !zero:
		w.wrap(e, fmt.Sprintf("mutantDouble(%d, %s(", w.add(e.Pos(), w.becomes(e, "twice that")), name), "))")
	}
}

// typeName is how this file writes a number's type, and empty for enumerations
// and types it does not import.
func (w *writer) typeName(t types.Type) string {
	switch t := t.(type) {
	case *types.Basic:
		if t.Info()&types.IsUntyped == 0 {
			return t.Name()
		}
	case *types.Named:
		if o := t.Obj(); o.Pkg() != nil && o.Pkg().Path() == "time" && o.Name() == "Duration" && w.imports["time"] != "" {
			return w.imports["time"] + ".Duration"
		}
	}
	return ""
}

func plainBool(t types.Type) bool {
	b, ok := t.(*types.Basic)
	return ok && b.Info()&types.IsBoolean != 0
}
