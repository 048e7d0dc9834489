package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// tree parses a small module named example.com/m.
func tree(t *testing.T, files map[string]string) *Tree {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, src := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(src)}
	}
	got, err := Load(fsys, "example.com/m")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// expect fails unless each finding holds its wanted text, in order.
func expect(t *testing.T, got []Finding, want []string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.Contains(got[i].String(), want[i])
	}
	if !ok {
		t.Errorf("got %d findings\n%v\nwant %d\n%v", len(got), got, len(want), strings.Join(want, "\n"))
	}
}

func TestImportLawFindsForbiddenEdges(t *testing.T) {
	imports := func(pkg string, paths ...string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "package %s\n", pkg)
		for _, p := range paths {
			fmt.Fprintf(&b, "import _ %q\n", p)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		file, src string
		want      []string
	}{
		"reason imports the standard library":       {"reason/a.go", imports("reason", "fmt", "time"), nil},
		"reason imports nothing of ours":            {"reason/a.go", imports("reason", "example.com/m/event"), []string{`reason/a.go:2: reason may not import "example.com/m/event": reason is the vocabulary`}},
		"a pure package imports reason":             {"internal/pace/a.go", imports("pace", "math", "example.com/m/reason"), nil},
		"a pure package imports no other":           {"internal/pace/a.go", imports("pace", "example.com/m/retry"), []string{`internal/pace may not import "example.com/m/retry": a pure package`}},
		"a pure package imports no library":         {"retry/a.go", imports("retry", "golang.org/x/time/rate"), []string{`"golang.org/x/time/rate": a pure package`}},
		"a pure package imports no cgo":             {"retry/a.go", imports("retry", "C"), []string{`"C": a pure package`}},
		"signal imports the header grammar":         {"signal/a.go", imports("signal", "github.com/dunglas/httpsfv"), nil},
		"a prefix of a library is not the library":  {"signal/a.go", imports("signal", "github.com/dunglas/httpsfvx"), []string{"signal may not import"}},
		"only signal imports the header grammar":    {"quota/a.go", imports("quota", "github.com/dunglas/httpsfv"), []string{"quota may not import"}},
		"the root composes":                         {"a.go", imports("m", "example.com/m/internal/pace", "example.com/m/event"), nil},
		"the root knows no shell":                   {"a.go", imports("m", "example.com/m/transport"), []string{`. may not import "example.com/m/transport": the facade`}},
		"transport builds on the root":              {"transport/a.go", imports("transport", "example.com/m"), nil},
		"transport knows no daemon":                 {"transport/a.go", imports("transport", "example.com/m/daemon"), []string{"transport goes into other people's programs"}},
		"collect knows no store":                    {"collect/a.go", imports("collect", "example.com/m/store/sqlite"), []string{"imports point inward"}},
		"collect knows no sink":                     {"collect/a.go", imports("collect", "example.com/m/sink/jsonl"), []string{"imports point inward"}},
		"bulk knows no store":                       {"bulk/a.go", imports("bulk", "example.com/m/store/sqlite"), []string{"imports point inward"}},
		"egress knows no fleet":                     {"egress/a.go", imports("egress", "example.com/m/fleet"), []string{"imports point inward"}},
		"connector costs no dependency":             {"connector/a.go", imports("connector", "github.com/goccy/go-yaml"), []string{"must cost them no dependency"}},
		"connector/rest has its libraries":          {"connector/rest/a.go", imports("rest", "github.com/goccy/go-yaml", "example.com/m/connector"), nil},
		"connector/rest knows no collector":         {"connector/rest/a.go", imports("rest", "example.com/m/collect"), []string{"not its business"}},
		"a store implements collect's interfaces":   {"store/sqlite/a.go", imports("sqlite", "example.com/m/collect", "modernc.org/sqlite"), nil},
		"a store knows no daemon":                   {"store/sqlite/a.go", imports("sqlite", "example.com/m/daemon"), []string{"interfaces that its consumers declare"}},
		"a sink knows no store":                     {"sink/jsonl/a.go", imports("jsonl", "example.com/m/store"), []string{"a sink is handed records"}},
		"sim knows no collector":                    {"internal/sim/scenario/a.go", imports("scenario", "example.com/m/collect"), []string{"the simulator runs the pure packages"}},
		"sim knows no store":                        {"internal/sim/a.go", imports("sim", "example.com/m/store"), []string{"the simulator runs the pure packages"}},
		"sim knows no sink":                         {"internal/sim/a.go", imports("sim", "example.com/m/sink/jsonl"), []string{"the simulator runs the pure packages"}},
		"sim knows no command":                      {"internal/sim/a.go", imports("sim", "example.com/m/cmd/headway"), []string{"nothing imports a command"}},
		"the daemon knows no simulator":             {"daemon/a.go", imports("daemon", "example.com/m/internal/sim"), []string{"knows no command and no simulator"}},
		"metrics steer nothing":                     {"internal/metrics/a.go", imports("metrics", "example.com/m/internal/api"), []string{"steers nothing"}},
		"the interface has no library":              {"internal/api/a.go", imports("api", "github.com/spf13/cobra"), []string{"by the standard library alone"}},
		"the interface knows no key ring":           {"internal/api/a.go", imports("api", "example.com/m/internal/keys"), []string{"it shows and steers"}},
		"nothing imports a command":                 {"daemon/a.go", imports("daemon", "example.com/m/cmd/headway/view"), []string{"nothing imports a command"}},
		"not even a test imports a command":         {"internal/pace/a_test.go", imports("pace", "example.com/m/cmd/headway"), []string{"nothing imports a command"}},
		"a test may import what it needs":           {"internal/pace/a_test.go", imports("pace", "example.com/m/retry", "pgregory.net/rapid"), nil},
		"a command imports anything":                {"internal/cli/a.go", imports("cli", "example.com/m/internal/sim", "github.com/spf13/cobra"), nil},
		"a main imports the command line":           {"cmd/headway/a.go", imports("main", "example.com/m/internal/cli"), nil},
		"nothing else imports the command line":     {"daemon/a.go", imports("daemon", "example.com/m/internal/cli"), []string{"nothing imports the command line"}},
		"an end-to-end test shares the harness":     {"e2e/provider/a_test.go", imports("provider_test", "example.com/m/e2e/internal/harness", "example.com/m/internal/sim/serve"), nil},
		"the harness serves a simulated provider":   {"e2e/internal/harness/a.go", imports("harness", "example.com/m/internal/sim/serve", "example.com/m/collect"), nil},
		"the harness does not look inside":          {"e2e/internal/harness/a.go", imports("harness", "example.com/m/store/sqlite"), []string{"from the outside"}},
		"what is not a test has no harness":         {"e2e/provider/a.go", imports("provider", "example.com/m/e2e/internal/harness"), []string{"only the end-to-end tests"}},
		"a command has no harness":                  {"cmd/headway/a.go", imports("main", "example.com/m/e2e/internal/harness"), []string{"only the end-to-end tests"}},
		"not even its test has a harness":           {"cmd/headway/a_test.go", imports("main", "example.com/m/e2e/internal/harness"), []string{"only the end-to-end tests"}},
		"a test fills its disk":                     {"sink/jsonl/a_test.go", imports("jsonl", "example.com/m/internal/fulldisk"), nil},
		"what is not a test fills no disk":          {"cmd/headway/a.go", imports("main", "example.com/m/internal/fulldisk"), []string{"only a test takes space"}},
		"what is not a test has no golden files":    {"cmd/headway/a.go", imports("main", "example.com/m/internal/golden"), []string{"only a test compares"}},
		"what is not a test has no long run":        {"cmd/headway/a.go", imports("main", "example.com/m/internal/longtest"), []string{"only a test has the flag"}},
		"a package that no row covers":              {"extra/a.go", imports("extra"), []string{"extra: no row of the package map covers this package"}},
		"a name that only starts like a row's":      {"collector/a.go", imports("collector"), []string{"collector: no row"}},
		"another module with our path as a prefix":  {"internal/pace/a.go", imports("pace", "example.com/mm/reason"), []string{"internal/pace may not import"}},
		"a nested module is not ours":               {"arena/go.mod", "module example.com/m/arena", nil},
		"a program that go generate runs is exempt": {"internal/pace/gen.go", "//go:build ignore\n\n" + imports("main", "example.com/m/internal/sim"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{c.file: c.src}
			if strings.HasSuffix(c.file, "go.mod") {
				files["arena/a.go"] = imports("arena", "example.com/m/cmd/headway")
			}
			expect(t, Headway.CheckImports(tree(t, files)), c.want)
		})
	}
}

