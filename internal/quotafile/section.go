package quotafile

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/quota"
)

// named reads a mapping whose keys are names chosen by the owner. A name without a value
// has no limits of its own.
func named[T any](s *configfile.Section, key string, read func(*configfile.Section, *T)) map[string]T {
	all := s.Below(key)
	if all == nil {
		return nil
	}
	values := make(map[string]T, len(all.Fields()))
	for _, f := range all.Fields() {
		var v T
		if f.Node.Kind != configfile.Null {
			m := f.Node.Section()
			if m == nil {
				continue
			}
			read(m, &v)
			m.Done()
		}
		values[f.Name] = v
	}
	return values
}

// toggle reads a switch that is on by default into a field that means off.
func toggle(s *configfile.Section, key string, off *bool) {
	on := !*off
	s.Bool(key, &on)
	*off = !on
}

const notZero = "above 0, or left out"

// integer reads a whole number; package quota checks its bounds.
func integer(s *configfile.Section, key string, into *int64, zero bool) {
	n := s.Take(key)
	if n == nil {
		return
	}
	switch v, ok := n.Int(); {
	case !ok:
		n.Want("a whole number")
	case v == 0 && !zero:
		n.Want(notZero)
	default:
		*into = v
	}
}

// number reads a number; package quota checks its bounds.
func number(s *configfile.Section, key string, into *float64) {
	n := s.Take(key)
	if n == nil {
		return
	}
	switch v, ok := n.Float(); {
	case !ok:
		n.Want("a number")
	case v == 0:
		n.Want(notZero)
	default:
		*into = v
	}
}

// duration reads a duration into milliseconds.
func duration(s *configfile.Section, key string, into *int64) {
	n := s.Take(key)
	if n == nil {
		return
	}
	switch d, ok := n.Duration(); {
	case !ok:
	case d%time.Millisecond != 0:
		n.Want("whole milliseconds")
	case d == 0:
		n.Want(notZero)
	default:
		*into = d.Milliseconds()
	}
}

// place is the position of a field.
type place struct {
	at   configfile.Place
	node *configfile.Node
}

// places are the positions of fields by their JSON paths, which package quota uses.
type places map[string]place

// names are the keys of mappings whose own keys the owner chose.
var names = map[string]bool{"models": true, "tenants": true, "agents": true, "charges": true}

// walk records the positions of a mapping and all that is in it. named says that its keys
// are names.
func (p places) walk(n *configfile.Node, json string, named bool) {
	for _, f := range n.Fields {
		key, at := f.Name, f.At
		if !named {
			key, at = inJSON(f.Name), f.Node.At
		}
		if json != "" {
			key = json + "." + key
		}
		p[key] = place{at, f.Node}
		if f.Node.Kind == configfile.Text {
			p[key+"Ms"] = p[key]
		}
		p.walk(f.Node, key, !named && names[f.Name])
	}
}

// report reports an error of package quota at the position of its field, or of what
// should contain the field.
func (p places) report(f *quota.FieldError) {
	inside, missing := f.Field, ""
	at, ok := p[inside]
	for !ok {
		dot := strings.LastIndexByte(inside, '.')
		if dot < 0 {
			at, missing = p[""], f.Field
			break
		}
		inside, missing = inside[:dot], f.Field[dot+1:]
		at, ok = p[inside]
	}
	n, field := at.node, at.node.Path
	if missing != "" {
		field = n.Below(written(missing))
	}
	is, bound := "is "+f.Value, written(f.Bound)
	if missing == "" && strings.HasSuffix(f.Field, "Ms") {
		is = n.Is()
		var lo, hi int64
		if got, _ := fmt.Sscanf(f.Bound, "from %d to %d", &lo, &hi); got == 2 {
			bound = fmt.Sprintf("from %s to %s", figure.Duration(time.Duration(lo)*time.Millisecond), figure.Duration(time.Duration(hi)*time.Millisecond))
		}
	}
	n.File().Fail(at.at, field, "%s; want %s", is, bound)
}

// faults returns the single errors that package quota joined, whatever their type.
func faults(err error) []*quota.FieldError {
	if err == nil {
		return nil
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*quota.FieldError
		for _, e := range several.Unwrap() {
			all = append(all, faults(e)...)
		}
		return all
	}
	if f, ok := errors.AsType[*quota.FieldError](err); ok {
		return []*quota.FieldError{f}
	}
	return []*quota.FieldError{{Field: "configuration", Value: err.Error(), Bound: "one that a governor takes"}}
}

var camel = regexp.MustCompile(`\b[a-z]+([A-Z][a-z]+)+\b`)

// written returns text of package quota with its JSON keys in the file's form:
// softTokenWindowMs becomes soft_token_window.
func written(text string) string {
	return camel.ReplaceAllStringFunc(text, func(key string) string {
		var b strings.Builder
		for _, c := range key {
			if unicode.IsUpper(c) {
				b.WriteByte('_')
			}
			b.WriteRune(unicode.ToLower(c))
		}
		return strings.TrimSuffix(b.String(), "_ms")
	})
}

