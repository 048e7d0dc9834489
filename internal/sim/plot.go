package sim

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// The picture's measures, in pixels.
const (
	width, height = 1000, 480
	left, right   = 72, 984
	top, bottom   = 78, 350 // of the rates
	strip, floor  = 378, 424
)

const (
	inkText    = "#24292f"
	inkFaint   = "#6e7781"
	inkGrid    = "#e4e7eb"
	inkLimit   = "#8fb3d9"
	fillLimit  = "#e3eefa"
	inkServed  = "#1a7f37"
	inkPace    = "#c77700"
	inkRefused = "#cf222e"
	fillFault  = "#f6e3e4"
)

// WriteSVG draws the course of a run, 1000 by 480 pixels: the admitted rate, the limit (the
// oracle's admissions), the pace (the rate that the clients' intervals allowed), and at the
// bottom the throttles. Values beyond the top are drawn at the top. Changes of the limits
// are dashed lines, faults are shaded. Rates are means over the longest window of the
// limits that is at most a tenth of the run, or over a step. The same trace gives the same
// bytes.
func WriteSVG(w io.Writer, t *Trace) error {
	p := &plot{Writer: bufio.NewWriter(w), trace: t, horizon: t.Scenario.Horizon}
	p.measure()
	p.frame()
	p.events()
	p.curves()
	p.throttles()
	p.legend("means of "+brief(time.Duration(p.mean)*t.Step),
		curve{inkServed, "admitted", 96},
		curve{inkLimit, "limit: what a clairvoyant client is admitted", 300},
		curve{inkPace, "pace: what the interval allows, cut off at the top", 300})
	p.printf("</svg>\n")
	return p.Flush()
}

type plot struct {
	*bufio.Writer
	trace         *Trace
	horizon       time.Duration
	mean          int // the number of steps of a mean
	limit, served []float64
	most          float64 // the rate at the top
}

func (p *plot) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p, format, args...) // Flush returns the error
}

// measure computes the rates and the scale.
func (p *plot) measure() {
	t := p.trace
	p.mean = int(max(1, (period(t.Scenario)+t.Step/2)/t.Step))
	var limit, served int64
	for i, s := range t.Steps {
		limit, served = limit+s.Limit, served+s.Admitted
		from := max(0, i+1-p.mean)
		if old := i - p.mean; old >= 0 {
			limit, served = limit-t.Steps[old].Limit, served-t.Steps[old].Admitted
		}
		length := (p.end(i) - time.Duration(from)*t.Step).Seconds()
		p.limit = append(p.limit, float64(limit)/length)
		p.served = append(p.served, float64(served)/length)
		if i+1 >= p.mean { // before that a single burst would look like a rate
			p.most = max(p.most, p.limit[i], p.served[i])
		}
	}
	if p.most == 0 {
		for _, s := range t.Steps {
			p.most = max(p.most, s.Pace)
		}
	}
	p.most *= 1.15
}

// end returns the end of a step.
func (p *plot) end(i int) time.Duration {
	if i == len(p.trace.Steps)-1 {
		return p.horizon
	}
	return time.Duration(i+1) * p.trace.Step
}

func (p *plot) x(at time.Duration) float64 {
	return left + (right-left)*float64(min(at, p.horizon))/float64(p.horizon)
}

func (p *plot) y(rate float64) float64 {
	return bottom - (bottom-top)*min(rate/p.most, 1)
}

// begin draws the background and the heading, with a note at the right.
func (p *plot) begin(s *scenario.Scenario, law, note string) {
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="%s">`+"\n", width, height, inkText)
	p.printf(`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	p.printf(`<text x="%d" y="28" font-size="17" font-weight="bold">%s under %s</text>`+"\n", left, escape(s.Name), escape(law))
	p.printf(`<text x="%d" y="28" text-anchor="end" fill="%s">%s</text>`+"\n", right, inkFaint, note)
}

// scale draws an axis of values up to most, with about the given number of lines.
func (p *plot) scale(name string, center int, most, lines float64, y func(float64) float64) {
	p.printf(`<text transform="translate(18 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", center, name)
	step := nice(most / lines)
	for i := 0; float64(i)*step <= most; i++ {
		at := y(float64(i) * step)
		p.printf(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="%s"/>`, left, right, at, at, inkGrid)
		p.printf(`<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left-8, at+4, number(float64(i)*step))
	}
}

// frame draws the axes.
func (p *plot) frame() {
	p.begin(p.trace.Scenario, p.trace.Law, fmt.Sprintf("seed %d", p.trace.Seed))
	per, factor := "a second", 1.0
	switch {
	case p.most < 0.1:
		per, factor = "an hour", 3600
	case p.most < 1:
		per, factor = "a minute", 60
	}
	p.scale("attempts "+per, (top+bottom)/2, p.most*factor, 5, func(rate float64) float64 { return p.y(rate / factor) })
	p.clock()
}

// clock draws the time axis.
func (p *plot) clock() {
	unit, name := time.Second, "seconds"
	switch {
	case p.horizon > 72*time.Hour:
		unit, name = 24*time.Hour, "days"
	case p.horizon > 3*time.Hour:
		unit, name = time.Hour, "hours"
	case p.horizon > 3*time.Minute:
		unit, name = time.Minute, "minutes"
	}
	span := float64(p.horizon) / float64(unit)
	step := nice(span / 10)
	switch {
	case unit == time.Hour && span <= 24 && span > 12:
		step = 3
	case unit == time.Minute && span == 60:
		step = 5
	}
	for i := 0; float64(i)*step <= span*1.0001; i++ {
		x := p.x(time.Duration(float64(i) * step * float64(unit)))
		p.printf(`<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="%s"/>`, x, x, floor, floor+5, inkFaint)
		p.printf(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x, floor+20, number(float64(i)*step))
	}
	p.printf(`<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (left+right)/2, floor+42, name)
}

