package quotafile

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/quota"
)

// The keys of the environment. A key that is unset or empty changes nothing.
const (
	// EnvCallsPerMinute is the global limit of calls per minute. It replaces a
	// global refill_per_second of the file, which would overrule it.
	EnvCallsPerMinute = "LLM_GLOBAL_MAX_CALLS_PER_MINUTE"
	// EnvBurst is the capacity of the global call bucket.
	EnvBurst = "LLM_GLOBAL_BURST"
	// EnvAdapt turns adaptive scaling on or off: true, false, 1 or 0.
	EnvAdapt = "LLM_RATE_AWARE_AGENT_ADAPT"
	// EnvEventBuffer is how many events are kept. Default 250.
	EnvEventBuffer = "RATE_GOVERNOR_EVENT_BUFFER"
	// EnvLogLevel is from which level on the governor logs: debug, info, warn or error.
	EnvLogLevel = "RATE_GOVERNOR_LOG_LEVEL"
	// EnvScaleMin and EnvScaleMax bound the scale factor. Defaults 0.5 and 4.
	EnvScaleMin = "RATE_GOVERNOR_ADAPTIVE_SCALE_MIN"
	EnvScaleMax = "RATE_GOVERNOR_ADAPTIVE_SCALE_MAX"
)

var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

var levelNames = []string{"debug", "info", "warn", "error"}

// FromEnv is the configuration with the environment's keys over it, checked,
// with its defaults; see [Settings.WithEnv], which also reads the log level.
func FromEnv(base quota.Config, getenv func(string) string) (quota.Config, error) {
	s, err := Settings{Quota: base}.WithEnv(getenv)
	return s.Quota, err
}

// WithEnv is the settings with the environment's keys over them, checked, with
// their defaults. getenv is os.Getenv, or anything like it. The errors are
// a [*configfile.Error]; then the settings are as they were.
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

// environment reads keys and collects what is wrong with them.
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

// integer reads a whole number above 0; package quota knows its upper bound.
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

// number reads a number above 0; package quota knows its bounds.
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
