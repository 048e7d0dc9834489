package console

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/story"
)

// chart is a connection over the last hour or day, drawn and as a table.
type chart struct {
	Name, Span string
	Known      bool
	Runs       bool   // only the traces of runs have it
	Data       string // the series as JSON, for the browser to draw
	Summary    string
	Rates      []string // points of lines: one line for each stretch that is known
	Ceilings   []string
	Refusals   []mark
	Top        string // the rate at the top of the drawing
	Above      string // the ceiling, where it is far above the drawing
	From, To   time.Time
	Rows       []chartRow
}

// mark is a bar at the bottom of the drawing.
type mark struct{ X, Y, Width, Height string }

// chartRow is a line of the table.
type chartRow struct {
	From                            time.Time
	Rate, Ceiling, Refused, Waiting string
}

// The drawing's size, and how much of it refusals take at the bottom.
const (
	chartWidth  = 720
	chartHeight = 160
	refusedPart = 0.25
)

// merge is how many steps a line of the table takes.
var merge = map[string]int{"hour": 30, "day": 12}

// known says that a figure is known: NaN is not.
func known(v float32) bool { return v == v }

// perMinute is a rate of a chart for people.
func perMinute(v float32) string { return figure.Rate(float64(v)) }

// chartOf is what a series shows.
func chartOf(s *client.Series) (chart, error) {
	numbers := *s
	numbers.Connection = "" // the page has it where it is made harmless
	data, err := json.Marshal(numbers)
	if err != nil {
		return chart{}, err
	}
	c := chart{
		Name: s.Connection, Span: string(s.Span), Known: s.Known(), Runs: s.Source == "runs", Data: string(data), From: s.Start,
		To: s.Start.Add(time.Duration(s.StepS*len(s.RatePerMin)) * time.Second),
	}
	whole := summed(s, 0, len(s.RatePerMin))
	c.Summary = whole.text()
	top := whole.top * 1.15
	switch {
	case whole.ceiling <= 0:
	case whole.top <= 0 || whole.ceiling <= 3*whole.top:
		top = max(top, whole.ceiling*1.05)
	default:
		c.Above = perMinute(whole.ceiling)
	}
	if top > 0 {
		c.Top = perMinute(top)
		c.Rates = lineOf(s.RatePerMin, top)
		if c.Above == "" {
			c.Ceilings = lineOf(s.CeilingPerMin, top)
		}
	}
	width := float64(chartWidth) / float64(len(s.Refused))
	for i, n := range s.Refused {
		if known(n) && n > 0 {
			high := chartHeight * refusedPart * float64(n/whole.worst)
			c.Refusals = append(c.Refusals, mark{pixel(width * float64(i)), pixel(chartHeight - high), pixel(max(width, 1.5)), pixel(high)})
		}
	}
	for to := len(s.RatePerMin); to > 0; to -= merge[c.Span] {
		from := max(0, to-merge[c.Span])
		sum := summed(s, from, to)
		c.Rows = append(c.Rows, chartRow{s.Start.Add(time.Duration(from*s.StepS) * time.Second), sum.rateText(), sum.ceilingText(), counted(sum.refused), counted(sum.waiting)})
	}
	return c, nil
}

func pixel(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.1f", v), "0"), ".")
}

// lineOf are the points of the stretches that are known. No ceiling is 0.
func lineOf(all client.Figures, top float32) (lines []string) {
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			lines = append(lines, strings.TrimSpace(b.String()))
		}
		b.Reset()
	}
	width := float64(chartWidth) / float64(len(all))
	for i, v := range all {
		if !known(v) || v <= 0 {
			flush()
			continue
		}
		y := pixel(chartHeight * (1 - float64(min(v, top)/top)))
		fmt.Fprintf(&b, "%s,%s %s,%s ", pixel(width*float64(i)), y, pixel(width*float64(i+1)), y)
	}
	flush()
	return lines
}

// sum is some steps of a series together; refused and waiting are -1 while unknown.
type sum struct {
	low, top, mean, ceiling float32
	rates                   int
	ceilings                bool // the ceiling is known; 0 means that no ceiling is set
	refused, waiting        int64
	worst                   float32 // the most refused in one step
}

func summed(s *client.Series, from, to int) sum {
	r := sum{refused: -1, waiting: -1}
	for i := from; i < to; i++ {
		if v := s.RatePerMin[i]; known(v) && v > 0 {
			if r.rates == 0 || v < r.low {
				r.low = v
			}
			r.top = max(r.top, v)
			r.rates++
			r.mean += (v - r.mean) / float32(r.rates)
		}
		if v := s.CeilingPerMin[i]; known(v) {
			r.ceiling, r.ceilings = v, true
		}
		if v := s.Refused[i]; known(v) {
			r.refused = max(r.refused, 0) + int64(v)
			r.worst = max(r.worst, v)
		}
		if v := s.Waiting[i]; known(v) {
			r.waiting = max(r.waiting, int64(v))
		}
	}
	return r
}

func counted(n int64) string {
	if n < 0 {
		return story.Unknown
	}
	return figure.Count(n)
}

func (r sum) rateText() string {
	switch low, top := perMinute(r.low), perMinute(r.top); {
	case r.rates == 0:
		return story.Unknown
	case low == top:
		return top
	default:
		return fmt.Sprintf("%s, from %s to %s", perMinute(r.mean), low, top)
	}
}

func (r sum) ceilingText() string {
	switch {
	case !r.ceilings:
		return story.Unknown
	case r.ceiling <= 0:
		return "none set"
	}
	return perMinute(r.ceiling)
}

// text says in a sentence what the drawing shows.
func (r sum) text() string {
	return fmt.Sprintf("Rate: %s. Ceiling: %s. Refused for rate or load: %s. Most who waited at once: %s.",
		r.rateText(), r.ceilingText(), counted(r.refused), counted(r.waiting))
}

// chart is that of the connection which the address names; one whose name is too long to
// be asked for is unknown.
func (v *visit) chart(name string) (chart, error) {
	span := client.Hour
	if v.text("span") == string(client.Day) {
		span = client.Day
	}
	if len(name) > maxName {
		return chart{Name: name, Span: string(span)}, nil
	}
	s, err := v.api.Samples(v.r.Context(), name, span)
	if err != nil {
		return chart{}, err
	}
	return chartOf(&s)
}

// spark is a small drawing of a rate over the last hour; nothing is known of its zero value.
type spark struct {
	Lines []string // points, one line for each stretch that is known
	Text  string
}

// The size of a spark.
const (
	sparkWidth  = 72
	sparkHeight = 20
)

func sparkOf(s *client.Spark) (drawn spark) {
	low, top := float32(0), float32(0)
	for _, v := range s.RatePerMin {
		if known(v) && v > 0 {
			if top == 0 || v < low {
				low = v
			}
			top = max(top, v)
		}
	}
	if top == 0 {
		return spark{}
	}
	drawn.Text = "from " + perMinute(low) + " to " + perMinute(top) + " in the last hour"
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			drawn.Lines = append(drawn.Lines, strings.TrimSpace(b.String()))
		}
		b.Reset()
	}
	for i, v := range s.RatePerMin {
		if !known(v) || v <= 0 {
			flush()
			continue
		}
		y := sparkHeight - 1 - int(v/top*(sparkHeight-2))
		fmt.Fprintf(&b, "%d,%d %d,%d ", i*sparkWidth/len(s.RatePerMin), y, (i+1)*sparkWidth/len(s.RatePerMin), y)
	}
	flush()
	return drawn
}
