package configfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDistanceCountsLettersToChange(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "xyz", 3},
		{"abc", "ac", 1}, {"ac", "abc", 1}, {"abc", "acb", 1}, {"ab", "ba", 1}, {"abcd", "badc", 2}, {"xabc", "bac", 2},
		{"ca", "abc", 3}, // a pair that was swapped is not changed again
		{"abab", "baba", 2}, {"kitten", "sitting", 3}, {"name", "nmae", 1}, {"aab", "aba", 1}, {"aba", "aab", 1}, {"axb", "bxa", 2},
		{strings.Repeat("a", 64), strings.Repeat("a", 63), 1}, {strings.Repeat("a", 65), "a", 64}, {"a", strings.Repeat("a", 65), 64},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("from %q to %q it is %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestReadTakesWhatIsASecretAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if s, mode, err := readSecret(write("good", "s3cret\r\n\n", 0o600)); s != "s3cret" || mode.Perm() != 0o600 || err != nil {
		t.Errorf("got %d bytes, %v, %v", len(s), mode, err)
	}
	if s, _, err := readSecret(write("most", strings.Repeat("x", maxSecret), 0o600)); len(s) != maxSecret || err != nil {
		t.Errorf("the longest: %d bytes, %v", len(s), err)
	}
	for path, want := range map[string]string{
		write("empty", "\n", 0o600):                            "it is empty",
		write("long", strings.Repeat("x", maxSecret+1), 0o600): "it has 65537 bytes, at most 65536 are read",
		dir:                           "it is not a regular file",
		os.DevNull:                    "it is not a regular file",
		filepath.Join(dir, "nowhere"): "no such file or directory",
	} {
		s, _, err := readSecret(path)
		if err == nil || err.Error() != want || s != "" {
			t.Errorf("%s: %q, %v; want %s", filepath.Base(path), s, err, want)
		}
	}
}
