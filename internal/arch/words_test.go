package arch

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// checkWords checks files against a list of words.
func checkWords(t *testing.T, list string, files map[string]string) []Finding {
	t.Helper()
	words, err := parseWords(list)
	if err != nil {
		t.Fatal(err)
	}
	fsys := fstest.MapFS{}
	for name, src := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(src)}
	}
	found, err := CheckWords(fsys, words)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWordsAreFoundWhereTheyAreBanned(t *testing.T) {
	for name, c := range map[string]struct {
		list, file, src string
		want            []string
	}{
		"in a comment":                 {"heeds? | c | follow", "a.go", "package a\n\n// f heeds it.\nfunc f() {}", []string{`a.go:3: the words "heeds": write instead: follow`}},
		"in capitals":                  {"heed | c | follow", "a.go", "package a // HEED", []string{`"HEED"`}},
		"over the end of a line":       {"goes on with | c | resumes", "a.go", "package a\n\n\t// it goes\n\t// on with it\n", []string{`a.go:3: the words "goes // on with"`}},
		"as part of a word":            {"heed | c | follow", "a.go", "package a // heedless", nil},
		"in a string, not a comment":   {"heed | s | follow", "a.go", "package a // heed\nconst b = \"heed\"", []string{"a.go:2"}},
		"in an import":                 {"heed | c | follow", "a.go", "package a\nimport \"heed\"", nil},
		"in a document":                {"goes on with | d | resumes", "docs/a.md", "It goes\non with it.", []string{`docs/a.md:1: the words "goes on with"`}},
		"in a name":                    {"told | i | advertised", "a.go", "package a\nfunc isTold() {}\nvar retold, HTTPTold = 1, 2", []string{`a.go:2: the words "isTold"`, `a.go:3: the words "HTTPTold"`}},
		"in every kind of name":        {"x | i | y", "a.go", "package a\ntype X struct{ x int }\nfunc (x X) X(x int) {\n\tx := 1\n\tfor x, _ := range x {\n\tx:\n\t}\n}", []string{":2", ":2", ":3", ":3", ":3", ":4", ":5", ":6"}},
		"in a use of a name":           {"told | i | advertised", "a.go", "package a\nvar a = b.Told", nil},
		"in a name with its capital":   {`most[A-Z]\w* | i | maxX`, "a.go", "package a\nvar mostRows, mostly, utmostRows = 1, 2, 3", []string{`"mostRows"`}},
		"in test data":                 {"heed | csd | follow", "a/testdata/b/a.md", "heed", nil},
		"in the changelog":             {"heed | csd | follow", "CHANGELOG.md", "heed", nil},
		"in every file":                {`/home/me/\w* | a | a path`, "a/testdata/a.txt", "x\nsee /home/me/a", []string{`a/testdata/a.txt:2: the words "/home/me/a"`}},
		"in a binary":                  {"heed | a | follow", "a.bin", "\x00 heed", nil},
		"in a hidden folder":           {"heed | a | follow", ".git/a", "heed", nil},
		"in a nested module":           {"heed | c | follow", "arena/a.go", "package a // heed", []string{"arena/a.go:1"}},
		"where an exception covers it": {"heed | c | follow | a/...: the law heed; ...: heed them", "a/a.go", "package a // the law heed\n// heed them\n// heed", []string{"a/a.go:3"}},
		"where every line may":         {"heed | c | follow | a.go: *", "a.go", "package a // heed", nil},
		"nowhere, with an exception":   {"\nheed | c | follow | ...: heed", "a.go", "package a", []string{"internal/arch/words.txt:2: no line needs the exception ...: heed"}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, checkWords(t, c.list, map[string]string{c.file: c.src}), c.want)
		})
	}
}

func TestWordListIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ list, want string }{
		"one column":          {"# words\nheed", "words.txt:2: 1 columns"},
		"five columns":        {"a | c | b | a: b | c", "5 columns"},
		"an unknown kind":     {"a | x | b", `where is "x"`},
		"no pattern":          {"( | c | b", "missing closing )"},
		"an exception's text": {"a | c | b | a.go", `"path: text"`},
	} {
		if _, err := parseWords(c.list); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v does not hold %q", name, err, c.want)
		}
	}
	if words, err := Words(); err != nil || len(words) == 0 {
		t.Errorf("%d words, %v", len(words), err)
	}
}

// TestSigns: a file without any of a pattern's signs is not searched for it.
func TestSigns(t *testing.T) {
	for pattern, want := range map[string][]string{
		`told\s+limits?`:     {"limit"},
		`most[A-Z]\w*`:       {"most"},
		`nether|Hither`:      {"nether", "hither"},
		`(which|keys) are`:   {"which", "keys"},
		`(which|keyring) is`: {"which", "keyring"},
		`[a-z]+|x`:           {""},
		`(?:ab)?[0-9]*`:      {""},
		`(abc)+d`:            {"abc"},
	} {
		if got, err := signs(pattern); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", pattern, got, err, want)
		}
	}
}