// events draws changes and faults.
func (p *plot) events() {
	faults := p.trace.Scenario.Provider.Faults
	for _, f := range faults {
		p.fault(f)
	}
	for i, f := range faults {
		// Three heights in turn, since faults may follow each other closely.
		p.printf(`<text x="%.1f" y="%d" fill="%s" font-size="11">%s</text>`+"\n", p.x(f.At)+4, top+14+14*(i%3), inkFaint, f.Kind)
	}
	for _, c := range p.trace.Scenario.Provider.Changes {
		p.change(c.At, top+14, "limits x "+number(c.Scale))
	}
}

func (p *plot) fault(f scenario.Fault) {
	x := p.x(f.At)
	p.printf(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`, x, top, max(1, p.x(f.At+f.For)-x), floor-top, fillFault)
}

func (p *plot) change(at time.Duration, y int, text string) {
	x := p.x(at)
	p.printf(`<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="%s" stroke-dasharray="4 3"/>`, x, x, top, floor, inkFaint)
	p.printf(`<text x="%.1f" y="%d" fill="%s" font-size="11">%s</text>`+"\n", x+5, y, inkFaint, text)
}

func (p *plot) curves() {
	p.printf(`<path d="%s" fill="%s" stroke="none"/>`+"\n", p.steps(p.limit, true), fillLimit)
	p.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", p.steps(p.limit, false), inkLimit)
	pace := make([]float64, len(p.trace.Steps))
	for i, s := range p.trace.Steps {
		pace[i] = s.Pace
	}
	p.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1" stroke-opacity="0.8"/>`+"\n", p.steps(pace, false), inkPace)
	p.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.8"/>`+"\n", p.steps(p.served, false), inkServed)
	p.printf(`<line x1="%d" x2="%d" y1="%d" y2="%[3]d" stroke="%s"/>`+"\n", left, right, bottom, inkFaint)
}

// steps returns a path that holds each value over its step.
func (p *plot) steps(values []float64, closed bool) string {
	var b strings.Builder
	if closed {
		fmt.Fprintf(&b, "M%d %d", left, bottom)
	}
	for i, v := range values {
		command := "L"
		if i == 0 && !closed {
			command = "M"
		}
		y := p.y(v)
		fmt.Fprintf(&b, "%s%.1f %.1fH%.1f", command, p.x(time.Duration(i)*p.trace.Step), y, p.x(p.end(i)))
	}
	if closed {
		fmt.Fprintf(&b, "V%dZ", bottom)
	}
	return b.String()
}

// throttles draws a bar for each step with throttles. Heights are logarithmic, so that a
// single throttle is visible beside a thousand.
func (p *plot) throttles() {
	var most, total int64
	for _, s := range p.trace.Steps {
		most, total = max(most, s.Throttled), total+s.Throttled
	}
	for i, s := range p.trace.Steps {
		if s.Throttled == 0 {
			continue
		}
		tall := 6 + (floor-strip-6)*math.Log1p(float64(s.Throttled))/math.Log1p(float64(most))
		x := p.x(time.Duration(i) * p.trace.Step)
		wide := max(1.5, p.x(p.end(i))-x)
		p.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, floor-tall, wide, tall, inkRefused)
	}
	p.printf(`<line x1="%d" x2="%d" y1="%d" y2="%[3]d" stroke="%s"/>`+"\n", left, right, floor, inkFaint)
	note := "no throttles"
	if total > 0 {
		note = fmt.Sprintf("%d throttles, at most %d in %s (logarithmic)", total, most, brief(p.trace.Step))
	}
	p.printf(`<text x="%d" y="%d" text-anchor="end" fill="%s" font-size="11">%s</text>`+"\n", right, strip-8, inkRefused, note)
	p.printf(`<text x="%d" y="%d" text-anchor="end" fill="%s">%d</text>`+"\n", left-8, floor-4, inkRefused, p.trace.Scenario.Provider.Throttle.Status)
}

// curve is an entry of the legend.
type curve struct {
	ink, text string
	wide      int
}

