package sim

import (
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// unknown stands in a table for what has no value: never 0.
const unknown = "-"

// texts is how many of the first columns are aligned to the left.
const texts = 2

// column is one figure of a table.
type column[R any] struct {
	name string
	cell func(*R) string
}

// columns are the figures of the table.
var columns = []column[Result]{
	{"scenario", func(r *Result) string { return r.Scenario }},
	{"law", func(r *Result) string { return r.Law }},
	{"goodput", func(r *Result) string { return known(r.GoodputRatio, 3, "") }},
	{"thr/1000", func(r *Result) string { return known(r.ThrottledPer1000, 2, "") }},
	{"admitted", func(r *Result) string { return strconv.FormatInt(r.Admitted, 10) }},
	{"throttled", func(r *Result) string { return strconv.FormatInt(r.Throttled, 10) }},
	{"to 90 %", func(r *Result) string { return known(r.TimeTo90PctS, 0, " s") }},
	{"block", func(r *Result) string { return known(&r.LongestBlockS, 1, " s") }},
	{"wait p50", func(r *Result) string { return known(r.WaitP50MS, 0, " ms") }},
	{"wait p99", func(r *Result) string { return known(r.WaitP99MS, 0, " ms") }},
	{"thr/change", func(r *Result) string { return known(r.ThrottlesPerChange, 1, "") }},
	{"harm", func(r *Result) string {
		if r.StrangersHarm == nil {
			return unknown
		}
		return strconv.FormatInt(*r.StrangersHarm, 10)
	}},
	{"jain", func(r *Result) string { return known(r.FairnessJain, 3, "") }},
	{"failed", func(r *Result) string {
		switch {
		case r.CeilingViolations > 0:
			return strconv.FormatInt(r.CeilingViolations, 10) + " over the ceiling"
		case r.Suspended:
			return "suspended"
		}
		return "no"
	}},
}

func known(x *float64, decimals int, unit string) string {
	if x == nil {
		return unknown
	}
	return strconv.FormatFloat(*x, 'f', decimals, 64) + unit
}

// bulkColumns are the figures of the table of bulk loads.
var bulkColumns = []column[BulkResult]{
	{"scenario", func(r *BulkResult) string { return r.Scenario }},
	{"law", func(r *BulkResult) string { return r.Law }},
	{"rows/s", func(r *BulkResult) string { return known(&r.RowsPerS, 1, "") }},
	{"elapsed", func(r *BulkResult) string { return known(&r.ElapsedS, 0, " s") }},
	{"batches", func(r *BulkResult) string { return strconv.FormatInt(r.Batches, 10) }},
	{"throttled", func(r *BulkResult) string { return strconv.FormatInt(r.Throttled, 10) }},
	{"thr/1000", func(r *BulkResult) string { return known(r.ThrottledPer1000, 2, "") }},
	{"mean", func(r *BulkResult) string { return known(&r.ParallelismMean, 2, "") }},
	{"max", func(r *BulkResult) string { return strconv.Itoa(r.ParallelismMax) }},
	{"retry-after", func(r *BulkResult) string { return known(&r.RetryAfterS, 0, " s") }},
	{"longest", func(r *BulkResult) string { return known(&r.LongestRetryAfterS, 0, " s") }},
	{"owed", func(r *BulkResult) string { return strconv.FormatInt(r.Owed, 10) }},
	{"ended", func(r *BulkResult) string { return r.Ended() }},
}

// WriteTable writes the results for a person: a line each, in aligned columns.
func WriteTable(w io.Writer, results []Result) error { return writeTable(w, columns, results) }

// WriteBulkTable is [WriteTable] for bulk loads: mean and max are of the batches
// in flight, retry-after is the sum and longest the longest of the waits.
func WriteBulkTable(w io.Writer, results []BulkResult) error {
	return writeTable(w, bulkColumns, results)
}

func writeTable[R any](w io.Writer, columns []column[R], results []R) error {
	rows := make([][]string, len(results)+1)
	widths := make([]int, len(columns))
	for i, c := range columns {
		rows[0] = append(rows[0], c.name)
		for r := range results {
			rows[r+1] = append(rows[r+1], c.cell(&results[r]))
		}
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch {
			case i == len(row)-1:
				b.WriteString("  " + cell)
			case i < texts:
				b.WriteString(cell + pad + "  ")
			default:
				b.WriteString(pad + cell)
				if i < len(row)-2 {
					b.WriteString("  ")
				}
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
