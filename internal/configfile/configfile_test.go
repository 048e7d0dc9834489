package configfile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/configfile"
)

const canary = "hunter2"

// fields is what the tests read.
type fields struct {
	Text, Choice string
	On           bool
	Int          int
	Number       float64
	Duration     time.Duration
	Size         int64
	Texts        []string
	Words        map[string]string
	Secret       configfile.Secret
	Value        configfile.Secret
}

// read reads a file with one key for each method.
func read(src string, env configfile.Env) (f fields, warnings []string, err error) {
	root, file := configfile.Parse("f.yaml", []byte(src), configfile.Options{What: "test", Want: "keys such as text", Env: env})
	s := root.Section()
	s.Text("text", &f.Text)
	configfile.Choice(s, "choice", &f.Choice, map[string]string{"yes": "y", "no": "n"}, "yes", "no")
	s.Bool("on", &f.On)
	configfile.Int(s, "int", &f.Int, 1, 9)
	s.Number("number", &f.Number, 0, 1)
	s.Duration("duration", &f.Duration, time.Second, time.Hour)
	s.Size("size", &f.Size, 1<<10, 1<<20)
	f.Texts, f.Words = s.Texts("texts"), s.Words("words")
	f.Secret, f.Value = s.Secret("secret"), s.Value("value")
	b := s.Below("below")
	b.Text("text", &f.Text)
	b.Require("more", "a text")
	b.Done()
	s.Done()
	return f, file.Warnings(), file.Err()
}

// vars are what the tests' files refer to.
func vars(name string) (string, bool) {
	v, ok := map[string]string{"TOKEN": canary, "EMPTY": "", "LINES": canary + "\nx"}[name]
	return v, ok
}

func TestEveryFieldIsRead(t *testing.T) {
	f, _, err := read(`text: a
choice: "yes"
on: true
int: 9
number: 0.5
duration: 90s
size: 2KiB
texts: [a, b]
words: {42: c, d: e}
`, nil)
	want := fields{
		Text: "a", Choice: "y", On: true, Int: 9, Number: 0.5, Duration: 90 * time.Second, Size: 2048,
		Texts: []string{"a", "b"}, Words: map[string]string{"42": "c", "d": "e"},
	}
	if diff := cmp.Diff(want, f, cmp.Comparer(func(a, b configfile.Secret) bool { return a.Reveal() == b.Reveal() })); diff != "" || err != nil {
		t.Errorf("%v -want +got:\n%s", err, diff)
	}
}

