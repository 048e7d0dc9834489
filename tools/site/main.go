// Command site writes the documents of the repository as a small web site: it works from a disk
// or any server, with a search that needs no server. It fails when a link leads nowhere.
//
//	go run ./site REPOSITORY FOLDER
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	stdhtml "html"
	"html/template"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "site: want the folder of the repository, and that of the site")
		os.Exit(64)
	}
	pages, err := build(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %d pages\n", filepath.Join(os.Args[2], "index.html"), pages)
}

// code is where files are shown that are not on the site.
const code = "https://github.com/headway-go/headway/blob/main/"

// menu is what the pages link to, by what a reader wants.
var menu = []struct {
	Title string
	Pages []entry
}{
	{"Begin", []entry{
		{"Overview", "README.md"}, {"Your API in ten minutes", "docs/guides/collect.md"}, {"Your agents in five", "docs/guides/llm.md"},
		{"Your http.Client in two", "docs/guides/client.md"}, {"Any program", "docs/guides/run.md"}, {"What to do when", "docs/guides/when.md"},
	}},
	{"Run it", []entry{
		{"The daemon", "docs/guides/serve.md"}, {"The console", "docs/guides/console.md"}, {"Fleets", "docs/guides/fleet.md"},
		{"Loading rows", "docs/guides/bulk.md"}, {"Profiles", "docs/guides/profiles.md"},
	}},
	{"Look it up", []entry{{"Files, events, metrics", "docs/reference.md"}, {"Commands", "docs/commands.md"}, {"Changes", "CHANGELOG.md"}}},
	{"How it works", []entry{
		{"The law", "docs/law.md"}, {"What was tried on it", "docs/law-tried.md"}, {"Loads", "docs/bulk.md"}, {"The arena", "docs/arena.md"}, {"Figures", "docs/performance.md"},
		{"Testing", "docs/testing.md"}, {"Dependencies", "docs/dependencies.md"}, {"Contributing", "CONTRIBUTING.md"},
	}},
}

type entry struct{ Title, Path string }

// A page is a document on its way to the site.
type page struct {
	path  string // in the repository
	title string
	ids   []string
	links []string // as they are written: the target's page, with #id
	body  template.HTML
	text  string // the body again, for the search
}

// build writes the site, and gives the number of pages.
func build(repository, folder string) (int, error) {
	pages, err := read(repository)
	if err != nil {
		return 0, err
	}
	if err := os.RemoveAll(folder); err != nil {
		return 0, err
	}
	var broken []error
	for _, p := range pages {
		for _, link := range p.links {
			if !leads(repository, pages, link) {
				broken = append(broken, fmt.Errorf("%s: the link to %s leads nowhere", p.path, link))
			}
		}
		to := filepath.Join(folder, filepath.FromSlash(out(p.path)))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return 0, err
		}
		up := strings.Repeat("../", strings.Count(out(p.path), "/"))
		b := &bytes.Buffer{}
		err := layout.Execute(b, map[string]any{"Title": p.title, "Body": p.body, "Up": up, "Menu": menu, "Path": p.path, "Code": code})
		if err != nil {
			return 0, err
		}
		if err := os.WriteFile(to, b.Bytes(), 0o644); err != nil {
			return 0, err
		}
	}
	for _, part := range menu {
		for _, e := range part.Pages {
			if pages[e.Path] == nil {
				broken = append(broken, fmt.Errorf("the menu has %s, which is not there", e.Path))
			}
		}
	}
	if err := search(pages, folder); err != nil {
		return 0, err
	}
	pictures, err := filepath.Glob(filepath.Join(repository, "docs", "*", "*.svg"))
	screens, _ := filepath.Glob(filepath.Join(repository, "docs", "*.png")) // the pattern is the same kind
	for _, from := range append(pictures, screens...) {
		b, err := os.ReadFile(from)
		if err != nil {
			return 0, err
		}
		name, _ := filepath.Rel(repository, from)
		if err := os.WriteFile(makeFor(filepath.Join(folder, name)), b, 0o644); err != nil {
			return 0, err
		}
	}
	return len(pages), errors.Join(append(broken, err)...)
}

func makeFor(file string) string {
	_ = os.MkdirAll(filepath.Dir(file), 0o755) // writing the file says what is wrong
	return file
}

