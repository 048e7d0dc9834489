package configfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