func TestPurityFindsEveryWayOut(t *testing.T) {
	for name, c := range map[string]struct {
		file, src string
		want      []string
	}{
		"arithmetic is pure":            {"internal/pace/a.go", "package pace\nimport \"time\"\nconst tick = time.Second\nfunc At(now time.Duration) time.Duration { return now + tick }", nil},
		"reads the clock":               {"internal/pace/a.go", "package pace\nimport \"time\"\nvar start = time.Now()", []string{"internal/pace/a.go:3: time.Now: the caller reads the clock once"}},
		"reads the clock by a value":    {"internal/pace/a.go", "package pace\nimport \"time\"\nvar clock = time.Now", []string{"time.Now"}},
		"reads it under another name":   {"internal/pace/a.go", "package pace\nimport t \"time\"\nvar start = t.Since(t.Time{})", []string{"time.Since"}},
		"hides it behind a dot":         {"internal/pace/a.go", "package pace\nimport . \"time\"\nvar start = Now()", []string{`dot import of "time"`}},
		"sleeps":                        {"retry/a.go", "package retry\nimport \"time\"\nfunc f() { time.Sleep(1); <-time.After(1); time.NewTimer(1); time.Tick(1) }", []string{"time.Sleep", "time.After", "time.NewTimer", "time.Tick"}},
		"measures what is left":         {"retry/a.go", "package retry\nimport \"time\"\nvar left = time.Until(time.Time{})", []string{"time.Until"}},
		"starts a timer by a context":   {"retry/a.go", "package retry\nimport \"context\"\nvar c, _ = context.WithTimeout(nil, 1)", []string{"context.WithTimeout"}},
		"matches a context's error":     {"reason/a.go", "package reason\nimport \"context\"\nvar e = context.DeadlineExceeded", nil},
		"a local name is not the clock": {"internal/pace/a.go", "package pace\nimport \"time\"\nvar _ time.Duration\nfunc f(time struct{ Now func() }) { time.Now() }", nil},
		"starts a goroutine":            {"breaker/a.go", "package breaker\nfunc f() { go f() }", []string{"breaker/a.go:2: go statement: a pure package starts no goroutine"}},
		"opens a file":                  {"quota/a.go", "package quota\nimport _ \"os\"", []string{`import of "os": a pure package does no I/O`}},
		"runs a program":                {"quota/a.go", "package quota\nimport _ \"os/exec\"", []string{`import of "os/exec"`}},
		"opens a connection":            {"quota/a.go", "package quota\nimport _ \"net\"", []string{`import of "net"`}},
		"calls a server":                {"quota/a.go", "package quota\nimport _ \"net/http\"", []string{`import of "net/http"`}},
		"logs":                          {"control/a.go", "package control\nimport (_ \"log\"; _ \"log/slog\")", []string{`"log"`, `"log/slog"`}},
		"locks":                         {"control/a.go", "package control\nimport (_ \"sync\"; _ \"sync/atomic\")", []string{`"sync"`, `"sync/atomic"`}},
		"prints":                        {"control/a.go", "package control\nimport \"fmt\"\nfunc f() { fmt.Println(fmt.Sprint(1)) }", []string{"fmt.Println"}},
		"reads the zone database":       {"quota/a.go", "package quota\nimport \"time\"\nvar zone, _ = time.LoadLocation(\"Europe/Berlin\")", []string{"time.LoadLocation"}},
		"draws random numbers":          {"retry/a.go", "package retry\nimport _ \"crypto/rand\"", []string{"crypto/rand"}},
		"is handed a source":            {"retry/a.go", "package retry\nimport \"math/rand/v2\"\nfunc f(r *rand.Rand) { r.Int64() }", nil},
		"signal sees headers":           {"signal/a.go", "package signal\nimport \"net/http\"\nfunc f(h http.Header) int { return http.StatusTooManyRequests }", nil},
		"signal calls no server":        {"signal/a.go", "package signal\nimport \"net/http\"\nvar r, _ = http.Get(\"\")", []string{"http.Get: the exception for signal covers only Header"}},
		"signal trims a value":          {"signal/a.go", "package signal\nimport \"net/textproto\"\nvar v = textproto.TrimString(\" \")", nil},
		"signal reads no connection":    {"signal/a.go", "package signal\nimport \"net/textproto\"\nvar c, _ = textproto.Dial(\"\", \"\")", []string{"textproto.Dial: the exception"}},
		"a parser meets the end":        {"signal/a.go", "package signal\nimport \"io\"\nvar end = io.EOF", nil},
		"a parser reads a stream":       {"signal/a.go", "package signal\nimport \"io\"\nvar b, _ = io.ReadAll(nil)", []string{"io.ReadAll"}},
		"a test may":                    {"internal/pace/a_test.go", "package pace\nimport \"time\"\nvar start = time.Now()", nil},
		"a shell may":                   {"transport/a.go", "package transport\nimport (\"time\"; _ \"os\")\nvar start = time.Now()", nil},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, Headway.CheckPure(tree(t, map[string]string{c.file: c.src})), c.want)
		})
	}
}

