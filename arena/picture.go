package arena

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// The overview's measures, in pixels.
const (
	overviewWidth, overviewHeight = 1000, 560
	axisLeft, axisRight           = 80, 690
	legendLeft                    = 724
	axisTop, axisBottom           = 60, 490
	// fewest and most are the ends of the logarithmic axis, in throttles per 1000.
	fewest, most = 0.1, 1e6
)

func across(per1000 float64) float64 {
	x := math.Log10(min(max(per1000, fewest), most)/fewest) / math.Log10(most/fewest)
	return axisLeft + (axisRight-axisLeft)*x
}

func up(goodput float64) float64 { return axisBottom - (axisBottom-axisTop)*min(goodput, 1)/1.05 }

// drawOverview draws the means of everybody: throttles across, on a logarithmic
// axis, goodput up, and the targets for the means as lines. What has fewer
// throttles than the axis begins with is drawn at its beginning.
func drawOverview(w io.Writer, f *Field) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#24292f">`, overviewWidth, overviewHeight)
	p(`<rect width="%d" height="%d" fill="#ffffff"/>`, overviewWidth, overviewHeight)
	p(`<text x="%d" y="28" font-size="17" font-weight="bold">Means over %d scenarios</text>`, axisLeft, len(f.Scenarios))
	p(`<rect x="%d" y="%d" width="%.1f" height="%.1f" fill="#e6f4ea"/>`, axisLeft, axisTop, across(barMeanPer1000)-axisLeft, up(barMeanGoodput)-axisTop)
	for g := 0.0; g <= 1.001; g += 0.2 {
		p(`<path d="M%d %.1fH%d" stroke="#e4e7eb"/><text x="%d" y="%.1f" text-anchor="end" fill="#6e7781">%.1f</text>`, axisLeft, up(g), axisRight, axisLeft-8, up(g)+4, g)
	}
	for k := fewest; k <= most*1.01; k *= 10 {
		p(`<path d="M%.1f %dV%d" stroke="#e4e7eb"/><text x="%[1]f" y="%[4]d" text-anchor="middle" fill="#6e7781">%[5]g</text>`, across(k), axisTop, axisBottom, axisBottom+18, math.Round(k*10)/10)
	}
	p(`<path d="M%d %.1fH%d M%.1f %dV%d" stroke="#1a7f37" stroke-dasharray="5 4" fill="none"/>`, axisLeft, up(barMeanGoodput), axisRight, across(barMeanPer1000), axisTop, axisBottom)
	p(`<text x="%d" y="%.1f" text-anchor="end" fill="#1a7f37">target: goodput %g, throttled %g per 1000</text>`, axisRight, up(barMeanGoodput)-5, barMeanGoodput, barMeanPer1000)
	p(`<text x="%d" y="%d" text-anchor="middle">throttled per 1000 admitted, logarithmic; fewer is better</text>`, (axisLeft+axisRight)/2, axisBottom+42)
	p(`<text x="24" y="%d" text-anchor="middle" transform="rotate(-90 24 %[1]d)">goodput; more is better</text>`, (axisTop+axisBottom)/2)

	p(`<text x="%d" y="%d" fill="#6e7781">goodput / throttled per 1000</text>`, legendLeft, axisTop+4)
	for n, name := range f.Names() {
		goodput, per1000 := f.Means(name)
		ink, title := "#57606a", name
		i := slices.IndexFunc(f.Rivals, func(r Rival) bool { return r.Name == name })
		switch {
		case i < 0:
			ink, title = "#1a7f37", "headway "+name
		case f.Rivals[i].Origin == Cheat:
			ink, title = "#c77700", name+" (a cheat)"
		case f.Rivals[i].Origin == Described:
			ink, title = "#4f86bd", name+" (from documents)"
		}
		y := axisTop + 30 + 34*n
		for _, at := range [][2]float64{{across(per1000), up(goodput)}, {legendLeft + 9, float64(y)}} {
			p(`<circle cx="%.1f" cy="%.1f" r="9" fill="%s" fill-opacity="0.85"/><text x="%.1[1]f" y="%.1[4]f" text-anchor="middle" font-size="11" fill="#ffffff">%[5]d</text>`, at[0], at[1], ink, at[1]+4, n+1)
		}
		p(`<text x="%d" y="%d">%s</text><text x="%[1]d" y="%[4]d" fill="#6e7781">%.3[5]f / %[6]s</text>`, legendLeft+26, y-1, title, y+13, goodput, few(per1000))
	}
	p(`</svg>`)
}
