package main

import (
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