func TestVirtualTimeFindsTheClock(t *testing.T) {
	const src = "package p\nimport (\"time\"; _ \"os\")\nvar start = time.Now()"
	got := tree(t, map[string]string{"internal/sim/provider/a.go": src, "internal/sim/scenario/b.go": src, "internal/sim/c.go": src})
	expect(t, Headway.CheckVirtual(got), []string{"internal/sim/provider/a.go:3: time.Now", "internal/sim/scenario/b.go:3: time.Now"})
}

func TestEnvironmentIsReadAtTheEdge(t *testing.T) {
	const src = "package p\nimport (\"os\"; \"syscall\")\nvar a = os.Getenv(\"A\")\nvar b, _ = os.LookupEnv(\"B\")\nvar c, _ = syscall.Getenv(\"C\")\nvar d = os.Args"
	got := tree(t, map[string]string{
		"cmd/headway/a.go": src, "daemon/a.go": src, "daemon/config/a.go": src,
		"connector/rest/a_test.go": src, "connector/rest/a.go": src,
	})
	expect(t, Headway.CheckEnvironment(got), []string{
		"connector/rest/a.go:3: os.Getenv", "connector/rest/a.go:4: os.LookupEnv", "connector/rest/a.go:5: syscall.Getenv",
	})
}

func TestPackageCommentStandsOnce(t *testing.T) {
	expect(t, CheckComments(tree(t, map[string]string{
		"once/doc.go":     "// Package once is fine.\npackage once",
		"once/a.go":       "// A detached comment does not count.\n\npackage once",
		"once/a_test.go":  "// Package once is not counted in tests.\npackage once",
		"twice/a.go":      "// Package twice is here.\npackage twice",
		"twice/b.go":      "// Package twice is there.\npackage twice",
		"never/a.go":      "package never",
		"tests/a_test.go": "package tests",
	})), []string{"never: no package comment", "twice: package comments in a.go, b.go"})
}

