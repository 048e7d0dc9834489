// Package span writes durations the way people write them in a file. It is for
// durations that were configured; one that was measured wants rounding first.
// It is pure and safe for concurrent use.
package span

import (
	"strings"
	"time"
)

// Text is d without the zero units that [time.Duration.String] trails: 1h, and
// not 1h0m0s. [time.ParseDuration] reads it back exactly.
func Text(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
