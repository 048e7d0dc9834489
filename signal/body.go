package signal

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/headway-go/headway/reason"
)

// finding is what an error body says.
type finding struct {
	// class is the throttle or overload that the body names; Unknown if none.
	class reason.Class
	// exhausted says that a long-window quota is used up.
	exhausted bool
	// perDay says that a violated quota is per day.
	perDay bool
	// wait is the requested wait; Unknown if none.
	wait time.Duration
	// secondary says that the body names GitHub's secondary limit.
	secondary bool
	// limit is the limit that the body names; without figures if none.
	limit Limit
	// status is the HTTP status that the body repeats; 0 if none.
	status int
	// failed says that the body is an error object.
	failed bool
}

// verdict is what an error's code or type means.
type verdict struct {
	class     reason.Class
	exhausted bool
}

// verdicts are the codes that providers document as throttle, overload, or the end of a
// long-window quota. Other codes say nothing about the rate.
var verdicts = map[string]verdict{
	"rate_limit_exceeded":   {class: reason.Throttled},  // OpenAI
	"slow_down":             {class: reason.Throttled},  // OpenAI
	"server_is_overloaded":  {class: reason.Overloaded}, // OpenAI
	"rate_limit_error":      {class: reason.Throttled},  // Anthropic
	"overloaded_error":      {class: reason.Overloaded}, // Anthropic
	"RESOURCE_EXHAUSTED":    {class: reason.Throttled},  // Google
	"rateLimitExceeded":     {class: reason.Throttled},  // Google, with 403
	"userRateLimitExceeded": {class: reason.Throttled},  // Google, with 403

	"insufficient_quota":                {reason.Throttled, true}, // OpenAI
	"billing_hard_limit_reached":        {reason.Throttled, true}, // OpenAI
	"credit_balance_exhausted":          {reason.Throttled, true}, // OpenAI
	"organization_spend_limit_exceeded": {reason.Throttled, true}, // OpenAI
	"organization_usage_limit_exceeded": {reason.Throttled, true}, // OpenAI
	"project_spend_limit_exceeded":      {reason.Throttled, true}, // OpenAI
	"enforced_spend_limit_reached":      {reason.Throttled, true}, // Anthropic
	"dailyLimitExceeded":                {reason.Throttled, true}, // Google, with 403
}

// serviceProtection are Dataverse's limits for a user and a web server, by the
// code in its Web API and by that of its other interfaces.
var serviceProtection = map[string]Limit{
	"0x80072322":  dataverseRequests,
	"-2147015902": dataverseRequests,
	"0x80072321":  dataverseExecution,
	"-2147015903": dataverseExecution,
	"0x80072326":  dataverseConcurrent,
	"-2147015898": dataverseConcurrent,
}

var (
	dataverseRequests = Limit{
		Name: "requests", Unit: UnitRequests,
		Quota: 6000, Window: 300 * time.Second, Remaining: 0, Reset: Unknown,
	}
	dataverseExecution = Limit{
		Name: "execution", Unit: UnitExecution,
		Quota: 1200, Window: 300 * time.Second, Remaining: 0, Reset: Unknown,
	}
	dataverseConcurrent = Limit{
		Name: "concurrency", Unit: UnitConcurrent,
		Quota: 52, Window: Unknown, Remaining: 0, Reset: Unknown,
	}
)

const (
	// minuteQuota is the longest wait that Google sends for a per-minute quota. Google
	// also sends it for a per-day quota, which is not over by then.
	minuteQuota = time.Minute
	// secondaryWait is the minimum wait that GitHub documents for its secondary limit if
	// the response says nothing more.
	secondaryWait = time.Minute
)

// ReadStreamError returns the signal of one event's JSON in a stream that began with
// status 200: OpenAI, Anthropic and Gemini report errors there. For an event that is not
// an error it returns the zero Signal. If an error's code says nothing about the rate,
// the class is that of the status that it repeats, or Failed. At most [MaxBody] bytes are
// read. The cost grows with the event's length, so pass only events that may be errors.
func ReadStreamError(event []byte) Signal {
	f := readBody(event)
	if !f.failed {
		return Signal{}
	}
	s := Signal{Class: reason.Failed}
	if f.status >= http.StatusBadRequest {
		if class := Classify(f.status); class != reason.Unknown {
			s.Class = class
		}
	}
	s.apply(f)
	return s
}