// legend draws the legend, with a note at the right.
func (p *plot) legend(note string, curves ...curve) {
	x := left
	for _, e := range curves {
		p.printf(`<line x1="%d" x2="%d" y1="52" y2="52" stroke="%s" stroke-width="3"/><text x="%d" y="56">%s</text>`+"\n", x, x+22, e.ink, x+28, e.text)
		x += e.wide
	}
	p.printf(`<text x="%d" y="56" text-anchor="end" fill="%s">%s</text>`+"\n", right, inkFaint, note)
}

// nice returns the smallest of 1, 2 and 5 times a power of ten that is at least x.
func nice(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= x*0.9999 {
			return m * power
		}
	}
	return 10 * power
}

func number(x float64) string { return strconv.FormatFloat(math.Round(x*1e6)/1e6, 'f', -1, 64) }

// brief formats a duration with about three digits.
func brief(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return number(math.Round(d.Hours()*10)/10) + " h"
	case d >= 2*time.Minute:
		return number(math.Round(d.Minutes()*10)/10) + " min"
	case d >= time.Second:
		return number(math.Round(d.Seconds()*10)/10) + " s"
	}
	return number(math.Round(float64(d)/float64(time.Millisecond)*10)/10) + " ms"
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(text)
}

// Trace is the course of a run in steps of equal length.
type Trace struct {
	// Scenario is the scenario; its changes and faults are drawn too.
	Scenario *scenario.Scenario
	Law      string
	Seed     uint64
	// Step is the length of each step. The last one ends at the horizon.
	Step  time.Duration
	Steps []Step
}

// Step is what happened in one step.
type Step struct {
	// Admitted and Throttled count the clients' attempts, and Limit the oracle's
	// admissions.
	Admitted, Throttled, Limit int64
	// Pace is the rate that the clients' intervals allowed, summed over clients and
	// averaged over the step, in attempts a second.
	Pace float64
}

// steps is the approximate number of steps of a run, one for two pixels.
const steps = 400

// period returns the longest window of the limits that is at most a tenth of the run; 0 if
// there is none.
func period(s *scenario.Scenario) (window time.Duration) {
	for _, l := range s.Provider.Limits {
		if l.Window <= s.Horizon/10 {
			window = max(window, l.Window)
		}
	}
	return window
}

// stepOf returns the length of a step. A period is a whole number of steps, or a step a
// whole number of periods, so that means over a period are smooth.
func stepOf(s *scenario.Scenario) time.Duration {
	step := max(1, s.Horizon/steps)
	switch window := period(s); {
	case window >= step:
		return window / ((window + step/2) / step)
	case window > 0:
		return window * (step / window)
	}
	return step
}

// course collects a trace.
type course struct {
	horizon, step time.Duration
	refused       []int64
	sent          []float64 // the pace integrated over each step, in attempts
	rate          []float64 // of each ceiling, in attempts a second
	total         float64
	until         time.Duration // the end of the integral
}

func newCourse(s *scenario.Scenario) *course {
	step := stepOf(s)
	n := int((s.Horizon + step/2) / step)
	return &course{
		horizon: s.Horizon, step: step,
		refused: make([]int64, n), sent: make([]float64, n), rate: make([]float64, s.Clients),
	}
}

func (c *course) place(at time.Duration) int { return min(int(at/c.step), len(c.sent)-1) }

// end returns the end of a step.
func (c *course) end(i int) time.Duration {
	if i == len(c.sent)-1 {
		return c.horizon
	}
	return time.Duration(i+1) * c.step
}

func (c *course) refuse(now time.Duration) { c.refused[c.place(now)]++ }

func (c *course) pace(now time.Duration, ceiling int, interval time.Duration) {
	rate := float64(time.Second) / float64(interval)
	if rate == c.rate[ceiling] {
		return
	}
	c.fill(now)
	c.total += rate - c.rate[ceiling]
	c.rate[ceiling] = rate
}

// fill integrates the pace up to an instant.
func (c *course) fill(now time.Duration) {
	for now = min(now, c.horizon); c.until < now; {
		i := c.place(c.until)
		end := min(now, c.end(i))
		c.sent[i] += c.total * (end - c.until).Seconds()
		c.until = end
	}
}

func (c *course) drawUp(l *Ledger, oracle *Oracle) *Trace {
	c.fill(c.horizon)
	t := &Trace{Scenario: l.s, Law: l.law, Seed: l.seed, Step: c.step, Steps: make([]Step, len(c.sent))}
	for i := range t.Steps {
		length := c.end(i) - time.Duration(i)*c.step
		t.Steps[i] = Step{Throttled: c.refused[i], Pace: c.sent[i] / length.Seconds()}
	}
	for _, at := range l.admissions {
		t.Steps[c.place(at)].Admitted++
	}
	for _, at := range oracle.Admissions {
		t.Steps[c.place(at)].Limit++
	}
	return t
}