func TestLengthIsBounded(t *testing.T) {
	lines := func(n int) string { return "package p\n" + strings.Repeat("//\n", n-1) }
	generated := "// Code generated by x. DO NOT EDIT.\n\n" + lines(600)
	expect(t, CheckLength(tree(t, map[string]string{
		"p/at.go": lines(MaxLines), "p/over.go": lines(MaxLines + 1), "p/over_test.go": lines(MaxLines + 1), "p/gen.go": generated,
	})), []string{"p/over.go: 501 lines, at most 500"})
}

func TestNamesAreNouns(t *testing.T) {
	expect(t, CheckNames(tree(t, map[string]string{
		"internal/pace/gcra.go":         "package pace",
		"internal/pace/types.go":        "package pace",
		"internal/pace/crash_helper.go": "package pace",
		"internal/pace/utility.go":      "package pace",
		"internal/sim/util/a.go":        "package util",
		"internal/sim/clock/a.go":       "package common",
		"internal/sim/b/helper_test.go": "package b_test",
	})), []string{
		`sim/util: folder named "util"`,
		`pace/crash_helper.go: file named "helper"`,
		`pace/types.go: file named "types"`,
		`sim/b/helper_test.go: file named "helper"`,
		`sim/clock/a.go: package named "common"`,
	})
}

