package arch

import (
	"bytes"
	_ "embed" // words.txt
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// wordsFile is where [Words] comes from.
const wordsFile = "internal/arch/words.txt"

//go:embed words.txt
var wordList string

// A Word is a word or phrase that the repository does without.
type Word struct {
	pattern *regexp.Regexp // The second group is the phrase.
	signs   []string       // A text that the pattern matches has one of them, in lower case.
	whole   bool           // A name is matched as it stands, not split into words.
	where   string         // Some of "csdia", as words.txt explains.
	instead string
	except  []*exception
}

// An exception lets a word stand on some lines.
type exception struct {
	line       int // In words.txt.
	path, text string
	used       bool
}

// Words reads the list in words.txt, which explains its format.
func Words() ([]*Word, error) { return parseWords(wordList) }

var (
	column = regexp.MustCompile(`\s+\|(?:\s+|$)`)
	escape = regexp.MustCompile(`\\.`)
)

// parseWords reads a list of words.
func parseWords(src string) ([]*Word, error) {
	var words []*Word
	for i, line := range strings.Split(src, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		w, err := parseWord(i+1, column.Split(line, -1))
		if err != nil {
			return nil, fmt.Errorf("arch: %s:%d: %w", wordsFile, i+1, err)
		}
		words = append(words, w)
	}
	return words, nil
}

// parseWord reads the columns of one row.
func parseWord(line int, columns []string) (*Word, error) {
	if len(columns) < 3 || len(columns) > 4 {
		return nil, fmt.Errorf("%d columns, must be 3 or 4", len(columns))
	}
	w := &Word{where: columns[1], instead: columns[2]}
	if w.where == "" || strings.Trim(w.where, "csdia") != "" {
		return nil, fmt.Errorf("where is %q, must be some of csdia", w.where)
	}
	w.whole = strings.ContainsFunc(escape.ReplaceAllString(columns[0], ""), unicode.IsUpper)
	flags := "(?i)"
	if w.whole {
		flags = ""
	}
	phrase := strings.ReplaceAll(columns[0], " ", `\s+(?://\s*)?`)
	var err error
	if w.pattern, err = regexp.Compile(flags + `(^|\W)(` + phrase + `)(?:$|\W)`); err != nil {
		return nil, err
	}
	if w.signs, err = signs(phrase); err != nil {
		return nil, err
	}
	if len(columns) == 4 {
		for pair := range strings.SplitSeq(columns[3], ";") {
			where, text, found := strings.Cut(strings.TrimSpace(pair), ":")
			if text = strings.TrimSpace(text); !found || where == "" || text == "" {
				return nil, errors.New(`an exception must be "path: text"`)
			}
			w.except = append(w.except, &exception{line: line, path: where, text: text})
		}
	}
	return w, nil
}

// signs are texts in lower case of which every match of a pattern has one: most
// files have none, and need not be searched for the pattern itself.
func signs(pattern string) ([]string, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if found := signsOf(tree); len(found) > 0 {
		return found, nil
	}
	return []string{""}, nil
}

// signsOf are the texts of a part of a pattern; none where it may match without one.
func signsOf(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(re.Rune))}
	case syntax.OpCapture, syntax.OpPlus:
		return signsOf(re.Sub[0])
	case syntax.OpConcat: // of its parts the one whose shortest text is the longest
		var best []string
		for _, part := range re.Sub {
			if found := signsOf(part); shortest(found) > shortest(best) {
				best = found
			}
		}
		return best
	case syntax.OpAlternate:
		var all []string
		for _, part := range re.Sub {
			found := signsOf(part)
			if len(found) == 0 {
				return nil
			}
			all = append(all, found...)
		}
		return all
	default:
		return nil
	}
}

// maybeIn reports whether a text in lower case has a sign of the word.
func (w *Word) maybeIn(lower []byte) bool {
	return slices.ContainsFunc(w.signs, func(sign string) bool { return bytes.Contains(lower, []byte(sign)) })
}

// shortest is the length of the shortest text; 0 of none.
func shortest(texts []string) int {
	if len(texts) == 0 {
		return 0
	}
	return len(slices.MinFunc(texts, func(a, b string) int { return len(a) - len(b) }))
}

