package target

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxSource bounds a target file in bytes.
const maxSource = 1 << 20

// Env looks up an environment variable; os.LookupEnv is one.
type Env func(name string) (value string, ok bool)

// Problem is one thing that is wrong with a target file.
type Problem struct {
	File string `json:"file"`
	// Line and Column are where, from 1; 0 when it is the file as a whole.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Field is the path of the field, such as http.answer.rows.
	Field string `json:"field,omitempty"`
	// Message says what is there, what is allowed and what to do; no secret.
	Message string `json:"message"`
}

// Error is one line: file:line:column: field: message.
func (p Problem) Error() string {
	s := p.File
	if p.Line > 0 {
		s += fmt.Sprintf(":%d:%d", p.Line, p.Column)
	}
	if p.Field != "" {
		s += ": " + p.Field
	}
	return s + ": " + p.Message
}

// FileError is everything that is wrong with a target file, in its order.
type FileError struct{ Problems []Problem }

// Error has a line for each problem.
func (e *FileError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Load reads a target file. Its error is a [*FileError] with every problem that
// the file has, or says why it cannot be read.
func Load(path string, env Env) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", path, cause(err))
	}
	defer func() { _ = f.Close() }() // it was only read
	src, err := io.ReadAll(io.LimitReader(f, maxSource+1))
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", path, cause(err))
	}
	return Parse(path, src, env)
}

// Parse is [Load] for a file that was read already; name stands in errors. The
// files that secrets are in are read all the same.
func Parse(name string, src []byte, env Env) (*Config, error) {
	r := &report{file: name, env: env}
	var raw rawFile
	if !r.decode(src, &raw) {
		return nil, r.err()
	}
	c := r.config(&raw)
	if err := r.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// report gathers the problems of a file.
type report struct {
	file     string
	env      Env
	tree     *ast.File
	problems []Problem
}

// positioned is what the YAML library's errors are.
type positioned interface {
	error
	GetToken() *token.Token
	GetMessage() string
}

// decode reads the file into raw; what it does not know is a problem.
func (r *report) decode(src []byte, raw *rawFile) bool {
	if len(src) > maxSource {
		r.problems = append(r.problems, Problem{File: r.file, Message: fmt.Sprintf("has more than %d bytes", maxSource)})
		return false
	}
	var err error
	if r.tree, err = parser.ParseBytes(src, 0); err == nil {
		switch {
		case len(r.tree.Docs) != 1 || r.tree.Docs[0].Body == nil:
			err = fmt.Errorf("holds %d YAML documents, must hold one", len(r.tree.Docs))
		case slices.Contains([]ast.NodeType{ast.AliasType, ast.AnchorType}, r.tree.Docs[0].Body.Type()):
			err = errors.New("is an alias")
		default:
			err = yaml.UnmarshalWithOptions(src, raw, yaml.Strict())
		}
	}
	if err == nil {
		return true
	}
	p := Problem{File: r.file, Message: oneLine(err.Error())}
	if e, ok := errors.AsType[positioned](err); ok {
		p.Message = oneLine(e.GetMessage())
		if t := e.GetToken(); t != nil && t.Position != nil {
			p.Line, p.Column = t.Position.Line, t.Position.Column
		}
	}
	r.problems = append(r.problems, p)
	return false
}

// add notes a problem with a field, at the line of the nearest field above that
// is there.
func (r *report) add(field, format string, args ...any) {
	p := Problem{File: r.file, Field: field, Message: oneLine(fmt.Sprintf(format, args...))}
	for path := field; path != ""; {
		if n := r.node(path); n != nil && n.GetToken() != nil {
			at := n.GetToken().Position
			p.Line, p.Column = at.Line, at.Column
			break
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	r.problems = append(r.problems, p)
}

func (r *report) node(field string) ast.Node {
	path, err := yaml.PathString("$." + field)
	if err != nil {
		return nil
	}
	n, err := path.FilterFile(r.tree)
	if err != nil {
		return nil
	}
	return n
}

func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return &FileError{r.problems}
}

func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\u2028' || c == '\u2029' {
			return ' '
		}
		return c
	}, s)
}

// cause drops the path from an error of the file system: the message has it.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
