package population

import (
	"bufio"
	"fmt"
	"io"
	"math"
)

// The picture's measures, in pixels.
const (
	width, height = 1000, 560
	left, right   = 80, 960
	top, bottom   = 80, 490
	// fewest and most are the ends of the logarithmic axis, in refusals per 1000.
	fewest, most = 0.03, 3000
)

const (
	inkText  = "#24292f"
	inkFaint = "#6e7781"
	inkGrid  = "#e4e7eb"
	inkLaw   = "#1a7f37"
	inkBound = "#4f86bd"
)

func across(per1000 float64) float64 {
	return left + (right-left)*math.Log10(min(max(per1000, fewest), most)/fewest)/math.Log10(most/fewest)
}

func up(goodput float64) float64 { return bottom - (bottom-top)*goodput/1.02 }

// WriteSVG draws the population, 1000 by 560 pixels: goodput up, refusals for each
// 1000 admitted across on a logarithmic axis, a dot a member and a large one for the
// mean, of the law and where it was played of the informed client. What has fewer refusals than the axis begins with is drawn at its beginning.
// The same report gives the same bytes.
func (r *Report) WriteSVG(w io.Writer) error {
	b := bufio.NewWriter(w)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(b, format+"\n", args...) } // Flush returns the error
	p(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="%s">`, width, height, inkText)
	p(`<rect width="%d" height="%d" fill="#ffffff"/>`, width, height)
	what := "providers"
	if r.Family != "" {
		what += " of the family " + string(r.Family)
	}
	p(`<text x="%d" y="28" font-size="17" font-weight="bold">%s on %d %s drawn with seed %d</text>`, left, r.Law, r.N, what, r.Seed)
	for g := 0.0; g <= 1.001; g += 0.2 {
		p(`<path d="M%d %.1fH%d" stroke="%s"/><text x="%d" y="%.1f" text-anchor="end" fill="%s">%.1f</text>`, left, up(g), right, inkGrid, left-8, up(g)+4, inkFaint, g)
	}
	for _, k := range []float64{0.1, 1, 10, 100, 1000} {
		p(`<path d="M%.1f %dV%d" stroke="%s"/><text x="%[1]f" y="%[5]d" text-anchor="middle" fill="%[6]s">%[7]g</text>`, across(k), top, bottom, inkGrid, bottom+18, inkFaint, k)
	}
	p(`<text x="%d" y="%d" text-anchor="middle">refusals per 1000 admitted, logarithmic; fewer is better</text>`, (left+right)/2, bottom+42)
	p(`<text x="24" y="%d" text-anchor="middle" transform="rotate(-90 24 %[1]d)">goodput; more is better</text>`, (top+bottom)/2)
	for i := range r.Members {
		if m := r.Members[i].Bound; m != nil {
			p(`<circle cx="%.1f" cy="%.1f" r="2" fill="%s" fill-opacity="0.35"/>`, across(m.Per1000), up(m.Goodput), inkBound)
		}
	}
	for i := range r.Members {
		m := &r.Members[i]
		p(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s" fill-opacity="0.45"><title>%s, member %d: %.3f / %.2f</title></circle>`, across(m.Per1000), up(m.Goodput), inkLaw, m.Family, m.Number, m.Goodput, m.Per1000)
	}
	mean(p, left, r.Law, inkLaw, &r.All.Law)
	if r.All.Bound != nil {
		mean(p, left+300, "informed client", inkBound, r.All.Bound)
	}
	p(`</svg>`)
	return b.Flush()
}

// mean draws the large dot of a client, and what it stands for.
func mean(p func(string, ...any), x int, name, ink string, s *Summary) {
	p(`<circle cx="%.1f" cy="%.1f" r="9" fill="%s" stroke="#ffffff" stroke-width="2"/>`, across(s.Per1000), up(s.Goodput), ink)
	p(`<circle cx="%d" cy="52" r="6" fill="%s"/><text x="%d" y="56">%s: mean %.3f / %.2f</text>`, x+6, ink, x+18, name, s.Goodput, s.Per1000)
}
