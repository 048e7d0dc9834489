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

// columns are the figures of the table.
var columns = []struct {
	name string
	cell func(*Result) string
}{
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

// WriteTable writes the results for a person: a line each, in aligned columns.
func WriteTable(w io.Writer, results []Result) error {
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