// read renders all documents.
func read(repository string) (map[string]*page, error) {
	names := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	err := fs.WalkDir(os.DirFS(repository), "docs", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".md") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	pages := map[string]*page{}
	for _, name := range names {
		src, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		if pages[name], err = render(name, src); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return pages, nil
}

func render(name string, src []byte) (*page, error) {
	p := &page{path: name, title: name}
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(html.WithUnsafe()), // the text is our own
		goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	doc := md.Parser().Parse(text.NewReader(src), parser.WithContext(parser.NewContext(parser.WithIDs(&slugs{page: p}))))
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 1 && p.title == name {
				p.title = plain(n, src)
			}
		case *ast.Link:
			n.Destination = []byte(p.link(string(n.Destination)))
		case *ast.Image:
			p.links = append(p.links, path.Join(path.Dir(name), string(n.Destination)))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, err
	}
	b := &bytes.Buffer{}
	if err := md.Renderer().Render(b, src, doc); err != nil {
		return nil, err
	}
	p.body, p.text = template.HTML(b.String()), b.String()
	return p, nil
}

var (
	tags   = regexp.MustCompile(`(?s)<[^>]*>`)
	spaces = regexp.MustCompile(`\s+`)
	headed = regexp.MustCompile(`(?s)<h[1-6] id="([^"]*)">(.*?)</h[1-6]>`)
)

// visible is what a reader sees of HTML, on one line.
func visible(text string) string {
	return stdhtml.UnescapeString(spaces.ReplaceAllString(tags.ReplaceAllString(text, " "), " "))
}

// plain is the text of a heading.
func plain(n ast.Node, src []byte) string {
	b := &strings.Builder{}
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(src))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// link notes where a link of the page leads, and gives it as the site has it.
func (p *page) link(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" {
		return to
	}
	target := p.path
	if u.Path != "" {
		target = path.Join(path.Dir(p.path), u.Path)
	}
	id := ""
	if u.Fragment != "" {
		id = "#" + u.Fragment
	}
	p.links = append(p.links, target+id)
	if !strings.HasSuffix(target, ".md") || strings.HasPrefix(target, "..") {
		return code + target + id
	}
	up := strings.Repeat("../", strings.Count(out(p.path), "/"))
	return up + out(target) + id
}

// leads reports whether a link leads to a page and a heading of it, or to a file.
func leads(repository string, pages map[string]*page, link string) bool {
	target, id, _ := strings.Cut(link, "#")
	if p := pages[target]; p != nil {
		return id == "" || slices.Contains(p.ids, id)
	}
	_, err := os.Stat(filepath.Join(repository, filepath.FromSlash(target)))
	return err == nil && id == "" && !strings.HasPrefix(target, "..")
}

// out is the file of a page on the site.
func out(name string) string {
	if name == "README.md" {
		return "index.html"
	}
	return strings.TrimPrefix(strings.TrimSuffix(name, ".md")+".html", "/")
}

// slugs gives headings the ids that GitHub gives them.
type slugs struct{ page *page }

func (s *slugs) Generate(value []byte, _ ast.NodeKind) []byte {
	b := &strings.Builder{}
	for _, r := range strings.ToLower(string(value)) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	id := b.String()
	for n := 1; slices.Contains(s.page.ids, id); n++ {
		id = fmt.Sprintf("%s-%d", b, n)
	}
	s.Put([]byte(id))
	return []byte(id)
}

func (s *slugs) Put(id []byte) { s.page.ids = append(s.page.ids, string(id)) }

// search writes what the search looks through: a script, for a page on a disk can fetch nothing.
func search(pages map[string]*page, folder string) error {
	type found struct {
		Title string `json:"t"`
		Path  string `json:"p"`
		Text  string `json:"x"`
	}
	var all []found
	for _, p := range pages {
		at, title := out(p.path), p.title
		rest := p.text
		for {
			m := headed.FindStringSubmatchIndex(rest)
			end := len(rest)
			if m != nil {
				end = m[0]
			}
			if text := strings.TrimSpace(visible(rest[:end])); text != "" {
				all = append(all, found{title, at, text})
			}
			if m == nil {
				break
			}
			if at = out(p.path) + "#" + rest[m[2]:m[3]]; rest[m[0]:m[0]+3] != "<h1" {
				title = p.title + ": " + visible(rest[m[4]:m[5]])
			}
			rest = rest[m[1]:]
		}
	}
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(a.Path, b.Path) }) // pages come in no order
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "search.js"), append(append([]byte("const pages = "), b...), ";\n"...), 0o644)
}