func TestEachProblemIsNamedWhereItIs(t *testing.T) {
	const wantSecret = "want a reference such as ${NAME} or ${file:PATH}: a secret does not stand in the file"
	for _, tt := range []struct{ src, want string }{
		{"", "f.yaml: is empty: it needs keys such as text"},
		{"x", "f.yaml:1:1: is a text; want a mapping with keys such as text"},
		{"\xff", "f.yaml: is not UTF-8 text: save it as UTF-8"},
		{"text: \"\x00\"", "f.yaml: holds a zero byte: it is not a text file"},
		{"text: \ue001", "f.yaml: holds the private characters U+E001 or U+E002: remove them"},
		{strings.Repeat("#", 1<<20+1), "f.yaml: has more than 1048576 bytes"},
		{strings.Repeat("{a: ", 40), "f.yaml:1:129: is nested more than 32 levels deep: a test needs fewer than ten"},
		{"text: [", "f.yaml:1:7: is not valid YAML here: sequence end token ']' not found"},
		{"text: a\n---\ntext: b", "f.yaml:3:1: holds a second document: write each test into a file of its own"},
		{"text: *a", "f.yaml:1:7: text: is an anchor or alias, which test files do not have: write the value out"},
		{"text: !x a", "f.yaml:1:7: text: has a YAML tag, which test files do not have: leave the tag out"},
		{"<<: {}", "f.yaml:1:1: <<: merges another mapping, which test files do not have: write the values out"},
		{"null: a", "f.yaml:1:1: ?: is not a plain key: write a name"},
		{`"": a`, `f.yaml:1:1: "": has no name: remove the entry`},
		{"txet: a", "f.yaml:1:1: txet: is not a field here: did you mean text?"},
		{"zzz: a", "f.yaml:1:1: zzz: is not a field here: want one of text, choice, on, int, number, duration, size, texts, words, secret, value, below"},
		{"text: a\ntext: b", "f.yaml:2:1: text: is set twice, first at line 1: remove one"},
		{"text: 5", "f.yaml:1:7: text: is 5; want a text"},
		{"text:", "f.yaml:1:7: text: has no value; want a text"},
		{"text: ''", "f.yaml:1:7: text: is empty; want a text"},
		{"text: a ${TOKEN}", "f.yaml:1:7: text: refers to ${TOKEN}, which is replaced in secrets only; want the value written out"},
		{"choice: maybe", `f.yaml:1:9: choice: is "maybe"; want one of yes, no`},
		{"on: 1", "f.yaml:1:5: on: is 1; want true or false"},
		{"int: 10", "f.yaml:1:6: int: is 10; want a whole number from 1 to 9"},
		{"int: 05", "f.yaml:1:6: int: is 05; want a whole number from 1 to 9"},
		{"int: 0x5", "f.yaml:1:6: int: is 0x5; want a whole number from 1 to 9"},
		{"number: 1.1", "f.yaml:1:9: number: is 1.1; want a number from 0 to 1"},
		{"duration: 5", "f.yaml:1:11: duration: is 5; want a duration with a unit, such as 250ms, 20s or 15m"},
		{"duration: 2h", `f.yaml:1:11: duration: is "2h"; want from 1s to 1h`},
		{"size: 2", "f.yaml:1:7: size: is 2; want a size from 1KiB to 1MiB, with its unit"},
		{"size: 2MiB", `f.yaml:1:7: size: is "2MiB"; want a size from 1KiB to 1MiB, with its unit`},
		{"texts: a", `f.yaml:1:8: texts: is "a"; want a list`},
		{"texts: [a, 5]", "f.yaml:1:12: texts[1]: is 5; want a text"},
		{"words: [a]", "f.yaml:1:8: words: is a list; want a mapping"},
		{"below: {}", "f.yaml:1:8: below.more: is missing; want a text"},
		{"secret: hunter2", "f.yaml:1:9: secret: is written out; " + wantSecret},
		{"secret: 5", "f.yaml:1:9: secret: is written out; " + wantSecret},
		{"secret: [hunter2]", "f.yaml:1:9: secret: is a list; " + wantSecret},
		{"secret: ${NONE}", "f.yaml:1:9: secret: needs the environment variable NONE, which is not set"},
		{"secret: ${NONE} ${NO} ${NONE}", "f.yaml:1:9: secret: needs the environment variables NONE, NO, which are not set"},
		{"secret: ${EMPTY}", `f.yaml:1:9: secret: is "${EMPTY}", which is set but empty`},
		{"secret: ${LINES}", `f.yaml:1:9: secret: is "${LINES}", whose value has a line break or another control character`},
		{"secret: '${a-b}'", "f.yaml:1:9: secret: has a ${…} that is not a reference: write ${NAME} with letters, digits and underscores, ${file:PATH}, or $${ for a literal ${"},
		{"secret: '${TOKEN'", "f.yaml:1:9: secret: has a ${…} that is not a reference: write ${NAME} with letters, digits and underscores, ${file:PATH}, or $${ for a literal ${"},
		{"secret: ${file:/nonexistent}", `f.yaml:1:9: secret: is file "/nonexistent", which cannot be used: no such file or directory; want a file that holds the secret and nothing else`},
		{"secret: {file: /nonexistent}", `f.yaml:1:9: secret: is file "/nonexistent", which cannot be used: no such file or directory; want a file that holds the secret and nothing else`},
		{"secret: {env: NONE}", "f.yaml:1:9: secret: needs the environment variable NONE, which is not set"},
		{"secret: {env: TOKEN, file: x}", "f.yaml:1:9: secret: has env and file; want one of them"},
		{"secret: {evn: TOKEN}", "f.yaml:1:10: secret.evn: is not a field here: did you mean env?"},
		{"secret: {}", "f.yaml:1:9: secret: has neither env nor file; " + wantSecret},
		{"secret: {env: [hunter2]}", "f.yaml:1:15: secret.env: is a list; want a name"},
		{"value: [hunter2]", "f.yaml:1:8: value: is a list; want a text, or a reference such as ${NAME}"},
	} {
		_, _, err := read(tt.src, vars)
		if e, ok := errors.AsType[*configfile.Error](err); !ok || e.Problems[0].Error() != tt.want {
			t.Errorf("%.60q:\ngot  %v\nwant %s", tt.src, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("%.60q: the secret is in the error: %v", tt.src, err)
		}
	}
}

func TestSecretsPrintAsTheyWereWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(canary+"\n"), 0o604); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o604); err != nil { // whatever the mask of new files
		t.Fatal(err)
	}
	for _, tt := range []struct{ src, written, value string }{
		{"secret: ${TOKEN}", "${TOKEN}", canary},
		{"{secret: ${TOKEN}}", "${TOKEN}", canary},
		{"secret: Key ${TOKEN} $${TOKEN}", "Key ${TOKEN} $${TOKEN}", "Key " + canary + " ${TOKEN}"},
		{"secret: ${file:" + file + "}", "${file:" + file + "}", canary},
		{"secret: {file: " + file + "}", "{file: " + file + "}", canary},
		{"secret: {env: TOKEN}", "{env: TOKEN}", canary},
		{"value: plain", "plain", "plain"},
		{"value: a ${TOKEN}", "a ${TOKEN}", "a " + canary},
		{"text: a", "", ""},
	} {
		f, warnings, err := read(tt.src, vars)
		s := f.Secret
		if f.Value.Given() {
			s = f.Value
		}
		if err != nil || s.Reveal() != tt.value || s.String() != tt.written || s.Given() != (tt.value != "") {
			t.Errorf("%q: %v, as expected: %t, %v", tt.src, s, s.Reveal() == tt.value, err)
		}
		b, err := json.Marshal(struct{ S configfile.Secret }{s})
		printed := fmt.Sprintf("%v %+v %#v %s %q %x", s, s, s, s, s, s)
		if err != nil || strings.Contains(string(b)+printed, canary) {
			t.Errorf("%q prints as %s, marshals as %s, %v", tt.src, printed, b, err)
		}
		if strings.Contains(tt.src, "file") != slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "chmod 600") }) {
			t.Errorf("%q: warnings %q", tt.src, warnings)
		}
	}
}

