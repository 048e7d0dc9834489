package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headway-go/headway/internal/cli"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/reason"
)

// commands writes a section for each command, from what its --help says.
func commands() string {
	b := &strings.Builder{}
	b.WriteString(`<!-- Written by go generate ./cmd/headway/reference from the commands. -->

# Commands

What each command does, as its ` + "`--help`" + ` says. Every command takes ` + "`-h, --help`" + `.

`)
	root := cli.Root()
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		fmt.Fprintf(b, "%s %s\n\n%s.\n\n", strings.Repeat("#", min(4, 2+strings.Count(c.CommandPath(), " "))), c.CommandPath(), strings.TrimSuffix(c.Short, "."))
		if c.Runnable() {
			fmt.Fprintf(b, "```sh\n%s\n```\n\n", c.UseLine())
		}
		if c.Long != "" {
			fmt.Fprintf(b, "```text\n%s\n```\n\n", strings.TrimSpace(c.Long))
		}
		if c.Example != "" {
			fmt.Fprintf(b, "```sh\n%s\n```\n\n", strings.TrimRight(unindent(c.Example), "\n"))
		}
		first := true
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			if first {
				b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
				first = false
			}
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			takes, use := pflag.UnquoteUsage(f)
			fallback := f.DefValue
			if slices.Contains([]string{"", "false", "[]", "0", "0s"}, fallback) {
				fallback = ""
			} else {
				fallback = "`" + fallback + "`"
			}
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", strings.TrimSpace(name+" "+takes), cell(fallback), cell(escape(use)))
		})
		if !first {
			b.WriteString("\n")
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				each(sub)
			}
		}
	}
	each(root)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// escape has a text as Markdown shows it.
func escape(text string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;", "*", `\*`, "_", `\_`).Replace(text)
}

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

// A word is a name that programs read, and what it means.
type word struct{ name, meaning string }

// sources are the Go files that say what a word means, by folder.
type sources struct {
	repository string
	files      map[string][]*ast.File
}

func (s *sources) read(folder string) ([]*ast.File, error) {
	if all, ok := s.files[folder]; ok {
		return all, nil
	}
	names, err := filepath.Glob(filepath.Join(s.repository, folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	s.files[folder] = all
	return all, nil
}

// A constant is one of a Go file.
type constant struct{ name, typ, value, comment string }

// constants lists those of a folder, in order, with the comment above or behind each.
func (s *sources) constants(folder string) (all []constant, err error) {
	files, err := s.read(folder)
	for _, f := range files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			typ := ""
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				if id, ok := v.Type.(*ast.Ident); ok {
					typ = id.Name
				} else if len(v.Values) > 0 {
					typ = ""
				}
				c := constant{name: v.Names[0].Name, typ: typ, comment: cmp.Or(v.Doc.Text(), v.Comment.Text())}
				if len(v.Values) == 1 {
					if lit, ok := v.Values[0].(*ast.BasicLit); ok {
						c.value = lit.Value
						if text, err := strconv.Unquote(lit.Value); err == nil {
							c.value = text
						}
					}
				}
				c.comment = strings.Join(strings.Fields(strings.TrimPrefix(c.comment, c.name+":")), " ")
				all = append(all, c)
			}
		}
	}
	return all, err
}

// words takes constants whose values are texts.
func (s *sources) words(folder string, of func(constant) bool) (all []word, err error) {
	cs, err := s.constants(folder)
	for _, c := range cs {
		if of(c) {
			all = append(all, word{c.value, c.comment})
		}
	}
	return all, err
}

// numbered takes constants that are counted up, whose names are what a function says.
func (s *sources) numbered(typ string, names []string) (all []word, err error) {
	cs, err := s.constants("reason")
	meaning, order := map[string]string{}, []string{}
	for _, c := range cs {
		if c.typ == typ && len(order) < len(names) {
			order = append(order, strings.ToLower(c.name))
		}
		if key := strings.ToLower(c.name); c.comment != "" {
			meaning[key] = c.comment
		}
	}
	if len(order) != len(names) {
		return nil, fmt.Errorf("reason has %d constants of type %s and %d names", len(order), typ, len(names))
	}
	for i, name := range names {
		all = append(all, word{name, meaning[order[i]]})
	}
	return all, err
}

// A metric is a series of /metrics.
type metric struct {
	word
	kind   string
	labels []string
}