func TestPublicPackagesSayHowStableTheyAre(t *testing.T) {
	files := map[string]string{
		"a/doc.go":           "// Package a is fine.\n//\n// Stability: stable.\npackage a",
		"b/doc.go":           "// Package b says nothing.\npackage b",
		"c/doc.go":           "// Package c says it twice.\n//\n// Stability: stable.\n// Stability: settling.\npackage c",
		"d/doc.go":           "// Package d says something else.\n//\n// Stability: good.\npackage d",
		"internal/e/doc.go":  "// Package e is nobody's business.\npackage e",
		"a/internal/f/f.go":  "// Package f too.\npackage f",
		"cmd/headway/g.go":   "// Headway is a command.\npackage main",
		"e2e/provider/h.go":  "// Package h is for tests.\npackage h",
		"tests/only_test.go": "package only",
	}
	expect(t, CheckPublic(tree(t, files)), []string{"b: stability is []", `c: stability is ["stable" "settling"]`, `d: stability is ["good"]`})

	files = map[string]string{}
	for i := range MaxPublic + 1 {
		files[fmt.Sprintf("p%d/doc.go", i)] = "// Package p is here.\n//\n// Stability: experimental.\npackage p"
	}
	expect(t, CheckPublic(tree(t, files)), []string{"33 public packages, at most 32"})
	delete(files, "p0/doc.go")
	expect(t, CheckPublic(tree(t, files)), nil)
}

func TestNoInternalTypeLeaksWithoutAName(t *testing.T) {
	const inner = "package inner\ntype A struct{ B B; c C }\ntype B int\ntype C int\ntype D[T any] struct{}\nfunc (*A) Do(D[int]) {}\nfunc (A) do(C) {}"
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"a field":              {"type T struct{ F []*inner.B }", []string{"p/a.go:3: p.T names internal/inner.B"}},
		"an unexported field":  {"type T struct{ f inner.B }", nil},
		"an embedded type":     {"type T struct{ inner.B }", []string{"p.T names"}},
		"a result":             {"func F() (map[string]inner.B, error) { return nil, nil }", []string{"p.F names"}},
		"a method's parameter": {"type T int\nfunc (*T) M(b ...inner.B) {}", []string{"p.T names"}},
		"an unexported method": {"type T int\nfunc (*T) m(inner.B) {}\nfunc f(inner.B) {}", nil},
		"of an interface":      {"type T interface{ M(inner.B) }", []string{"p.T names"}},
		"a variable":           {"var V inner.B", []string{"p.V names"}},
		"inside of a function": {"func F() { var b inner.B; _ = b }", nil},
		"with a name":          {"type B = inner.B\ntype T struct{ F inner.B }", nil},
		"what a name brings":   {"type A = inner.A", []string{"internal/inner/a.go:2: internal/inner.A names internal/inner.B", "internal/inner/a.go:6: internal/inner.A names internal/inner.D"}},
	} {
		t.Run(name, func(t *testing.T) {
			src := "package p\nimport \"example.com/m/internal/inner\"\n" + c.src
			expect(t, CheckLeaks(tree(t, map[string]string{"internal/inner/a.go": inner, "p/a.go": src})), c.want)
		})
	}
}

func TestDependenciesEachHaveTheirReason(t *testing.T) {
	const mod = `{"Require":[{"Path":"a.org/kept"},{"Path":"a.org/missing"},{"Path":"a.org/twice"},{"Path":"a.org/bare"},{"Path":"a.org/far","Indirect":true}]}`
	const page = "| module | why | rejected |\n|---|---|---|\n" +
		"| `a.org/kept` | works | others |\n" +
		"| `a.org/twice` | works | others |\n| `a.org/twice` | works | others |\n" +
		"| `a.org/bare` |  | others |\n" +
		"| `a.org/far` | works | others |\n| `a.org/gone` | works | others |\n"
	got, err := CheckDependencies([]byte(mod), page)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, []string{
		"docs/dependencies.md: a.org/far is not a direct requirement",
		"docs/dependencies.md: a.org/gone is not a direct requirement",
		"go.mod: a.org/missing has 0 rows",
		"go.mod: a.org/twice has 2 rows",
		"docs/dependencies.md: the row of a.org/bare has an empty or missing cell",
	})
	if _, err := CheckDependencies([]byte("module x"), page); err == nil {
		t.Error("a go.mod that is not JSON was accepted")
	}
}

func TestLoadNamesTheFileThatDoesNotParse(t *testing.T) {
	_, err := Load(fstest.MapFS{"internal/pace/a.go": {Data: []byte("package pace\nfunc")}}, "example.com/m")
	if err == nil || !strings.Contains(err.Error(), "internal/pace/a.go:2") {
		t.Errorf("error %v does not name internal/pace/a.go:2", err)
	}
}

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
