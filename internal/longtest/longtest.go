// Package longtest gives the tests that draw at random, or that are about much
// data, two sizes: one for every run of the suite, and one for the flag -long.
// Only tests import it.
package longtest

import "flag"

var long = flag.Bool("long", false, "kill, draw and load as often as a long run should, for minutes")

// Size is usual, or most in a long run. The flags must have been
// parsed: a test may call it, the initialisation of a package may not.
func Size(usual, most int) int {
	if *long {
		return most
	}
	return usual
}