// apply takes over what the body says and the status and headers do not.
func (s *Signal) apply(f finding) {
	if f.secondary && s.Class == reason.Rejected {
		s.Class = reason.Throttled
	}
	if f.class != reason.Unknown && !s.Class.Throttle() {
		s.Class = f.class
	}
	if !s.Class.Throttle() {
		return
	}
	s.Exhausted = s.Exhausted || f.exhausted || f.perDay
	s.Limits = add(s.Limits, f.limit)
	if s.HasRetryAfter {
		return
	}
	switch {
	case f.wait != Unknown && (!f.perDay || f.wait > minuteQuota):
		s.RetryAfter, s.HasRetryAfter = f.wait, true
	case f.secondary && !depleted(s.Limits):
		s.RetryAfter, s.HasRetryAfter = secondaryWait, true
	}
}

// depleted reports whether a limit has nothing remaining and states its reset.
func depleted(all []Limit) bool {
	for _, l := range all {
		if l.Remaining == 0 && l.Reset != Unknown {
			return true
		}
	}
	return false
}

// readBody returns what the prefix of an error body says. Of a body that is not JSON or
// is truncated, it returns what could be read.
func readBody(body []byte) finding {
	f := finding{wait: Unknown, limit: unknownLimit("", "")}
	body = bytes.TrimLeft(body[:min(len(body), MaxBody)], " \t\r\n")
	if len(body) == 0 || (body[0] != '{' && body[0] != '[') {
		return f
	}
	tokens := json.NewDecoder(bytes.NewReader(body))
	tokens.UseNumber()
	walk(tokens, "", 0, f.note)
	return f
}

// note takes one scalar of the body. Paths omit array positions.
func (f *finding) note(path, value string) {
	// OpenAI's Responses API wraps the error in the failed response.
	path = strings.TrimPrefix(path, "/response")
	if path == "/error" || strings.HasPrefix(path, "/error/") {
		f.failed = f.failed || value != ""
	}
	switch path {
	case "/type":
		f.failed = f.failed || value == "error"
	case "/code", "/error/code", "/error/type", "/error/status", "/error/details/error_code",
		"/error/errors/reason", "/error/details/reason":
		f.judge(value)
	case "/error/details/retryDelay":
		if d, err := time.ParseDuration(value); err == nil && d >= 0 && strings.HasSuffix(value, "s") {
			f.wait = max(f.wait, min(d, MaxRetryAfter))
		}
	case "/error/details/violations/quotaId", "/error/details/violations/quotaMetric":
		id := strings.ToLower(value)
		f.perDay = f.perDay || strings.Contains(id, "perday") || strings.Contains(id, "per_day")
	case "/message":
		said := strings.ToLower(value)
		f.secondary = f.secondary || strings.Contains(said, "secondary rate limit") ||
			strings.Contains(said, "abuse detection")
	case "/documentation_url":
		f.secondary = f.secondary || strings.Contains(value, "secondary-rate-limits")
	}
}

// judge interprets one code.
func (f *finding) judge(code string) {
	if v, known := verdicts[code]; known {
		f.exhausted = f.exhausted || v.exhausted
		if f.class == reason.Unknown {
			f.class = v.class
		}
	}
	if l, known := serviceProtection[code]; known {
		f.class, f.limit = reason.Throttled, l
	}
	if n := count(code); n >= http.StatusBadRequest && n <= 599 {
		f.status = int(n)
	}
}

const (
	// maxDepth is deeper than any provider nests.
	maxDepth = 12
	// maxPath is longer than any path of interest. Without it, many keys below a long one
	// would take time quadratic in the body's length.
	maxPath = 64
	// elsewhere is the path of everything nested too deep.
	elsewhere = "…"
)

// walk passes each string and number of one JSON value to note. It reports whether the
// value was complete.
func walk(tokens *json.Decoder, path string, depth int, note func(path, value string)) bool {
	token, err := tokens.Token()
	if err != nil || depth > maxDepth {
		return false
	}
	switch t := token.(type) {
	case string:
		note(path, t)
	case json.Number:
		note(path, t.String())
	case json.Delim:
		for tokens.More() {
			child := path
			if t == '{' {
				key, err := tokens.Token()
				if err != nil {
					return false
				}
				child = join(path, key)
			}
			if !walk(tokens, child, depth+1, note) {
				return false
			}
		}
		_, err := tokens.Token()
		return err == nil
	}
	return true
}

// join extends a path by an object key.
func join(path string, key json.Token) string {
	name, ok := key.(string)
	if !ok || path == elsewhere || len(path)+len(name) >= maxPath {
		return elsewhere
	}
	return path + "/" + name
}
