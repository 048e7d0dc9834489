// Package longtest gives the tests that draw at random, or that are about much
// data, two sizes: one for every run of the suite, and one for the flag -long.
// Only tests import it.
package longtest

import (
	"flag"
	"strconv"
	"testing"
)

var isLong = flag.Bool("long", false, "kill, draw and load as often as a long run should, for minutes")

// Long reports whether this is a long run. The flags must have been parsed: a
// test may call it, the initialisation of a package may not.
func Long() bool { return *isLong }

// Size is usual, or long in a long run. As for Long, the flags must have been
// parsed.
func Size(usual, long int) int {
	if *isLong {
		return long
	}
	return usual
}

// Draws sets how often rapid draws until the end of the test, and returns it: [Size]
// of usual and long, or what the flag -rapid.checks says. It is not for parallel
// tests.
func Draws(t testing.TB, usual, long int) int {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	if checks == nil {
		t.Fatal("the test does not import rapid")
	}
	if was := checks.Value.String(); was == checks.DefValue {
		t.Cleanup(func() { _ = checks.Value.Set(was) })
		if err := checks.Value.Set(strconv.Itoa(Size(usual, long))); err != nil {
			t.Fatal(err)
		}
	}
	n, err := strconv.Atoi(checks.Value.String())
	if err != nil {
		t.Fatal(err)
	}
	return n
}
