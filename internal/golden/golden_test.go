package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorder is a test that notes what is reported instead of failing.
type recorder struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any) {
	r.errors = append(r.errors, fmt.Sprint(args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) end() {
	for _, f := range r.cleanups {
		f()
	}
}

// with runs f with the flag -update as given.
func with(t *testing.T, updating bool, f func(r *recorder)) *recorder {
	t.Helper()
	defer func(was bool) { *update = was }(*update)
	*update = updating
	r := &recorder{TB: t}
	f(r)
	r.end()
	return r
}

const sample = "about\nthese\n-- b.yaml --\nx: 1\n\n-- b.want --\n-- c.json --\n--\n-- --\n--  --\n--x --\n"

func stored(t *testing.T, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "a.txtar")
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAnArchiveIsReadAndFormatted(t *testing.T) {
	a, err := parse(sample)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"b.yaml": "x: 1\n\n", "b.want": "", "c.json": "--\n-- --\n--  --\n--x --\n"} {
		if i := a.index(name); i < 0 || a.files[i].data != want {
			t.Errorf("%s is number %d of %q", name, i, a.files)
		}
	}
	if a.comment != "about\nthese\n" {
		t.Errorf("the comment is %q", a.comment)
	}
	if got := a.format(); got != sample {
		t.Errorf("it is formatted as %q", got)
	}
}

func TestABadArchiveIsExplained(t *testing.T) {
	for text, want := range map[string]string{
		"-- a --\nx\n-- a --\ny\n": "the file a comes twice",
		"-- a --\nx":               "the last line has no line break",
	} {
		if _, err := parse(text); err == nil || err.Error() != want {
			t.Errorf("%q gave %v, want %s", text, err, want)
		}
	}
}

func TestADifferenceNamesTheFileAndShowsTheLines(t *testing.T) {
	p := stored(t, sample)
	r := with(t, false, func(r *recorder) {
		a := Open(r, p)
		a.Check(r, "b.yaml", "x: 1\n\n")
		a.Check(r, "b.yaml", "x: 2\n\n")
		a.Check(r, "d.json", "{}\n")
		a.Only(r, []string{"b.yaml", "c.json", "e"})
	})
	if len(r.errors) != 3 {
		t.Fatalf("it reported %q", r.errors)
	}
	for i, parts := range [][]string{{"b.yaml in ", "-want +got", "x: 1", "x: 2"}, {"no file d.json", "-update", "{}"}, {"b.want in ", "belongs to no test"}} {
		for _, part := range parts {
			if !strings.Contains(r.errors[i], part) {
				t.Errorf("error %d does not say %q: %s", i, part, r.errors[i])
			}
		}
	}
	if got := read(t, p); got != sample {
		t.Errorf("without -update it wrote %q", got)
	}
}

func TestUpdateRewritesTheArchiveOnceAtTheEnd(t *testing.T) {
	p := stored(t, sample)
	r := with(t, true, func(r *recorder) {
		a := Open(r, p)
		a.Check(r, "b.want", "wrong\n")
		a.Check(r, "a.want", "first\n")
		a.Only(r, []string{"a.want", "b.want", "b.yaml"})
		if got := read(t, p); got != sample {
			t.Errorf("before the end it wrote %q", got)
		}
	})
	if len(r.errors) != 0 {
		t.Errorf("it reported %q", r.errors)
	}
	if got, want := read(t, p), "about\nthese\n-- a.want --\nfirst\n-- b.yaml --\nx: 1\n\n-- b.want --\nwrong\n"; got != want {
		t.Errorf("it wrote %q, want %q", got, want)
	}
}

func TestUpdateMakesAnArchiveAndLeavesAloneWhatIsRight(t *testing.T) {
	p := filepath.Join(t.TempDir(), "new.txtar")
	with(t, true, func(r *recorder) { Open(r, p) })
	if _, err := os.Stat(p); !os.IsNotExist(err) {
		t.Errorf("nothing was checked, and the archive is there: %v", err)
	}
	with(t, true, func(r *recorder) { Open(r, p).Check(r, "a", "x\n") })
	if got := read(t, p); got != "-- a --\nx\n" {
		t.Errorf("it wrote %q", got)
	}
}

func TestUpdateRefusesWhatAnArchiveCannotHold(t *testing.T) {
	p := stored(t, sample)
	r := with(t, true, func(r *recorder) {
		a := Open(r, p)
		a.Check(r, "d", "x")
		a.Check(r, "d", "x\n-- y --\n")
	})
	if len(r.errors) != 2 || read(t, p) != sample {
		t.Errorf("it reported %q and wrote %q", r.errors, read(t, p))
	}
}

func TestASeedIsReadInGosForm(t *testing.T) {
	for text, want := range map[string][]any{
		"go test fuzz v1\n[]byte(\"a\\x00\\n\")\nstring(`b`)\nint(-5)\n":                   {[]byte("a\x00\n"), "b", -5},
		"go test fuzz v1\nint64(-9223372036854775808)\nuint64(7)\nbool(true)\nbyte('\\n')": {int64(-1 << 63), uint64(7), true, byte('\n')},
		"go test fuzz v1\nbyte('\\x80')\nuint8(255)\nfloat64(-0.5)":                        {byte(0x80), byte(255), -0.5},
		"go test fuzz v2\nint(1)": nil, "go test fuzz v1\nint(x+1)": nil, "go test fuzz v1\nrune('a')": nil, "go test fuzz v1\nf()": nil,
	} {
		got, err := seed(text)
		if diff := cmp.Diff(want, got); diff != "" && want != nil || (err == nil) != (want != nil) {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
}

func FuzzSeed(f *testing.F) {
	Seeds(f)
	f.Fuzz(func(t *testing.T, text string) {
		if values, err := seed(text); err == nil && len(values) > strings.Count(text, "\n") {
			t.Errorf("%d values of %q", len(values), text)
		}
	})
}
