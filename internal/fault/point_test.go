package fault_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/fault"
)

func TestNamesAreDifferentAndLeftAlone(t *testing.T) {
	names := fault.Names()
	if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) != len(names) || len(names) == 0 {
		t.Errorf("%v: want names, each once", names)
	}
	for _, n := range names {
		if n == "" || strings.ContainsAny(string(n), ": \n") {
			t.Errorf("%q looks like a pass, or like a line of a trace", n)
		}
	}
	first := names[0]
	names[0] = "mine"
	if got := fault.Names()[0]; got != first {
		t.Errorf("a caller changed the first name to %q", got)
	}
}

// TestAPointIsNothing asks the compiler: with the tag off a point is inlined,
// at each place, as the empty body that it is.
func TestAPointIsNothing(t *testing.T) {
	for folder, want := range map[string]string{
		".":             "can inline Point with cost 0",
		"../../collect": "inlining call to fault.Point",
	} {
		out, err := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-m=2", folder).CombinedOutput()
		if err != nil {
			t.Fatalf("go build: %v\n%.2000s", err, out)
		}
		if !strings.Contains(string(out), want) {
			t.Errorf("the compiler does not say %q of %s", want, folder)
		}
	}
	if n := testing.AllocsPerRun(100, func() { fault.Point(fault.SinkSynced) }); n != 0 {
		t.Errorf("%v allocations a point, want none", n)
	}
}

// BenchmarkPoint is a loop with a point in it; compare it with BenchmarkNothing.
func BenchmarkPoint(b *testing.B) {
	n := 0
	for b.Loop() {
		for range 1000 {
			fault.Point(fault.SinkSynced)
			n++
		}
	}
}

// BenchmarkNothing is the same loop without the point.
func BenchmarkNothing(b *testing.B) {
	n := 0
	for b.Loop() {
		for range 1000 {
			n++
		}
	}
}
