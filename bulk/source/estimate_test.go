package source_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/headway-go/headway/bulk/source"
)

// TestEstimate guesses how many rows an input has from its first ones.
func TestEstimate(t *testing.T) {
	const rows = 10_000
	dir := t.TempDir()
	var text strings.Builder
	type row struct{ ID int64 }
	all := make([]row, rows)
	for n := range rows {
		fmt.Fprintf(&text, "{\"id\":%06d}\n", n+100000)
		all[n].ID = int64(n)
	}
	lines, table := filepath.Join(dir, "rows.jsonl"), filepath.Join(dir, "rows.parquet")
	if err := os.WriteFile(lines, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := parquet.WriteFile(table, all); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{lines, table} {
		in, err := source.Open(path, source.Options{})
		if err != nil {
			t.Fatal(err)
		}
		offset := int64(0)
		for range 100 {
			r, err := in.Next()
			if err != nil {
				t.Fatal(err)
			}
			offset = r.Offset
		}
		if got := in.Estimate(100, offset); got < rows*99/100 || got > rows*101/100 {
			t.Errorf("%s: %d rows estimated, it has %d", filepath.Base(path), got, rows)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
}
