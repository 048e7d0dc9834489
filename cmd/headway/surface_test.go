package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatIsUnknownIsBadUsage(t *testing.T) {
	path := owing(t)
	for _, line := range []string{
		"bogus", "gaps bogus", "bulk bogus", "sim bogus", "runs show nope", "runs nope", "status nope", "rate nope",
		"gaps show 99999", "gaps retry 99999", "gaps list --connection nope",
	} {
		args := strings.Fields(line)
		if first := args[0]; first != "bogus" && first != "bulk" && first != "sim" {
			args = append(args, "--state", path)
		}
		if code, out, errs := headway(t, args...); code != exitUsage || errs == "" {
			t.Errorf("headway %s: exit %d, %s%s", line, code, out, errs)
		}
	}
}

func TestALoadTakesNoSharedFolder(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for dir, refused := range map[string]bool{
		"/": true, "/tmp": true, home: true, home + "/": true, filepath.Join(home, "loads"): false,
	} {
		if err := notShared(dir); (err != nil) != refused {
			t.Errorf("%s: %v, refused %v", dir, err, refused)
		} else if err != nil && exitFor(err).code != exitUsage {
			t.Errorf("%s: %v is no bad usage", dir, err)
		}
	}
}

// TestStatusNeedsNoWriteAccess skips as root, for whom nothing is read-only.
func TestStatusNeedsNoWriteAccess(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write anywhere")
	}
	path := owing(t)
	dir := filepath.Dir(path)
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"status", "runs", "rate", "gaps list"} {
		if code, _, errs := headway(t, append(strings.Fields(command), "--state", path)...); code != 0 {
			t.Errorf("%s: exit %d, %s", command, code, errs)
		}
	}
}
