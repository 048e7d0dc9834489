package powercut

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Ack is something that was acknowledged, with the step at which it was.
type Ack[A any] struct {
	step int
	What A
}

// Life is one run of a program on a disk. Before is what was acknowledged before the run: the
// program must find it.
type Life[A any] struct {
	*Disk
	Before []A
	acks   []Ack[A]
}

// Ack notes that something is acknowledged now. From here on it must survive.
func (l *Life[A]) Ack(what A) { l.acks = append(l.acks, Ack[A]{l.Steps(), what}) }

// until returns what was acknowledged before the run and in its first n steps.
func (l *Life[A]) until(n int) []A {
	all := slices.Clip(l.Before)
	for _, a := range l.acks {
		if a.step <= n {
			all = append(all, a.What)
		}
	}
	return all
}

// Plan says how often the power is cut.
type Plan struct {
	// Draws is how often, at each step, chance decides which of the unsynced writes survive.
	// The case that none survives is always tried.
	Draws int
	// Stride is the number of steps between two kills of the first run; 0 is 1. After each
	// kill, the power is cut at every step of the second run.
	Stride int
}

// Test runs first, and cuts the power after each of its steps. Then later runs on what
// survived. Test also kills first after some of its steps. A kill leaves all writes visible,
// and none safer than before. Then later runs, the power is cut after each step of that run,
// and later runs again. Each run of later must find what was acknowledged and be able to
// continue.
func Test[A any](t *testing.T, p Plan, first, later func(*testing.T, *Life[A])) {
	t.Helper()
	root, folders := Scratch(t), 0
	// live runs a program on what survives of a disk.
	live := func(name string, m model, survives fate, before []A, run func(*testing.T, *Life[A])) (l *Life[A]) {
		folders++
		dir := filepath.Join(root, fmt.Sprint(folders))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := m.put(0, dir, survives); err != nil {
			t.Fatal(err)
		}
		l = &Life[A]{Disk: open(dir, m), Before: before}
		t.Run(name, func(t *testing.T) { run(t, l) })
		if t.Failed() {
			t.FailNow() // one is enough to see why
		}
		_ = os.RemoveAll(dir)
		return l
	}
	// cut cuts the power after n steps of a run, and runs later on what survives.
	cut := func(name string, l *Life[A], n int, survives fate) {
		m := l.at(n)
		dir := filepath.Join(root, "survived")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := m.put(0, dir, survives); err != nil {
			t.Fatal(err)
		}
		m, err := load(dir)
		if err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(dir)
		live(fmt.Sprintf("%s, %s", name, l.last(n)), m, seen, l.until(n), later)
	}
	one := live("no cut", model{0: newFolder()}, seen, nil, first)
	for n := range one.Steps() + 1 {
		cut(fmt.Sprintf("cut after %d", n), one, n, strict)
		for draw := range p.Draws {
			cut(fmt.Sprintf("cut after %d with mixture %d", n, draw), one, n, chance(rand.New(rand.NewPCG(uint64(n), uint64(draw)))))
		}
		if n%max(p.Stride, 1) != 1%max(p.Stride, 1) {
			continue
		}
		two := live(fmt.Sprintf("killed after %d", n), one.at(n), seen, one.until(n), later)
		for i := range two.Steps() + 1 {
			cut(fmt.Sprintf("killed after %d and cut after %d", n, i), two, i, strict)
		}
	}
	if one.Steps() == 0 {
		t.Error("nothing was done on the disk, so nothing was tested")
	}
}

// Scratch makes a folder, in memory if possible, and removes it after the test.
// It is for tests that sync thousands of times and need no real disk, such as those of
// killed processes, refused commits and modelled disks.
func Scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "headway") //nolint:usetesting // t.TempDir is on the disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// last describes the n-th step.
func (d *Disk) last(n int) string {
	if n == 0 {
		return "before anything"
	}
	switch o := d.log[n-1]; o.kind {
	case step:
		return "an instant"
	case made:
		return "made " + o.name
	case rename:
		return "renamed " + o.name + " to " + o.to
	case remove:
		return "removed " + o.name
	case write:
		return fmt.Sprintf("wrote %d bytes at %d", len(o.data), o.offset)
	case truncate:
		return fmt.Sprintf("truncated to %d", o.offset)
	default:
		return "synced"
	}
}
