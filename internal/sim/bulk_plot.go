package sim

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// The positions of the second panel of a bulk picture, in pixels. The first panel ends
// above it; the throttles are at the same place as in other pictures.
const (
	middle      = 222
	second      = 256
	inkLevel    = inkPace
	inkHint     = inkLimit
	fillFlights = "#d7ecd9"
)

// WriteBulkSVG draws the course of a bulk load, 1000 by 480 pixels: at the top the batches
// in flight, the laws' levels and the server's recommendation, in the middle the rows per
// second, and at the bottom the throttles. Changes are dashed lines, faults are shaded. The
// same trace gives the same bytes.
func WriteBulkSVG(w io.Writer, t *BulkTrace) error {
	p := &bulkPlot{plot: plot{Writer: bufio.NewWriter(w), horizon: max(t.End, 1)}, bulk: t}
	p.measureBulk()
	p.title()
	p.clock()
	p.marks()
	p.parallelism()
	p.rows()
	p.refusals()
	p.names()
	p.printf("</svg>\n")
	return p.Flush()
}

type bulkPlot struct {
	plot
	bulk    *BulkTrace
	ends    []float64 // the right borders of the steps
	maxHigh float64   // of the parallelism
	maxRows float64   // a second
	rates   []float64
}

// mean is the number of steps over which rows per second are averaged, because batches
// return in bursts.
const mean = 20

func (p *bulkPlot) measureBulk() {
	sum, before := 0.0, []float64{}
	for i, s := range p.bulk.Steps {
		p.ends = append(p.ends, p.x(time.Duration(s.ToS*float64(time.Second))))
		p.maxHigh = max(p.maxHigh, s.InFlight, s.Level)
		before = append(before, s.RowsPerS)
		sum += s.RowsPerS
		if i >= mean {
			sum -= before[i-mean]
		}
		rate := sum / float64(min(i+1, mean))
		p.rates = append(p.rates, rate)
		if i+1 >= mean {
			p.maxRows = max(p.maxRows, rate)
		}
	}
	for _, h := range p.bulk.Hints {
		p.maxHigh = max(p.maxHigh, float64(h.Parallelism))
	}
	p.maxHigh, p.maxRows = max(p.maxHigh, 1)*1.12, max(p.maxRows, 1)*1.15
}

func (p *bulkPlot) high(level float64) float64 {
	return middle - (middle-top)*min(level/p.maxHigh, 1)
}

func (p *bulkPlot) speed(rows float64) float64 {
	return bottom - (bottom-second)*min(rows/p.maxRows, 1)
}

// title draws the background, the titles and the scales of both panels.
func (p *bulkPlot) title() {
	p.begin(p.bulk.Scenario, p.bulk.Law, fmt.Sprintf("seed %d, over after %s", p.bulk.Seed, brief(p.bulk.End)))
	p.scale("batches in flight", (top+middle)/2, p.maxHigh, 4, p.high)
	p.scale("rows a second", (second+bottom)/2, p.maxRows, 4, p.speed)
}

// marks draws the changes and faults before the end of the load.
func (p *bulkPlot) marks() {
	for _, f := range p.bulk.Scenario.Provider.Faults {
		if f.At < p.bulk.End {
			p.fault(f)
			p.printf(`<text x="%.1f" y="%d" fill="%s" font-size="11">%s</text>`+"\n", p.x(f.At)+4, bottom-6, inkFaint, f.Kind)
		}
	}
	for _, c := range p.bulk.Scenario.Provider.Changes {
		if c.At < p.bulk.End {
			p.change(c.At, second-10, changeText(c))
		}
	}
}

func changeText(c scenario.Change) string {
	var says []string
	if c.Scale != 1 {
		says = append(says, "limits x "+number(c.Scale))
	}
	if c.Hint > 0 {
		says = append(says, fmt.Sprintf("hint %d", c.Hint))
	}
	if c.Knee > 0 {
		says = append(says, fmt.Sprintf("knee %d", c.Knee))
	}
	return strings.Join(says, ", ")
}

func (p *bulkPlot) parallelism() {
	flights, levels := make([]float64, len(p.bulk.Steps)), make([]float64, len(p.bulk.Steps))
	for i, s := range p.bulk.Steps {
		flights[i], levels[i] = s.InFlight, s.Level
	}
	p.printf(`<path d="%s" fill="%s" stroke="none"/>`+"\n", p.path(flights, p.high, middle), fillFlights)
	p.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", p.path(flights, p.high, 0), inkServed)
	p.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", p.path(levels, p.high, 0), inkLevel)
	for i, h := range p.bulk.Hints {
		to := p.bulk.End
		if i+1 < len(p.bulk.Hints) {
			to = p.bulk.Hints[i+1].At
		}
		y := p.high(float64(h.Parallelism))
		p.printf(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="2" stroke-dasharray="7 4"/>`+"\n", p.x(h.At), p.x(to), y, y, inkHint)
	}
	p.printf(`<line x1="%d" x2="%d" y1="%d" y2="%[3]d" stroke="%s"/>`+"\n", left, right, middle, inkFaint)
}

func (p *bulkPlot) rows() {
	p.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", p.path(p.rates, p.speed, 0), inkText)
	p.printf(`<line x1="%d" x2="%d" y1="%d" y2="%[3]d" stroke="%s"/>`+"\n", left, right, bottom, inkFaint)
}

// path draws each value as a horizontal line over its step. ground closes the area, unless
// it is 0.
func (p *bulkPlot) path(values []float64, y func(float64) float64, ground int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%d", left)
	if ground > 0 {
		fmt.Fprintf(&b, " %dL%d", ground, left)
	}
	for i, v := range values {
		if i == 0 {
			fmt.Fprintf(&b, " %.1fH%.1f", y(v), p.ends[i])
			continue
		}
		fmt.Fprintf(&b, "V%.1fH%.1f", y(v), p.ends[i])
	}
	if ground > 0 {
		fmt.Fprintf(&b, "V%dZ", ground)
	}
	return b.String()
}

// refusals draws the throttles as bars, as in other pictures.
func (p *bulkPlot) refusals() {
	steps := p.bulk.Steps
	p.trace = &Trace{Scenario: p.bulk.Scenario, Step: p.bulk.End / time.Duration(max(1, len(steps))), Steps: make([]Step, len(steps))}
	for i, s := range steps {
		p.trace.Steps[i].Throttled = s.Throttled
	}
	p.throttles()
}

func (p *bulkPlot) names() {
	p.legend("of all users; rows over "+brief(time.Duration(mean)*p.bulk.End/time.Duration(max(1, len(p.bulk.Steps)))),
		curve{inkServed, "in flight", 90},
		curve{inkLevel, "what the law allows", 160},
		curve{inkHint, "what the server recommends", 226},
		curve{inkText, "rows a second", 120})
}
