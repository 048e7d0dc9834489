package rest

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/internal/span"

	"github.com/headway-go/headway/internal/configfile"
)

// builder makes a Config of a file's nodes and reports what the schema cannot
// see. A node that is absent or of the wrong type gives the zero value: the
// schema has reported it.
type builder struct {
	*configfile.File
	names *[]naming // of streams
}

func (b builder) config(root *node) *Config {
	c := &Config{
		Name:     b.name(root.Get("connection"), 64),
		Provider: b.provider(root.Get("provider")),
		Run:      b.run(root.Get("run")),
		Sink:     b.sink(root.Get("sink")),
	}
	seen := map[string]string{}
	if list := root.Get("streams"); list != nil {
		for _, n := range list.Items {
			c.Streams = append(c.Streams, b.stream(n, c.Provider.Auth, seen))
		}
	}
	if list := root.Get("errors"); list != nil {
		for _, n := range list.Items {
			c.Errors = append(c.Errors, b.rule(n))
		}
	}
	return c
}

func (b builder) run(n *node) Run {
	r := Run{
		MaxRequests:  b.maxRequests(n.Get("max_requests")),
		CatchupPages: b.catchupPages(n.Get("catchup_pages")),
		MaxWallClock: b.maxWallClock(n.Get("max_wall_clock")),
		Concurrency:  b.concurrency(n.Get("concurrency")),

		Schedule: b.timetable(n.Get("schedule")), CatchupSchedule: b.timetable(n.Get("catchup_schedule")),
	}
	return r
}

// timetable is a cron expression.
func (b builder) timetable(n *node) string {
	s := b.text(n)
	if s == "" {
		return ""
	}
	if _, err := cron.ParseStandard(s); err != nil {
		n.Fail("%s; want five fields such as \"*/15 * * * *\", or \"@every 15m\" (%v)", n.Is(), err)
	}
	return s
}

func (b builder) sink(n *node) Sink {
	folder := func(n *node) string { return cmp.Or(b.text(n.Get("dir")), DefaultDir) }
	switch {
	case n.Get("sqlite") != nil:
		return Sink{SQLite: &SQLite{File: b.text(n.Get("sqlite").Get("file"))}}
	case n.Get("parquet") != nil:
		return Sink{Parquet: &Parquet{Dir: folder(n.Get("parquet"))}}
	case n.Get("singer") != nil:
		return Sink{Singer: &Singer{}}
	case n.Get("airbyte") != nil:
		return Sink{Airbyte: &Airbyte{}}
	}
	return Sink{JSONL: &JSONL{Dir: folder(n.Get("jsonl"))}}
}

// name is a name whose letters a variable may have brought.
func (b builder) name(n *node, hi int) string {
	s := b.text(n)
	bad := strings.IndexFunc(s, func(c rune) bool {
		return c != '.' && c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
	if s != "" && (bad >= 0 || len(s) > hi || strings.Trim(s[:1], ".-_") == "") {
		n.Fail("%s; want at most %d letters, digits, dots, dashes and underscores after a letter or digit", n.Is(), hi)
	}
	return s
}

// text is a text, or a number written where a text may stand.
func (b builder) text(n *node) string {
	if n == nil || n.Kind == configfile.List || n.Kind == configfile.Table {
		return ""
	}
	return n.Value
}

func (b builder) expr(n *node) *Expr {
	s := b.text(n)
	if s == "" {
		return nil
	}
	e, err := compile(s)
	switch {
	case err != nil && n.References():
		n.Fail("is %s, whose value is not a jq expression (not shown)", configfile.Quote(n.Written))
	case err != nil:
		n.Fail("is not a jq expression: %v", err)
	}
	return e
}

func (b builder) duration(n *node, unset, lo, hi time.Duration) time.Duration {
	s := b.text(n)
	if s == "" {
		return unset
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		n.Want("a duration with a unit, such as 250ms, 20s or 15m")
	case d < lo || d > hi:
		n.Fail("%s; want from %s to %s", n.Is(), span.Text(lo), span.Text(hi))
	}
	return d
}

func (b builder) count(n *node, unset, hi int64) int64 {
	s := b.text(n)
	if s == "" {
		return unset
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 0 || v > hi {
		n.Fail("%s; want a whole number of at most %d", n.Is(), hi)
	}
	return v
}

func (b builder) bytes(n *node) int64 {
	s := b.text(n)
	if s == "" {
		return DefaultMaxBody
	}
	unit := int64(1)
	for suffix, size := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = rest, size
			break
		}
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 1 || v > (1<<30)/unit {
		n.Want("a size from 1 byte to 1GiB, such as 65536 or 64MiB")
		return DefaultMaxBody
	}
	return v * unit
}

func (b builder) value(n *node) Value {
	if n == nil || n.Kind == configfile.List || n.Kind == configfile.Table {
		return Value{}
	}
	return configfile.NewSecret(n.Written, n.Value)
}