func TestProblemsAreInTheOrderOfTheFileAndBounded(t *testing.T) {
	_, _, err := read("zzz: 1\nint: 0\non: 0\n", nil)
	want := "f.yaml:1:1: zzz: is not a field here: want one of text, choice, on, int, number, duration, size, texts, words, secret, value, below\n" +
		"f.yaml:2:6: int: is 0; want a whole number from 1 to 9\nf.yaml:3:5: on: is 0; want true or false"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if p, ok := errors.AsType[configfile.Problem](err); !ok || p.Field != "zzz" {
		t.Errorf("the first problem is %+v", p)
	}
	// A key that is set twice hides nothing that is wrong with its first value.
	_, _, err = read("int: 0\nint: 5\n", nil)
	if want := "f.yaml:1:6: int: is 0; want a whole number from 1 to 9\nf.yaml:2:1: int: is set twice, first at line 1: remove one"; err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	var src strings.Builder
	for i := range 60 {
		fmt.Fprintf(&src, "x%d: 1\n", i)
	}
	_, _, err = read(src.String(), nil)
	if e, ok := errors.AsType[*configfile.Error](err); !ok || len(e.Problems) != 51 || e.Problems[50].Message != "10 more problems are not shown" {
		t.Errorf("got %v", err)
	}
}

func TestAFileIsReadFromTheDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte("text: a"), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]string{0: "text: a", 7: "text: a", 3: "text"} {
		if src, err := configfile.Load(path, configfile.Options{MaxBytes: limit}); string(src) != want || err != nil {
			t.Errorf("at most %d bytes: %q, %v", limit, src, err)
		}
	}
	if _, err := configfile.Load(path+".none", configfile.Options{}); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), path+".none: cannot be read: ") {
		t.Errorf("got %v", err)
	}
}

// TestWhatIsTooDeepIsNotParsed: one problem, at its place, and nothing else of the
// file is looked at.
func TestWhatIsTooDeepIsNotParsed(t *testing.T) {
	const text = "text: a\n"
	for name, c := range map[string]struct{ file, at string }{
		"many brackets side by side": {"texts: [" + strings.Repeat("[],", 100) + "]", ""},
		"as deep as may be":          {"texts: " + strings.Repeat("[", 32) + strings.Repeat("]", 32), ""},
		"one more":                   {"texts: " + strings.Repeat("[", 33) + strings.Repeat("]", 33), "f.yaml:1:40"},
		"brackets in a comment":      {text + "# " + strings.Repeat("[", 100), ""},
		"brackets in a text":         {"text: \"" + strings.Repeat("[", 100) + "\"", ""},
		"a line that is long":        {"text: " + strings.Repeat("x", 10_000), ""},
		"lists in lists":             {text + strings.Repeat("- ", 60), "f.yaml:2:65"},
		"keys in keys":               {text + strings.Repeat("? ", 60), "f.yaml:2:65"},
		"columns of blanks":          {"below:\n" + strings.Repeat(" ", 300) + "x: 1\n", "f.yaml:2:301"},
	} {
		_, _, err := read(c.file, nil)
		deep := err != nil && strings.Contains(err.Error(), "is nested more than 32 levels deep")
		if deep != (c.at != "") || deep && (!strings.HasPrefix(err.Error(), c.at+": ") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, want one problem at %q", name, err, c.at)
		}
	}
}

// TestWhatIsNotYAMLHasItsPlace as the parser has it.
func TestWhatIsNotYAMLHasItsPlace(t *testing.T) {
	for file, at := range map[string]string{
		"below: {m: {}}\ntexts: {burst: 1\n": "f.yaml:2:8: ",
		"below: {m: {}}\n  - x: 1\n":         "f.yaml:2:3: ",
		"a: \"b":                             "f.yaml:1:4: ",
	} {
		_, _, err := read(file, nil)
		if err == nil || !strings.HasPrefix(err.Error(), at+"is not valid YAML here: ") {
			t.Errorf("%q: %v, want it at %s", file, err, at)
		}
	}
}
