package configfile

import (
	"fmt"
	"strings"
)

// Suggest names the field that was meant, or all there are.
func Suggest(name string, known []string) string {
	best, near := "", 3
	for _, k := range known {
		if d := distance(strings.ToLower(name), k); d < near && d < len(k) {
			best, near = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %s?", best)
	}
	switch len(known) {
	case 0:
		return "nothing can be set here, remove it"
	case 1:
		return "want " + known[0]
	}
	return "want one of " + strings.Join(known, ", ")
}

// distance is the number of letters to insert, drop, change or swap with their
// neighbour to make b of a (optimal string alignment).
func distance(a, b string) int {
	const limit = 64
	if len(a) > limit || len(b) > limit {
		return limit
	}
	var rows [3][limit + 1]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row := &rows[(i+1)%3], &rows[(i+2)%3], &rows[i%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
