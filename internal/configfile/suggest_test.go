package configfile

import (
	"strings"
	"testing"
)

func TestDistanceCountsLettersToChange(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "xyz", 3},
		{"abc", "ac", 1}, {"ac", "abc", 1}, {"abc", "acb", 1}, {"ab", "ba", 1}, {"abcd", "badc", 2}, {"xabc", "bac", 2},
		{"ca", "abc", 3}, // a pair that was swapped is not changed again
		{"abab", "baba", 2}, {"kitten", "sitting", 3}, {"name", "nmae", 1}, {"aab", "aba", 1}, {"aba", "aab", 1}, {"axb", "bxa", 2},
		{strings.Repeat("a", 64), strings.Repeat("a", 63), 1}, {strings.Repeat("a", 65), "a", 64}, {"a", strings.Repeat("a", 65), 64},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("from %q to %q it is %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
