// Package debian finds the programs that tests run, such as nginx, and installs their
// Debian packages where they are missing. Only tests import it.
package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/lockfile"
)

// Require gives the path of the first of the programs that is there. It installs the
// package if there is none, and ends the test if that is impossible.
func Require(t testing.TB, pkg string, names ...string) string {
	t.Helper()
	path, err := Install(pkg, func() string { return look(names) })
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Install gives what find finds. If that is "", it installs the package and looks again.
// Only one process installs at a time: tests of several packages run at once.
func Install(pkg string, find func() string) (path string, err error) {
	if path = find(); path != "" {
		return path, nil
	}
	lock := filepath.Join(os.TempDir(), "headway-debian.lock")
	err = lockfile.With(context.Background(), lock, func(ctx context.Context) error {
		if path = find(); path != "" {
			return nil
		}
		for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", pkg}} {
			if err := apt(ctx, args); err != nil {
				return err
			}
		}
		if path = find(); path == "" {
			return errors.New("the program is not in it")
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("this test needs a program of the package %s (Debian: apt-get install %s): %w", pkg, pkg, err)
	}
	return path, nil
}

// apt runs apt-get. In runlevel 1 the service that comes with a package is not started:
// the test wants the program, not a server at its usual port.
func apt(ctx context.Context, args []string) error {
	ctx, end := context.WithTimeout(ctx, 10*time.Minute)
	defer end()
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(cmd.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("\"apt-get %s\" failed: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// look finds the first of the programs, also where the path of an ordinary user does not lead.
func look(names []string) string {
	for _, name := range names {
		for _, path := range []string{name, "/usr/sbin/" + name} {
			if found, err := exec.LookPath(path); err == nil {
				return found
			}
		}
	}
	return ""
}