// inJSON is the JSON key of a file's key: soft_token_window is softTokenWindow.
func inJSON(key string) string {
	var b strings.Builder
	for i, part := range strings.Split(key, "_") {
		if i > 0 && part != "" {
			part = strings.ToUpper(part[:1]) + part[1:]
		}
		b.WriteString(part)
	}
	return b.String()
}

// The environment variables. One that is unset or empty changes nothing.
const (
	// EnvCallsPerMinute is the global limit of calls per minute. It replaces the file's
	// global refill_per_second, which would otherwise take precedence.
	EnvCallsPerMinute = "LLM_GLOBAL_MAX_CALLS_PER_MINUTE"
	// EnvBurst is the capacity of the global call bucket.
	EnvBurst = "LLM_GLOBAL_BURST"
	// EnvAdapt turns adaptive scaling on or off: true, false, 1 or 0.
	EnvAdapt = "LLM_RATE_AWARE_AGENT_ADAPT"
	// EnvEventBuffer is how many events are kept. Default 250.
	EnvEventBuffer = "RATE_GOVERNOR_EVENT_BUFFER"
	// EnvLogLevel is the minimum level that the governor logs: debug, info, warn or
	// error.
	EnvLogLevel = "RATE_GOVERNOR_LOG_LEVEL"
	// EnvScaleMin and EnvScaleMax bound the scale factor. Defaults 0.5 and 4.
	EnvScaleMin = "RATE_GOVERNOR_ADAPTIVE_SCALE_MIN"
	EnvScaleMax = "RATE_GOVERNOR_ADAPTIVE_SCALE_MAX"
)

var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

var levelNames = []string{"debug", "info", "warn", "error"}

// FromEnv returns the configuration with the environment's variables applied, checked and
// with its defaults; see [Settings.WithEnv], which also reads the log level.
func FromEnv(base quota.Config, getenv func(string) string) (quota.Config, error) {
	s, err := Settings{Quota: base}.WithEnv(getenv)
	return s.Quota, err
}

// WithEnv returns the settings with the environment's variables applied, checked and with
// their defaults. getenv is os.Getenv or a similar function. The error is a
// [*configfile.Error]; then the settings are unchanged.
func (s Settings) WithEnv(getenv func(string) string) (Settings, error) {
	e := environment{getenv: getenv, file: configfile.NewFile("environment", configfile.Options{})}
	next := s
	if next.Quota.LoadZone == nil {
		next.Quota.LoadZone = time.LoadLocation
	}
	c := &next.Quota
	if e.integer(EnvCallsPerMinute, &c.Global.CallsPerMinute) {
		c.Global.RefillPerSecond = 0
	}
	e.integer(EnvBurst, &c.Global.Burst)
	e.integer(EnvEventBuffer, &c.EventBuffer)
	e.number(EnvScaleMin, &c.ScaleMin)
	e.number(EnvScaleMax, &c.ScaleMax)
	if v := getenv(EnvAdapt); v != "" {
		switch v {
		case "true", "1":
			c.AdaptiveScalingOff = false
		case "false", "0":
			c.AdaptiveScalingOff = true
		default:
			e.fail(EnvAdapt, configfile.Quote(v), "true, false, 1 or 0")
		}
	}
	if v := getenv(EnvLogLevel); v != "" {
		level, ok := levels[v]
		if !ok {
			e.fail(EnvLogLevel, configfile.Quote(v), "one of "+strings.Join(levelNames, ", "))
		}
		next.LogLevel = level
	}
	if err := e.file.Err(); err != nil {
		return s, err
	}
	resolved, err := c.Resolve()
	for _, f := range faults(err) {
		e.fail(e.key(f.Field), f.Value, written(f.Bound))
	}
	if err := e.file.Err(); err != nil {
		return s, err
	}
	next.Quota = resolved
	return next, nil
}

// environment reads variables and collects errors.
type environment struct {
	getenv func(string) string
	file   *configfile.File
}

func (e *environment) fail(key, value, bound string) {
	e.file.Fail(configfile.Place{}, key, "is %s; want %s", value, bound)
}

// key is the environment's key for a field where it is set there, else the
// field as a file has it.
func (e *environment) key(field string) string {
	keys := map[string]string{
		"global.callsPerMinute": EnvCallsPerMinute, "global.burst": EnvBurst,
		"eventBuffer": EnvEventBuffer, "scaleMin": EnvScaleMin, "scaleMax": EnvScaleMax,
	}
	if key := keys[field]; key != "" && e.getenv(key) != "" {
		return key
	}
	if field == "global.callsPerMinute" && e.getenv(EnvBurst) != "" {
		return fmt.Sprintf("%s (with %s)", EnvCallsPerMinute, EnvBurst)
	}
	return written(field)
}

// integer reads a whole number above 0; package quota checks its upper bound.
func (e *environment) integer(key string, into *int64) (set bool) {
	text := e.getenv(key)
	if text == "" {
		return false
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v <= 0 {
		e.fail(key, configfile.Quote(text), "a whole number above 0, or unset")
		return false
	}
	*into = v
	return true
}

// number reads a number above 0; package quota checks its bounds.
func (e *environment) number(key string, into *float64) {
	text := e.getenv(key)
	if text == "" {
		return
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0) {
		e.fail(key, configfile.Quote(text), "a number above 0, or unset")
		return
	}
	*into = v
}