// metrics lists what internal/metrics declares.
func (s *sources) metrics() (all []metric, err error) {
	const folder = "internal/metrics"
	files, err := s.read(folder)
	if err != nil {
		return nil, err
	}
	text := func(e ast.Expr) string {
		lit, ok := e.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return ""
		}
		t, _ := strconv.Unquote(lit.Value)
		return t
	}
	kind := func(name string) string {
		if strings.HasSuffix(name, "_total") { // as promlint has it
			return "counter"
		}
		return "gauge"
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if len(n.Args) < 2 || !strings.HasPrefix(text(n.Args[0]), "headway_") {
					break
				}
				m := metric{word: word{text(n.Args[0]), text(n.Args[1])}, kind: kind(text(n.Args[0]))}
				for _, l := range n.Args[2:] {
					m.labels = append(m.labels, text(l))
				}
				if n.Fun.(*ast.Ident).Name == "time" {
					m.kind, m.labels = "histogram", []string{"provider"}
				}
				all = append(all, m)
			case *ast.CompositeLit:
				fields := map[string]string{}
				for _, e := range n.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok {
						if key, ok := kv.Key.(*ast.Ident); ok {
							fields[key.Name] = text(kv.Value)
						}
					}
				}
				if name := fields["Name"]; name != "" {
					all = append(all, metric{word: word{name, fields["Help"]}, kind: kind(name)})
				}
			}
			return true
		})
	}
	slices.SortFunc(all, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

// observed writes what programs and people read of a running Headway: exit codes, events,
// reasons, classes, bounds, metrics and header fields.
func observed(repository string) (string, error) {
	s := &sources{repository, map[string][]*ast.File{}}
	b := &strings.Builder{}
	b.WriteString("## Exit codes, events, reasons, metrics and header fields\n\nThey are stable: scripts, alerts and clients may go by them.\n\n")
	table := func(title, intro string, all []word, err error) error {
		fmt.Fprintf(b, "### %s\n\n%s\n\n| name | meaning |\n|---|---|\n", title, intro)
		for _, w := range all {
			if w.meaning == "" {
				return fmt.Errorf("%s: %q lacks its meaning", strings.ToLower(title), w.name)
			}
			fmt.Fprintf(b, "| `%s` | %s |\n", w.name, cell(escape(sentence(w.meaning))))
		}
		b.WriteString("\n")
		return err
	}
	var reasons, classes, bounds []string
	for _, r := range reason.All() {
		reasons = append(reasons, r.String())
	}
	for c := reason.Class(0); !strings.HasPrefix(c.String(), "class("); c++ {
		classes = append(classes, c.String())
	}
	for i := range (reason.Bounds{}) {
		bounds = append(bounds, reason.Bound(i).String())
	}
	exits, err1 := s.words("internal/cli", func(c constant) bool { return strings.HasPrefix(c.name, "exit") })
	types, err2 := s.words("event", func(c constant) bool { return c.typ == "Type" })
	more, err3 := s.words("quota", func(c constant) bool { return c.typ == "EventType" })
	types = append(types, more...)
	why, err4 := s.numbered("Reason", reasons)
	for i, r := range reason.All() {
		why[min(i, len(why)-1)].meaning += " (" + r.Kind().String() + ")"
	}
	how, err5 := s.numbered("Class", classes)
	what, err6 := s.numbered("Bound", bounds)
	header := func(c constant) bool { return headerName.MatchString(c.value) }
	proxied, err7 := s.words("egress", header)
	hooks, err8 := s.words("internal/events", header)
	metrics, err9 := s.metrics()
	for _, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8, err9,
		missing("event", events.Types(), types), s.missing("internal/metrics", metricName, metrics), s.missingHeaders(append(proxied, hooks...)),
		table("Exit codes", "What a command's exit says.", exits, nil),
		table("Events", "The types of events, in `headway runs`, `/v1/events`, logs and webhooks. All but those with a colon are of collections, loads and fleets; these are of budgets.", types, nil),
		table("Reasons", "Why something waited, was refused, deferred or ended. In brackets is the kind of reason: wait, pressure (of the provider), cap (of yours), caller or failure.", why, nil),
		table("Classes of outcome", "How an attempt ended.", how, nil),
		table("Bounds", "What kept a run, a load or a call from being faster.", what, nil),
		table("Header fields", "`X-Headway` fields of requests never go upstream, and those of answers are the proxy's. The last are of a webhook.", append(proxied, hooks...), nil),
	} {
		if err != nil {
			return "", err
		}
	}
	b.WriteString("### Metrics\n\nWhat `/metrics` of `headway serve` has, beside those of Go and of the process. The number of values of each label is bounded; what is unknown has no sample.\n\n")
	b.WriteString("| name | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range metrics {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "), cell(escape(m.meaning)))
	}
	b.WriteString("\n")
	return b.String(), nil
}

func sentence(text string) string {
	text = strings.ToUpper(text[:1]) + text[1:]
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, ")") {
		return text
	}
	return text + "."
}

var (
	headerName = regexp.MustCompile(`^(X-)?Headway-[A-Z][A-Za-z-]+$`)
	quoted     = regexp.MustCompile(`"(X-)?Headway-[A-Z][A-Za-z-]+"`)
	metricName = regexp.MustCompile(`"headway_[a-z_]+"`)
)

// missing compares the words that the code has with those that are written.
func missing(what string, has []string, written []word) error {
	for _, name := range has {
		if !slices.ContainsFunc(written, func(w word) bool { return w.name == name && w.meaning != "" }) {
			return fmt.Errorf("%s %q lacks its meaning", what, name)
		}
	}
	return nil
}

// missing looks through the text of the files for names that were not found.
func (s *sources) missing(folder string, pattern *regexp.Regexp, written []metric) error {
	var all []word
	for _, m := range written {
		all = append(all, m.word)
	}
	return s.mentioned(folder, pattern, all)
}

// missingHeaders looks through all files.
func (s *sources) missingHeaders(written []word) error {
	return filepath.WalkDir(s.repository, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == s.repository {
			return err
		}
		if slices.Contains([]string{"arena", "tools", "bin", "out", "testdata"}, d.Name()) || strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		folder, _ := filepath.Rel(s.repository, path)
		return s.mentioned(folder, quoted, written)
	})
}

func (s *sources) mentioned(folder string, pattern *regexp.Regexp, written []word) error {
	names, err := filepath.Glob(filepath.Join(s.repository, folder, "*.go"))
	if err != nil {
		return err
	}
	var has []string
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, m := range pattern.FindAllString(string(src), -1) {
			has = append(has, strings.Trim(m, `"`))
		}
	}
	return missing(folder, has, written)
}
