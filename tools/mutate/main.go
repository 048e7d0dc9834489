// Command mutate says how many small faults in a package its tests notice.
//
//	go -C tools run ./mutate -C .. [-tests PKG,...] [-sample N] ./pace ./breaker
//
// It writes one copy of the package in which every fault can be switched on by
// an environment variable, compiles the tests against that copy once with an
// overlay, so that the checkout never changes, and runs them once for each
// fault that they reach. It prints the survivors with file and line, and the
// share of faults killed. It exits with 1 when that share is below -min or the
// list of equivalent mutants has a row that no longer fits, and with 2 when
// the tests fail without any fault or the package cannot be built.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

type options struct {
	dir        string
	tests      []string
	sample     int
	seed       uint64
	run        string
	files      string
	calls      []string
	min        float64
	verbose    bool
	equivalent string
}

func main() {
	var o options
	var tests, calls string
	flag.StringVar(&o.dir, "C", ".", "the module's directory")
	flag.StringVar(&tests, "tests", "", "packages whose tests are run, with commas; the package's own by default")
	flag.IntVar(&o.sample, "sample", 0, "how many faults to draw from each package; 0 takes all")
	flag.Uint64Var(&o.seed, "seed", 1, "of the draw")
	flag.StringVar(&o.run, "run", "", "run only these tests, as in go test")
	flag.StringVar(&o.files, "files", "", "change only files that match this pattern, as in path.Match")
	flag.StringVar(&calls, "calls", "", "only leave out calls of these functions and methods that give an error, with commas, as in Sync,SyncDir")
	flag.Float64Var(&o.min, "min", 0, "the smallest share of killed faults that passes, 0 to 1")
	flag.BoolVar(&o.verbose, "v", false, "print each fault as it is tried")
	flag.StringVar(&o.equivalent, "equivalent", "tools/mutate/equivalent.txt", "the list of equivalent mutants, in the module's directory")
	flag.Parse()
	if tests != "" {
		o.tests = strings.Split(tests, ",")
	}
	if calls != "" {
		o.calls = strings.Split(calls, ",")
	}
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "mutate: name a package, as ./breaker")
		os.Exit(2)
	}
	code := 0
	for _, pkg := range flag.Args() {
		ok, err := mutate(os.Stdout, pkg, o)
		if err != nil {
			fmt.Fprintf(os.Stderr, "mutate: %s: %v\n", pkg, err)
			os.Exit(2)
		}
		if !ok {
			code = 1
		}
	}
	os.Exit(code)
}

// binary is one compiled package of tests.
type binary struct {
	pkg, path, dir string
	took           time.Duration
	reached        map[int]bool
}

// mutate tries the faults of one package. It returns false when too few were
// killed, and an error when nothing can be said.
func mutate(out io.Writer, pkg string, o options) (bool, error) {
	if o.equivalent != "" {
		o.equivalent = filepath.Join(o.dir, o.equivalent)
	}
	equivalent, err := readEquivalent(o.equivalent)
	if err != nil {
		return false, err
	}
	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	p, err := load(o.dir, pkg)
	if err != nil {
		return false, err
	}
	mutants, _, err := p.instrument(work, o.files, o.calls, nil)
	if err != nil {
		return false, err
	}
	drawn := mutants
	if o.sample > 0 && o.sample < len(mutants) {
		drawn = slices.Clone(mutants)
		rand.New(rand.NewPCG(o.seed, o.seed)).Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
		drawn = drawn[:o.sample]
		slices.SortFunc(drawn, func(a, b mutant) int { return cmp.Compare(a.id, b.id) })
	}
	// Each fault that is put in takes time, switched on or not.
	only := map[int]bool{}
	for _, m := range drawn {
		only[m.id] = equivalent[m.key()] == ""
	}
	_, overlay, err := p.instrument(work, o.files, o.calls, only)
	if err != nil {
		return false, err
	}
	// Tests may write files into their folder, so they run in a copy of the tree.
	tree := filepath.Join(work, "tree")
	if err := copyTree(p.root, tree); err != nil {
		return false, err
	}
	tests := o.tests
	if len(tests) == 0 {
		tests = []string{pkg}
	}
	var binaries []*binary
	for i, test := range tests {
		b := &binary{pkg: test, path: filepath.Join(work, fmt.Sprintf("%d.test", i)), reached: map[int]bool{}}
		dir, err := command(o.dir, "go", "list", "-f", "{{.Dir}}", test)
		if err != nil {
			return false, err
		}
		rel, err := filepath.Rel(p.root, dir)
		if err != nil {
			return false, err
		}
		b.dir = filepath.Join(tree, rel)
		if _, err := command(o.dir, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", b.path, test); err != nil {
			return false, err
		}
		if err := b.baseline(work, o.run); err != nil {
			return false, fmt.Errorf("the tests of %s fail without any fault: %w", test, err)
		}
		binaries = append(binaries, b)
	}

	var killed, same, unreached int
	var survivors []string
	for _, m := range drawn {
		if equivalent[m.key()] != "" {
			same++
			continue
		}
		dead, reached, err := m.try(binaries, o.run)
		switch {
		case err != nil:
			return false, err
		case dead:
			killed++
		case !reached:
			unreached++
			survivors = append(survivors, m.String()+" (no test reaches it)")
		default:
			survivors = append(survivors, m.String())
		}
		if o.verbose {
			fmt.Fprintf(out, "killed=%-5v %s\n", dead, m)
		}
	}
	for _, s := range survivors {
		fmt.Fprintln(out, s)
	}
	share, of := 1.0, len(drawn)-same
	if of > 0 {
		share = float64(killed) / float64(of)
	}
	fmt.Fprintf(out, "%s: %d of %d killed, %.1f %%; %d survived, %d of them not reached; %d equivalent", pkg, killed, of, 100*share, len(survivors), unreached, same)
	if len(drawn) < len(mutants) {
		fmt.Fprintf(out, "; %d drawn of %d, seed %d", len(drawn), len(mutants), o.seed)
	}
	fmt.Fprintln(out)
	return share >= o.min && !stale(out, equivalent, mutants, p, o), nil
}