// CheckWords reports every place that uses one of the words, and every exception
// that no place needs. It reads nested modules too. Hidden folders, build output
// and the list itself are not read; CHANGELOG.md and test data only where a word
// is banned from every file.
func CheckWords(fsys fs.FS, words []*Word) ([]Finding, error) {
	c := &wordCheck{all: words}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains(builds, name) || slices.Contains(unread[1:], d.Name())) {
				return fs.SkipDir
			}
			return nil
		case name == wordsFile || name == ".git" || !d.Type().IsRegular(): // a worktree has a file named .git
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		return c.file(name, src)
	})
	if err != nil {
		return nil, fmt.Errorf("arch: read the words of the source tree: %w", err)
	}
	for _, w := range words {
		for _, e := range w.except {
			if !e.used {
				c.found = append(c.found, Finding{fmt.Sprintf("%s:%d", wordsFile, e.line), "no line needs the exception " + e.path + ": " + e.text,
					"the list stays as short as it can be"})
			}
		}
	}
	return c.found, nil
}

// wordCheck is one pass over the files.
type wordCheck struct {
	all   []*Word
	found []Finding
	name  string // Of the file at hand.
	src   []byte
	lower []byte  // It in lower case.
	words []*Word // Those that it may have.
}

// file checks one file.
func (c *wordCheck) file(name string, src []byte) error {
	if bytes.IndexByte(src, 0) >= 0 {
		return nil // no text
	}
	c.name, c.src, c.lower, c.words = name, src, bytes.Clone(src), c.words[:0]
	for i, b := range c.lower {
		if 'A' <= b && b <= 'Z' {
			c.lower[i] += 'a' - 'A'
		}
	}
	for _, w := range c.all {
		if w.maybeIn(c.lower) {
			c.words = append(c.words, w)
		}
	}
	if len(c.words) == 0 {
		return nil
	}
	c.text('a', 0, len(src))
	switch {
	case name == "CHANGELOG.md" || slices.Contains(strings.Split(path.Dir(name), "/"), "testdata"):
	case strings.HasSuffix(name, ".md"):
		c.text('d', 0, len(src))
	case strings.HasSuffix(name, ".go"):
		return c.goFile()
	}
	return nil
}

// goFile checks the comments, strings and declared names of a Go file.
func (c *wordCheck) goFile() error {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, c.name, c.src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	at := func(p token.Pos) int { return fset.Position(p).Offset }
	for _, group := range tree.Comments {
		c.text('c', at(group.Pos()), at(group.End()))
	}
	declared := func(exprs ...ast.Expr) {
		for _, e := range exprs {
			if id, ok := e.(*ast.Ident); ok {
				c.identifier(id.Name, at(id.Pos()))
			}
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				c.text('s', at(n.Pos()), at(n.End()))
			}
		case *ast.FuncDecl:
			declared(n.Name)
		case *ast.TypeSpec:
			declared(n.Name)
		case *ast.LabeledStmt:
			declared(n.Label)
		case *ast.ValueSpec:
			for _, id := range n.Names {
				declared(id)
			}
		case *ast.Field:
			for _, id := range n.Names {
				declared(id)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				declared(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				declared(n.Key, n.Value)
			}
		}
		return true
	})
	return nil
}

// text checks a part of the file that is of one kind.
func (c *wordCheck) text(kind rune, from, to int) {
	for _, w := range c.words {
		if strings.ContainsRune(w.where, kind) && w.maybeIn(c.lower[from:to]) {
			for _, m := range w.pattern.FindAllSubmatchIndex(c.src[from:to], -1) {
				c.report(w, string(c.src[from+m[4]:from+m[5]]), from+m[4])
			}
		}
	}
}

var (
	lowerUpper = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	upperWord  = regexp.MustCompile(`([A-Z])([A-Z][a-z])`)
)

// identifier checks a name that is declared at an offset.
func (c *wordCheck) identifier(name string, offset int) {
	lower := []byte(strings.ToLower(name))
	for _, w := range c.words {
		if !strings.ContainsRune(w.where, 'i') || !w.maybeIn(lower) {
			continue
		}
		text := name
		if !w.whole {
			text = upperWord.ReplaceAllString(lowerUpper.ReplaceAllString(name, "$1 $2"), "$1 $2")
			text = strings.ReplaceAll(text, "_", " ")
		}
		if w.pattern.MatchString(text) {
			c.report(w, name, offset)
		}
	}
}

// report adds a finding unless an exception covers the line.
func (c *wordCheck) report(w *Word, what string, offset int) {
	start := bytes.LastIndexByte(c.src[:offset], '\n') + 1
	line, _, _ := bytes.Cut(c.src[start:], []byte("\n"))
	for _, e := range w.except {
		if matches(e.path, c.name) && (e.text == "*" || bytes.Contains(line, []byte(e.text))) {
			e.used = true
			return
		}
	}
	c.found = append(c.found, Finding{
		Where: fmt.Sprintf("%s:%d", c.name, bytes.Count(c.src[:start], []byte("\n"))+1),
		What:  fmt.Sprintf("the words %q", strings.Join(strings.Fields(what), " ")),
		Why:   "write instead: " + w.instead,
	})
}
