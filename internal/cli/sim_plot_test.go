package cli

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlotIsWholeAndReplacesTheOldOne(t *testing.T) {
	file := scenarioFile(t, "tiny.yaml", tiny)
	plot := filepath.Join(filepath.Dir(file), "out.svg")
	if err := os.WriteFile(plot, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, with, complaints := simulate(t, "sim", "run", file, "--plot", plot)
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, complaints)
	}
	if _, without, _ := simulate(t, "sim", "run", file); with != without {
		t.Error("the plot changes what is printed")
	}
	svg, err := os.ReadFile(plot)
	if err != nil {
		t.Fatal(err)
	}
	var root struct{ XMLName xml.Name }
	if err := xml.Unmarshal(svg, &root); err != nil || root.XMLName.Local != "svg" {
		t.Errorf("root %q, %v, want an svg", root.XMLName.Local, err)
	}
	if !bytes.Contains(svg, []byte("tiny under envelope")) {
		t.Error("the plot does not say what was run")
	}
	onlyFiles(t, filepath.Dir(file), "out.svg", "tiny.yaml")
}

func TestPlotOfALoad(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "load.svg")
	if code, _, complaints := simulate(t, "sim", "run", "dataverse-bulk-hint-drop", "--plot", plot); code != exitOK {
		t.Fatalf("exit %d: %s", code, complaints)
	}
	svg, err := os.ReadFile(plot)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(svg, []byte("dataverse-bulk-hint-drop under parallel")) || !bytes.Contains(svg, []byte("no throttles")) {
		t.Error("the plot does not say what was run and what came of it")
	}
}

func TestAFileThatFailsHalfwayLeavesTheOldOne(t *testing.T) {
	path := scenarioFile(t, "kept", "old")
	full := errors.New("disk is full")
	err := writeWhole(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, full)
	})
	if !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("file holds %q, %v, want the old content", got, err)
	}
	onlyFiles(t, filepath.Dir(path), "kept")
}

// onlyFiles fails when the directory holds anything else.
func onlyFiles(t *testing.T, folder string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