// try runs the tests with m switched on until one package of them fails.
func (m mutant) try(binaries []*binary, run string) (dead, reached bool, _ error) {
	for _, b := range binaries {
		if !b.reached[m.id] {
			continue
		}
		reached = true
		err := b.test(5*b.took+5*time.Second, run, "MUTANT="+strconv.Itoa(m.id))
		if _, ok := errors.AsType[*exec.ExitError](err); ok || errors.Is(err, context.DeadlineExceeded) {
			return true, true, nil
		} else if err != nil {
			return false, true, err
		}
	}
	return false, reached, nil
}

// baseline runs the tests without a fault and notes the time and what they reach.
func (b *binary) baseline(work, run string) error {
	log := filepath.Join(work, "reached")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		return err
	}
	// Once more to measure the time, without the record, which takes some itself.
	if err := b.test(10*time.Minute, run, "MUTANT_REACHED="+log); err != nil {
		return err
	}
	start := time.Now()
	if err := b.test(10*time.Minute, run); err != nil {
		return err
	}
	b.took = time.Since(start)
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	for id := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(id)
		if err != nil {
			return err
		}
		b.reached[n] = true
	}
	return nil
}

// test runs the binary. A fault may allocate without end, so its address space is bounded.
func (b *binary) test(limit time.Duration, run string, env ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 6000000; exec "$0" "$@"`,
		b.path, "-test.short", "-test.failfast", "-test.run", run)
	cmd.Dir, cmd.Env = b.dir, append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	tail := &tail{}
	cmd.Stdout, cmd.Stderr = tail, tail
	err := cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, tail.text)
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b...)
	if n := len(t.text); n > 4096 {
		t.text = slices.Clone(t.text[n-4096:])
	}
	return len(b), nil
}

// readEquivalent reads the mutants that no test can kill, each with the reason why.
func readEquivalent(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	rows := map[string]string{}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		c := strings.Split(line, " | ")
		if len(c) != 4 || c[3] == "" {
			return nil, fmt.Errorf("%s:%d: a row is FILE | MUTATION | LINE OF CODE | REASON", file, i+1)
		}
		rows[strings.Join(c[:3], " | ")] = c[3]
	}
	return rows, nil
}

// stale prints the rows of this package's list that fit no mutant any more.
func stale(out io.Writer, rows map[string]string, all []mutant, p *source, o options) (found bool) {
	if o.files != "" || o.calls != nil {
		return false
	}
	keys := map[string]bool{}
	for _, m := range all {
		keys[m.key()] = true
	}
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		file, _, _ := strings.Cut(k, " | ")
		if filepath.Dir(file) == p.rel && !keys[k] {
			fmt.Fprintln(out, "no such mutant any more:", k)
			found = true
		}
	}
	return found
}

// copyTree copies the files that git knows or would add.
func copyTree(from, to string) error {
	list, err := command(from, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		} else if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		at := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(at, text, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

func command(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