var layout = template.Must(template.New("page").Funcs(template.FuncMap{"out": out}).Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}} - Headway</title>
<style>
:root { color-scheme: light dark; --line: light-dark(#d0d7de, #3d444d); --soft: light-dark(#f6f8fa, #161b22); --text: light-dark(#1f2328, #e6edf3); --link: light-dark(#0550ae, #79c0ff); --page: light-dark(#fff, #0d1117); }
* { box-sizing: border-box; }
body { margin: 0; font: 16px/1.6 system-ui, sans-serif; color: var(--text); background: var(--page); display: grid; grid-template-columns: 16rem minmax(0, 1fr); }
a { color: var(--link); }
nav { position: sticky; top: 0; height: 100vh; overflow: auto; padding: 1.5rem 1rem; border-right: 1px solid var(--line); background: var(--soft); }
nav h2 { font-size: .8rem; margin: 1.2rem 0 .3rem; }
nav ul { list-style: none; margin: 0; padding: 0; }
#results small { display: block; overflow-wrap: anywhere; padding: 0 .5rem .3rem; }
nav a { display: block; padding: .15rem .5rem; text-decoration: none; border-radius: 4px; }
nav a[aria-current], nav a:hover { background: var(--line); color: var(--text); }
main { padding: 1.5rem 2rem 4rem; max-width: 62rem; width: 100%; }
input { width: 100%; font: inherit; padding: .3rem .5rem; color: inherit; background: var(--page); border: 1px solid var(--line); border-radius: 4px; }
pre { background: var(--soft); border: 1px solid var(--line); padding: .8rem; overflow: auto; border-radius: 6px; font-size: 14px; line-height: 1.45; }
code { font: .9em ui-monospace, monospace; overflow-wrap: anywhere; }
pre code { overflow-wrap: normal; font-size: 1em; }
td:first-child code { white-space: nowrap; }
table { display: block; overflow: auto; border-collapse: collapse; font-size: 15px; }
th, td { border: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
th { background: var(--soft); }
img { max-width: 100%; background: #fff; }
h1, h2, h3 { line-height: 1.25; } h2 { border-bottom: 1px solid var(--line); padding-bottom: .3rem; margin-top: 2.2rem; }
.menu { display: none; }
.skip { position: absolute; left: -99rem; } .skip:focus { left: 1rem; top: 1rem; background: var(--page); padding: .5rem; }
@media (max-width: 55rem) { body { display: flex; flex-direction: column; } nav { order: 2; position: static; height: auto; border: 0; border-top: 1px solid var(--line); } main { padding: 1rem; } .menu { display: block; padding: .5rem 1rem; border-bottom: 1px solid var(--line); background: var(--soft); } }
@media (max-width: 40rem) { td:first-child code { white-space: normal; } td { min-width: 7rem; } }
</style>
<a class="skip" href="#main">To the text</a>
<a class="menu" href="#menu">Pages and search</a>
<nav id="menu" aria-label="Pages">
<a href="{{.Up}}index.html"><strong>Headway</strong></a>
<p hidden id="finder"><label for="words">Search</label> <input id="words" type="search" autocomplete="off"></p>
<ul id="results" aria-live="polite"></ul>
{{range .Menu}}<h2>{{.Title}}</h2><ul>{{range .Pages}}<li><a href="{{$.Up}}{{out .Path}}"{{if eq .Path $.Path}} aria-current="page"{{end}}>{{.Title}}</a></li>{{end}}</ul>{{end}}
</nav>
<main id="main">
{{.Body}}
<p><small><a href="{{.Code}}{{.Path}}">{{.Path}}</a></small></p>
</main>
<script src="{{.Up}}search.js"></script>
<script>
document.getElementById("finder").hidden = false;
const up = {{.Up}}, list = document.getElementById("results"), words = document.getElementById("words");
words.addEventListener("input", () => {
  const all = words.value.toLowerCase().split(/\s+/).filter(w => w);
  list.replaceChildren();
  if (!all.length) return;
  const score = p => { let n = 0; for (const w of all) { const t = p.t.toLowerCase().includes(w), x = p.x.toLowerCase().split(w).length - 1; if (!t && !x) return 0; n += (t ? 100 : 0) + Math.min(x, 50); } return n; };
  const found = pages.map(p => [score(p), p]).filter(f => f[0]).sort((a, b) => b[0] - a[0]).slice(0, 12);
  for (const [, p] of found) {
    const a = document.createElement("a"), li = document.createElement("li"), small = document.createElement("small");
    const i = Math.max(0, p.x.toLowerCase().indexOf(all[0]) - 30);
    a.href = up + p.p; a.textContent = p.t; small.textContent = p.x.slice(i, i + 90);
    li.append(a, small); list.append(li);
  }
  if (!found.length) { const li = document.createElement("li"); li.textContent = "no page has all these words"; list.append(li); }
});
</script>
</html>
`))
