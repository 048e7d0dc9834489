package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimPopulation(t *testing.T) {
	dir := t.TempDir()
	svg := filepath.Join(dir, "p.svg")
	code, text, complaints := simulate(t, "sim", "population", "--n", "3", "--seed", "5", "--law", "aimd", "--bound=false", "--plot", svg)
	for _, want := range []string{"law aimd, seed 5, 3 members", "family", "per 1000", "\nall "} {
		if code != exitOK || !strings.Contains(text, want) {
			t.Errorf("exit %d, the report lacks %q:\n%s%s", code, want, text, complaints)
		}
	}
	if b, err := os.ReadFile(svg); err != nil || !strings.HasPrefix(string(b), "<svg") || strings.Contains(string(b), "%!") {
		t.Errorf("%v, plot:\n%s", err, b)
	}
	if code, text, _ := simulate(t, "sim", "population", "--n", "2", "--seed", "5", "--law", "aimd", "--bound=false", "--json"); code != exitOK || !strings.Contains(text, `"members": [`) {
		t.Errorf("exit %d:\n%s", code, text)
	}
}

func TestAMemberRunsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "member.yaml")
	if code, text, complaints := simulate(t, "sim", "population", "--seed", "5", "--member", "2", "--out", path); code != exitOK || text != "" {
		t.Fatalf("exit %d: %s%s", code, text, complaints)
	}
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, text, _ := simulate(t, "sim", "population", "--seed", "5", "--member", "2"); text != string(src) {
		t.Errorf("without --out the output is\n%s\nand the file\n%s", text, src)
	}
	first, _, _ := strings.Cut(string(src), "\n")
	_, seed, ok := strings.Cut(first, "--seed ")
	if !ok {
		t.Fatalf("the first line names no seed: %s", first)
	}
	if code, _, complaints := simulate(t, "sim", "run", path, "--seed", seed, "--law", "aimd"); code != exitOK {
		t.Errorf("exit %d: %s", code, complaints)
	}
}

func TestSimPopulationRefusesWhatItCannotDo(t *testing.T) {
	for args, want := range map[string]string{
		"--n 0":                         "--n: 0 must be from 1 to 100000",
		"--family leaky":                `unknown family "leaky", want one of ban, fixed-block`,
		"--law magic":                   `unknown law "magic", want one of`,
		"--out x.yaml":                  "--out needs --member",
		"--member -1":                   "--member: -1 must be from 0",
		"--member 1 --out /nowhere/x.y": "there is no directory /nowhere",
		"--plot /nowhere/x.svg":         "there is no directory /nowhere",
		"more":                          "no argument",
	} {
		code, _, complaints := simulate(t, append([]string{"sim", "population"}, strings.Fields(args)...)...)
		if code != exitUsage || !strings.Contains(complaints, want) {
			t.Errorf("%s: exit %d, %s, want %d and %q", args, code, complaints, exitUsage, want)
		}
	}
}
