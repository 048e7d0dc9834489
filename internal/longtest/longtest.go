// Package longtest gives the tests that draw at random, or that are about much
// data, two sizes: one for every run of the suite, and one for the flag -long.
// Only tests import it.
package longtest

import (
	"flag"
	"strconv"
	"testing"
)

var long = flag.Bool("long", false, "kill, draw and load as often as a long run should, for minutes")

// Size is usual, or most in a long run. The flags must have been
// parsed: a test may call it, the initialisation of a package may not.
func Size(usual, most int) int {
	if *long {
		return most
	}
	return usual
}

// Draws lowers how often the properties of a test are drawn, from rapid's 100, and
// restores it when the test ends; a long run, or a -rapid.checks of one's own, keeps
// to its number. It is for a test whose draws take long, and not for parallel ones.
func Draws(t testing.TB, usual int) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	given := *long || f.Value.String() != f.DefValue
	if given {
		return
	}
	if err := flag.Set(f.Name, strconv.Itoa(usual)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set(f.Name, f.DefValue) })
}

// Checks sets how often rapid draws until the end of the test, and says it: [Size]
// of its arguments, or what the flag -rapid.checks says. It is not for parallel tests.
func Checks(t testing.TB, usual, most int) int {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	if checks == nil {
		t.Fatal("the test does not import rapid")
	}
	if was := checks.Value.String(); was == checks.DefValue {
		t.Cleanup(func() { _ = checks.Value.Set(was) })
		if err := checks.Value.Set(strconv.Itoa(Size(usual, most))); err != nil {
			t.Fatal(err)
		}
	}
	n, err := strconv.Atoi(checks.Value.String())
	if err != nil {
		t.Fatal(err)
	}
	return n
}
